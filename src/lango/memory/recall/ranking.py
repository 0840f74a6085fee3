"""Rank messages and notes for a question: BM25 over stems, with what stands beside a message, and with its time.

BM25 weighs a word by how few messages have it, counts a repeated word less each time, and favours short texts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec import Struct

from lango.config import Language
from lango.memory.recall.question import Question
from lango.store.search.terms import Term, stems_in_order

K1, B = 1.2, 0.75
"""How little a repeated word counts, and how much the length of a text: the usual values of BM25."""
BESIDE = (0.5, 0.25)
"""How much of its score a message adds to the one beside it, and to the one after that."""
SITTING_S = 6 * 3600.0
"""Messages that are further apart in time do not answer each other, also if nothing was said between them."""
IN_PERIOD = 0.75
"""How much of the best score a message gets for its time, if the question names one."""
ON_SIDE = 0.25
"""The same for the side of an event: less, since half of a conversation is on it."""
DAYS_AFTER = 10
"""What is told so many days after the days of a question is near them."""
_CONTEXT = 0.3
"""What a word weighs in a sentence that does not ask: it only chooses between texts that answer."""
_SPEAKER = re.compile(r"\s*(?:[\[(][^\])]{0,60}[\])]\s*)?(?P<name>[^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?):\s")
_ADDRESSED = frozenset(["you", "your", "yours", "du", "dich", "dein", "tu", "toi", "vous", "votr", "ton", "usted"])


class Weights(Struct, frozen=True):
    """How much each word of a question tells, by its stem or its characters."""

    of_stem: Mapping[str, float]
    language: Language
    informative: frozenset[str] = frozenset()
    """The words that few messages have."""
    total: float = 0.0
    """The weight of a text with every word that a message has."""


class Text(Struct, frozen=True):
    """What is ranked: a message or a note."""

    text: str
    seq: int
    at: float | None = None
    author: str = ""
    place: int = -1
    """Its place among the notes; -1: a message."""


class Ranked(Struct, frozen=True):
    """A text and its score."""

    score: float
    own: float
    """The score of its own words."""
    text: Text


def idf(messages: int, count: int) -> float:
    """Return the weight of a word that `count` of some messages have."""
    return math.log(1 + (max(messages, count) - count + 0.5) / (count + 0.5))


def keys_of(term: Term) -> list[str]:
    """Return what `stems_in_order` has for a text with the term."""
    return [term.stem or term.text] if not term.run else [key for key, prefix in term.keys if not prefix]


def weigh(
    counted: Sequence[tuple[Term, int]], question: Question, messages: int, rare: int, language: Language
) -> Weights:
    """Weigh the words of a question by how many messages have them."""
    weights: dict[str, float] = {}
    informative: set[str] = set()
    for term, count in counted:
        keys = keys_of(term)
        for key in keys:
            share = 1.0 if term in question.terms else _CONTEXT
            weights[key] = max(weights.get(key, 0.0), share * idf(messages, count) / len(keys))
        if 0 < count <= rare and term in question.terms:
            informative.update(keys)
    found = {key for term, count in counted if count for key in keys_of(term)}
    return Weights(weights, language, frozenset(informative), sum(weights[key] for key in found))


def rank(texts: Sequence[Text], weights: Weights, question: Question) -> list[Ranked]:
    """Return the texts that have to do with a question, the best first; of equals, the newest."""
    words = [stems_of(text, weights.language) for text in texts]
    average = sum(map(len, words)) / max(1, len(words))
    told_by_others = _told_by_others(texts, words, question)
    own = [
        0.0 if by_other else _bm25(found, weights.of_stem, average)
        for found, by_other in zip(words, told_by_others, strict=True)
    ]
    by_seq = {text.seq: (score, text) for score, text in zip(own, texts, strict=True) if score and text.place < 0}
    scores = [
        0.0 if by_other else score + (_from_beside(text, by_seq) if text.place < 0 else 0.0)
        for score, text, by_other in zip(own, texts, told_by_others, strict=True)
    ]
    best = max(scores, default=0.0)
    if question.periods:
        # words alone cannot choose if the question has none that tell anything
        scores = [
            0.0 if by_other else score + IN_PERIOD * (best or 1.0) * _nearness(text, question)
            for score, text, by_other in zip(scores, texts, told_by_others, strict=True)
        ]
    if question.side and (border := _place_of_event(texts, words, question)):
        for at, text in enumerate(texts):
            if scores[at] and (text.seq < border) == (question.side == "before"):
                scores[at] += ON_SIDE * best
    ranked = [Ranked(score, mine, text) for score, mine, text in zip(scores, own, texts, strict=True) if score > 0]
    return sorted(ranked, key=lambda one: (-one.score, -one.text.seq))


def sentence_score(text: str, weights: Weights) -> float:
    """Return the weight of the different words of a question that a text has."""
    return sum(weights.of_stem[word] for word in weights.of_stem.keys() & _different(text, weights.language))


def matched(text: str, weights: Weights) -> set[str]:
    """Return the words of a question that a text has."""
    return set(weights.of_stem.keys() & _different(text, weights.language))


def stems_of(text: Text, language: Language) -> tuple[str, ...]:
    """Return the stems of a text and of its author's name."""
    return _stems("" if text.author == "user" else text.author, text.text, language)


@lru_cache(maxsize=10_000)
def _stems(author: str, text: str, language: Language) -> tuple[str, ...]:
    return (*stems_in_order(author, language), *stems_in_order(text, language))


@lru_cache(maxsize=10_000)
def _different(text: str, language: Language) -> frozenset[str]:
    return frozenset(stems_in_order(text, language))


def _bm25(words: Sequence[str], weights: Mapping[str, float], average: float) -> float:
    counts = {word: words.count(word) for word in weights.keys() & set(words)}
    length = K1 * (1 - B + B * len(words) / max(1.0, average))
    return sum(weights[word] * count * (K1 + 1) / (count + length) for word, count in counts.items())


def _from_beside(text: Text, by_seq: Mapping[int, tuple[float, Text]]) -> float:
    """Return what the messages beside a message add to its score."""
    total = 0.0
    for distance, share in enumerate(BESIDE, 1):
        beside = (by_seq.get(text.seq - distance), by_seq.get(text.seq + distance))
        total += share * max((one[0] for one in beside if one and _same_sitting(text, one[1])), default=0.0)
    return total


def _same_sitting(one: Text, other: Text) -> bool:
    return one.at is None or other.at is None or abs(one.at - other.at) <= SITTING_S


def _nearness(text: Text, question: Question) -> float:
    """Return 1 for a text from the days of a question, and less for one that is soon after them."""
    if text.at is None:
        return 0.0
    day = datetime.fromtimestamp(text.at, UTC).date()
    near = 0.0
    for period in question.periods:
        if period.first <= day <= period.last:
            return 1.0
        if period.last < day <= period.last + timedelta(DAYS_AFTER):
            near = 0.5
    return near


def _told_by_others(texts: Sequence[Text], words: Sequence[Sequence[str]], question: Question) -> list[bool]:
    """Return which texts a speaker told of themselves, while the question names other speakers.

    Speakers are known if messages have named authors, or begin with a name ("Ann: ..."). A message that names the one
    whom the question names, or addresses them, may answer it.
    """
    speakers = {text.seq: speaker for text in texts if text.place < 0 and (speaker := speaker_of(text))}
    asked = {key for term in question.terms for key in (term.text, *keys_of(term))}
    named = {speaker for speaker in set(speakers.values()) if speaker.split()[0] in asked}
    are_known = len(speakers) > sum(text.place < 0 for text in texts) // 2
    if not are_known or not named or named == set(speakers.values()):
        return [False] * len(texts)
    names = {term.stem or term.text for term in question.terms for name in named if term.text in name.split()}
    return [
        bool(speaker := speakers.get(text.seq))
        and speaker not in named
        and not (names | _ADDRESSED).intersection(found)
        for text, found in zip(texts, words, strict=True)
    ]


def speaker_of(text: Text) -> str:
    """Return the name of who speaks in a message, in lower case, or "" if it is not known."""
    found = _SPEAKER.match(text.text)
    return (found["name"] if found else "" if text.author in ("", "user") else text.author).lower()


def is_signed(text: Text) -> bool:
    """Whether the text of a message begins with its speaker ("Ann: ...")."""
    return _SPEAKER.match(text.text) is not None


def _place_of_event(texts: Sequence[Text], words: Sequence[Sequence[str]], question: Question) -> int:
    """Return the message that has most words of the event of a question, or 0."""
    keys = {key for term in question.event for key in keys_of(term)}
    shares = [len(keys.intersection(found)) / max(1, len(keys)) for found in words]
    best = max(shares, default=0.0)
    return texts[shares.index(best)].seq if best > 0.5 else 0
