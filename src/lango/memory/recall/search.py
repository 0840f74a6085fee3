"""Search what a user said before, for an agent that asks: in this session or in all of the user's."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock

from msgspec import Struct

from lango.memory.recall.filling import best_sentences
from lango.memory.recall.question import Question
from lango.memory.recall.ranking import Text, Weights, idf, keys_of, matched, rank
from lango.sessions import SessionId, as_datetime
from lango.store import Store
from lango.store.memory.observations import read_memory, read_user_notes
from lango.store.memory.user_facts import read_facts
from lango.store.search.memory_entries import Memory, find_memories, read_forgotten
from lango.store.search.recall import find_in_session, find_messages, find_of_days, parse_question
from lango.store.search.terms import Term
from lango.store.sessions.sessions import find_session
from lango.threads import run_in_thread

_PAGE = 8
_MOST_SESSIONS_WITH_NOTES = 50
_MAX_TOKENS = 200
"""Of one result; a longer message is quoted with its best sentences."""
_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_MEMORY = "memory"


class Sought(Struct, frozen=True):
    """What an agent looks for."""

    query: str
    speaker: str = ""
    first: date | None = None
    last: date | None = None
    only_this: bool = False
    before_seq: int = 0
    """The first message of this session that the request shows; 0: none."""


async def search_memory(
    store: Store, session: SessionId, sought: Sought, start: int = 0
) -> tuple[list[dict[str, object]], bool]:
    """Return a page of what was found from a place in the ranking on, and whether there is more."""
    wanted = parse_question(sought.query, store.language)
    await store.update_search_index(session.app_name, session.user_id)
    if sought.only_this or not wanted:
        found = await _of_session(store, session, sought, wanted)
    else:
        found = await _of_user(store, session, wanted)
    forgotten = await store.read(read_forgotten, session.app_name, session.user_id)
    kept = [one for one in found if one.id not in forgotten and _fits(one, session, sought)]
    return await run_in_thread(_page, store, kept, wanted, start)


async def _of_session(store: Store, name: SessionId, sought: Sought, wanted: Sequence[Term]) -> list[Memory]:
    session = await store.read(find_session, name)
    if session is None:
        return []
    before_seq = sought.before_seq or session.last_seq + 1
    weighted = [(term, 1.0) for term in wanted]
    if sought.first or sought.last:
        days = _start(sought.first, 0.0), _start(sought.last and sought.last + timedelta(1), _LAST)
        found = await store.read(find_of_days, store.dialect, session, weighted, days, before_seq)
    else:
        found = await store.read(find_in_session, store.dialect, session, weighted, 1, before_seq - 1)
    memory = await store.read(read_memory, session)
    notes = [
        Memory(f"{batch.batch}.{note.number}", _MEMORY, note.text, _start(date.fromisoformat(note.day), 0.0), name.id)
        for batch in memory.batches
        for note in batch.observations
        if note.day
    ]
    return [*found, *(notes if wanted else [])]


async def _of_user(store: Store, name: SessionId, wanted: Sequence[Term]) -> list[Memory]:
    app, user = name.app_name, name.user_id
    facts = await store.read(read_facts, app, user)
    found = [Memory(f"fact:{fact.id}", _MEMORY, f"{fact.name}: {fact.text}", fact.created_at) for fact in facts]
    found += await store.read(find_memories, app, user, wanted)
    notes = await store.read(read_user_notes, app, user, _MOST_SESSIONS_WITH_NOTES)
    found += [Memory(note.id, _MEMORY, note.text, note.created_at, note.session_id) for note in notes]
    return found + await store.read(find_messages, store.dialect, app, user, wanted)


def _start(day: date | None, default: float) -> float:
    return default if day is None else datetime.combine(day, clock(), UTC).timestamp()


def _fits(memory: Memory, session: SessionId, sought: Sought) -> bool:
    if memory.session_id == session.id and 0 < sought.before_seq <= memory.seq:
        return False  # the request shows it
    if sought.first or sought.last:
        day = None if memory.created_at is None else as_datetime(memory.created_at).date()
        if day is None or (sought.first and day < sought.first) or (sought.last and day > sought.last):
            return False
    name = sought.speaker.strip().lower()
    return not name or memory.author.lower() == name or memory.text[:100].lower().startswith((f"{name}:", f"{name} ("))


def _page(
    store: Store, found: Sequence[Memory], wanted: Sequence[Term], start: int
) -> tuple[list[dict[str, object]], bool]:
    distinct = list({(one.session_id, one.seq or one.id): one for one in found}.values())
    if wanted:
        # as notes: numbers of messages in several sessions say nothing about what stands beside what
        texts = [Text(one.text, place, one.created_at, one.author, place) for place, one in enumerate(distinct)]
        weights = _weights(texts, wanted, store)
        ranked = [one.text.place for one in rank(texts, weights, Question(tuple(wanted))) if one.own > 0]
    else:
        weights = Weights({}, store.language)
        ranked = sorted(
            range(len(distinct)), key=lambda place: (distinct[place].created_at or 0.0, distinct[place].seq)
        )
    shown = [distinct[place] for place in ranked[start : start + _PAGE]]
    return [_as_json(one, weights) for one in shown], len(ranked) > start + _PAGE


def _weights(texts: Sequence[Text], wanted: Sequence[Term], store: Store) -> Weights:
    """Weigh words by how many of the texts that were found have them."""
    keys = {key: 1.0 for term in wanted for key in keys_of(term)}
    plain = Weights(keys, store.language)
    counts = dict.fromkeys(keys, 0)
    for text in texts:
        for key in matched(text.text, plain):
            counts[key] += 1
    return Weights({key: idf(len(texts), count) for key, count in counts.items()}, store.language)


def _as_json(one: Memory, weights: Weights) -> dict[str, object]:
    return {
        "date": "" if one.created_at is None else f"{as_datetime(one.created_at):%Y-%m-%d}",
        "session": one.session_id,
        "message": one.seq or None,
        "from": one.author,
        "text": best_sentences(one.text, weights, _MAX_TOKENS),
    }
