"""Read what a message of the user asks for: its words, the days that it names, and whether the past is meant."""

import re
from datetime import date

from msgspec import Struct

from lango.config import Language
from lango.memory.dates import Period, find_periods
from lango.memory.notes.key_terms import asks_for_the_past
from lango.store.search.recall import parse_question
from lango.store.search.terms import Term

_READ_CHARACTERS = 1_500
_MARK = re.compile("[?\uff1f\u061f\u037e]")
_SENTENCE_END = re.compile(r"(?<=[.!?\uff1f\u061f\u3002\uff01])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_ASKING_WORD = re.compile(
    r"\s*(?:please\s+|and\s+|so\s+)?(?:wh(?:at|o|om|ose|en|ere|ich|y)|how|tell|list|show|remind|give|name|describe|"
    r"summari[sz]e|recall|find|look up|search)\b",
    re.IGNORECASE,
)
_EVENT = re.compile(r"\b(?P<side>before|after|since)\s+(?P<event>[^?.!,;]{3,80})", re.IGNORECASE)


class Question(Struct, frozen=True):
    """A message of the user as recall reads it."""

    terms: tuple[Term, ...]
    """What to look for: the words of the sentences that ask, or of all of them."""
    context: tuple[Term, ...] = ()
    """The words of its other sentences: they only rank."""
    asks: bool = True
    """Whether it mainly asks: most of its words are in sentences with a question mark, or with a question word."""
    past: bool = False
    periods: tuple[Period, ...] = ()
    side: str = ""
    """`before` or `after`: on which side of an event the answer is."""
    event: tuple[Term, ...] = ()


def read_question(text: str, today: date, language: Language) -> Question:
    """Read a message of the user, which was written `today`."""
    text = text[-_READ_CHARACTERS:]
    sentences = sentences_of(text)
    asking = [sentence for sentence in sentences if _MARK.search(sentence) or _ASKING_WORD.match(sentence)]
    about = " ".join(asking)
    terms = tuple(parse_question(about, language))
    rest = " ".join(sentence for sentence in sentences if sentence not in asking)
    context = tuple(term for term in parse_question(rest, language) if term not in terms)
    asks = bool(asking) and len(terms) >= len(context)
    if not asks:
        terms, context, about = (*terms, *context), (), ""
    side, event = _event(about, language)
    return Question(
        terms,
        context,
        asks,
        asks_for_the_past(text),
        tuple(find_periods(about, today)),
        side,
        event,
    )


def _event(text: str, language: Language) -> tuple[str, tuple[Term, ...]]:
    found = _EVENT.search(text)
    terms = tuple(parse_question(found["event"], language)) if found else ()
    if found is None or not terms or any(find_periods(found[0], date(2000, 6, 15))):
        return "", ()
    return ("before" if found["side"].lower() == "before" else "after"), terms


def sentences_of(text: str) -> list[str]:
    """Split a text into sentences; a text has at least one."""
    return [one for one in _SENTENCE_END.split(text) if one and one.strip()] or [text]
