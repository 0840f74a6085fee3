"""Recall for a message of the user what its request does not show, as quoted text.

The words of the message are looked up in the search index, and what is found is ranked together with the notes. The
text goes after the user's message, at the end of a request, so that everything before it stays the same for a
provider's prompt cache.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock

from msgspec import Struct

from lango.memory.notes.superseded import CurrentNote
from lango.memory.quote import notes_of, shown_notes
from lango.memory.recall.filling import Filler
from lango.memory.recall.question import Question, read_question, sentences_of
from lango.memory.recall.ranking import DAYS_AFTER, Text, Weights, idf, matched, rank, sentence_score, weigh
from lango.sessions import SessionId
from lango.store import Store
from lango.store.memory.observations import SessionMemory
from lango.store.search.memory_entries import Memory
from lango.store.search.recall import count_words, find_in_session, find_of_days
from lango.store.search.terms import Term
from lango.threads import run_in_thread

_MOST_TERMS = 16
"""How many words of a message are looked up."""
_RARE_SHARE, _KNOWN_SHARE = 0.1, 0.3
_MIN_RARE, _MAX_RARE = 3, 1_000
_MOST_COMMON_TERMS = 6
_QUESTION_SHARE, _STATEMENT_SHARE = 0.25, 0.6
"""How much of the weight of a message's words a text must have, before anything is recalled."""
_MAY_REPLACE = 60
"""How many messages are searched for values that replaced older ones."""
_SHOWN_SEQ = 10**9
_MOST_FOR_QUESTIONS, _MOST_FOR_STATEMENTS = 50, 5
"""How many messages are found for their words: those beside them are ranked, too, and few fit the room."""
_STATEMENT_TOKENS = 160
"""A message that mostly informs recalls one sentence: what is recalled for it is in no other request."""


class Shown(Struct, frozen=True):
    """What a request shows: the messages from `first_seq` on, and the notes of its memory that fit."""

    first_seq: int
    messages: Sequence[str] = ()


async def recall_for(
    store: Store,
    name: SessionId,
    memory: SessionMemory,
    message: str,
    *,
    shown: Shown,
    room: Callable[[], int],
    now: float | None = None,
) -> str:
    """Return what is known for a message beyond what its request shows, as quoted text, or "" if nothing is.

    `room` returns how many tokens it may have; it is only called if something was found.
    """
    today = datetime.fromtimestamp(time.time() if now is None else now, UTC).date()
    question = read_question(message, today, store.language)
    first_seq = shown.first_seq
    wanted = [*question.terms, *question.context]
    if not (wanted or question.periods) or first_seq <= 1:
        return ""
    if not question.asks and len(wanted) > _MOST_TERMS:
        return ""  # a sentence rarely has most of so many words, and each costs a search
    most = _most_known(first_seq - 1)
    words = await store.read(count_words, store.dialect, name, wanted, first_seq, most + 1)
    if words is not None and words.indexed_seq < min(first_seq - 1, words.session.last_seq):
        await store.update_search_index(name.app_name, name.user_id)
        words = await store.read(count_words, store.dialect, name, wanted, first_seq, most + 1)
    if words is None:
        return ""
    counted = list(zip(wanted, words.counts, strict=True)) if words.counts else []
    weights = weigh(counted, question, first_seq - 1, _most_rare(first_seq - 1), store.language)
    looked_up = _looked_up(counted, question, weights, first_seq - 1)
    if not looked_up and not question.periods:
        return ""
    most = _MOST_FOR_QUESTIONS if question.asks else _MOST_FOR_STATEMENTS
    messages = await store.read(find_in_session, store.dialect, words.session, looked_up, 1, first_seq - 1, most)
    for period in question.periods:
        days = _start(period.first), _start(period.last + timedelta(1 + DAYS_AFTER))
        messages += await store.read(find_of_days, store.dialect, words.session, looked_up, days, first_seq)
    return await run_in_thread(  # there may be many notes
        recalled_text, question, weights, memory, messages, room(), shown.messages
    )


def _looked_up(
    counted: Sequence[tuple[Term, int]], question: Question, weights: Weights, messages: int
) -> list[tuple[Term, float]]:
    """Return the words that are looked up in the index with their weights, the rarest first.

    Without a rare word in the question, the words of a short question are looked up that are not in most messages:
    they may stand together somewhere.
    """
    found = sorted(((term, idf(messages, count)) for term, count in counted if count), key=lambda pair: -pair[1])
    known = [(term, weight) for term, weight in found if weight >= idf(messages, _most_known(messages))]
    if weights.informative:
        return known[:_MOST_TERMS]
    is_short = question.asks and 1 < len(question.terms) <= _MOST_COMMON_TERMS
    return found[:_MOST_TERMS] if is_short or question.periods else []


def recalled_text(
    question: Question,
    weights: Weights,
    memory: SessionMemory,
    messages: Sequence[Memory],
    max_tokens: int,
    shown: Sequence[str] = (),
) -> str:
    """Rank notes that are not shown and messages, and render those that fit, or return "" if none has to do with it.

    A note with an older value of what one of the `shown` messages says is left out. For a question about the past,
    notes come with the values that they replaced, also those that are shown.
    """
    notes = notes_of(memory)
    numbers = {current.number for current in shown_notes(memory, notes)}
    texts = list({one.seq: Text(one.text, one.seq, one.created_at, one.author) for one in messages}.values())
    texts += [
        Text(_text_of(current), current.note.last_seq, _time_of(current), place=place)
        for place, current in enumerate(notes)
        if (current.number not in numbers or (question.past and current.earlier))
        and (question.periods or sentence_score(_text_of(current), weights))
    ]
    ranked = rank(texts, weights, question)
    if not weights.informative and not question.periods:
        ranked = [one for one in ranked if len(matched(one.text.text, weights)) > 1]
    least = (_QUESTION_SHARE if question.asks else _STATEMENT_SHARE) * weights.total
    if not question.asks:
        ranked = [one for one in ranked if sentence_score(one.text.text, weights) >= least][:1]
        max_tokens = min(max_tokens, _STATEMENT_TOKENS)
    elif not question.periods and all(one.own < least for one in ranked):
        return ""
    if not ranked:
        return ""
    best = [one.text for one in ranked[:_MAY_REPLACE] if one.own and one.text.place < 0]
    later = [(text.seq, one) for text in best for one in sentences_of(text.text) if sentence_score(one, weights)]
    later += [
        (note.last_seq, note.text) for note in (current.note for current in notes) if sentence_score(note.text, weights)
    ]
    said = [one for text in shown if sentence_score(text, weights) for one in sentences_of(text)]
    later += [(_SHOWN_SEQ, one) for one in said if sentence_score(one, weights)]
    return Filler(notes, weights, question, [] if question.past else later).fill(ranked, max_tokens)


def _text_of(current: CurrentNote) -> str:
    return " ".join(note.text for note in (current.note, *current.earlier))


def _time_of(current: CurrentNote) -> float | None:
    try:
        return _start(date.fromisoformat(current.note.day))
    except ValueError:
        return None


def _start(day: date) -> float:
    return datetime.combine(day, clock(), UTC).timestamp()


def _most_rare(messages: int) -> int:
    """Return how many messages may have a rare word."""
    return max(_MIN_RARE, min(_MAX_RARE, int(messages * _RARE_SHARE)))


def _most_known(messages: int) -> int:
    """Return how many messages may have a word that is looked up."""
    return max(_most_rare(messages), min(_MAX_RARE, int(messages * _KNOWN_SHARE)))
