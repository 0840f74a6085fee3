"""Change notes for a user: correct, pin and forget them.

A change also applies to copies of the note in other batches: after a rewind an older batch may be current again. An
observer that is at work loses its lease, so that it cannot store what it read before the change.
"""

from msgspec.structs import replace

from lango.history import count_tokens
from lango.json_values import storable_text
from lango.sessions import SessionInfo
from lango.store.engine.database import Operation, Row
from lango.store.memory.observations import Batch, Observation, read_all_batches
from lango.store.search.memory_entries import delete_memory
from lango.store.sessions.lineage import row_ranges
from lango.store.sessions.sessions import lock_session

_FENCE = "UPDATE observer_leases SET owner = NULL, epoch = epoch + 1 WHERE session_key = $1"
_UPDATE = "UPDATE observations SET text = $1, priority = $2 WHERE session_key = $3 AND batch = $4 AND number = $5"
_DELETE = "DELETE FROM observations WHERE session_key = $1 AND batch = $2 AND number = $3"
_SET_TOKENS = "UPDATE observation_batches SET tokens = $1 WHERE session_key = $2 AND batch = $3"
_EVENTS = """
SELECT event_id, content FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3
    AND role IN ('user', 'assistant') ORDER BY seq LIMIT 50
"""
_Place = tuple[Batch, Observation]


def edit_note(
    session: SessionInfo, note_id: str, *, text: str | None = None, pinned: bool | None = None
) -> Operation[Observation | None]:
    """Correct a note, pin it, or unpin it; return None if there is no such note. A corrected note is pinned."""
    places = yield from _copies(session, note_id)
    changed: Observation | None = None
    for batch, note in places:
        is_pinned = text is not None if pinned is None else pinned
        priority = "pinned" if is_pinned else "high" if note.priority == "pinned" else note.priority
        new_text = note.text if text is None else storable_text(" ".join(text.split()))
        changed = replace(note, text=new_text, priority=priority)
        yield _UPDATE, (new_text, priority, session.key, batch.batch, note.number)
        yield from _add_tokens(session.key, batch, count_tokens(new_text) - count_tokens(note.text))
    return changed


def delete_note(session: SessionInfo, note_id: str) -> Operation[bool]:
    """Delete a note, with the notes that it was condensed from; return False if there is none.

    The messages that it came from stay in the conversation, but those with its words are no longer recalled.
    """
    places = yield from _copies(session, note_id, with_sources=True)
    for batch, note in places:
        yield _DELETE, (session.key, batch.batch, note.number)
        yield from _add_tokens(session.key, batch, -count_tokens(note.text))
    if places:
        yield from _hide_messages(session, places[0][1])
    return bool(places)


def _copies(session: SessionInfo, note_id: str, *, with_sources: bool = False) -> Operation[list[_Place]]:
    """Return a note with its batch, and its copies in others; with `with_sources`, also the notes behind it."""
    if (yield from lock_session(session.key)) is None:
        return []
    yield _FENCE, (session.key,)
    batches = yield from read_all_batches(session)
    places = [(batch, note) for batch in batches for note in batch.observations]
    wanted = [place for place in places if f"{place[0].batch}.{place[1].number}" == note_id]
    if not wanted:
        return []
    [(own, note)] = wanted
    behind = _sources_of(own, {batch.batch: batch for batch in batches}) if with_sources else set[int]()
    copies = [
        (batch, other)
        for batch, other in places
        if (other.text, other.first_seq, other.last_seq) == (note.text, note.first_seq, note.last_seq)
        or (batch.batch in behind and _is_behind(other, note))
    ]
    return [*wanted, *(place for place in copies if place not in wanted)]


def _sources_of(batch: Batch, by_number: dict[int, Batch]) -> set[int]:
    found: set[int] = set()
    waiting = list(batch.sources)
    while waiting:
        number = waiting.pop()
        if number in by_number and number not in found:
            found.add(number)
            waiting += by_number[number].sources
    return found


def _is_behind(other: Observation, note: Observation) -> bool:
    """Whether a note was condensed to another one: it is on the same messages and shares half of its words."""
    if other.first_seq > note.last_seq or note.first_seq > other.last_seq:
        return False
    words = set(other.text.lower().split())
    return len(words & set(note.text.lower().split())) * 2 >= len(words)


def _add_tokens(key: int, batch: Batch, tokens: int) -> Operation[None]:
    yield _SET_TOKENS, (max(0, batch.tokens + tokens), key, batch.batch)


def _hide_messages(session: SessionInfo, note: Observation) -> Operation[None]:
    """Hide from recall the messages that a note came from, if they have its words."""
    words = {word for word in note.text.lower().split() if len(word) > 3}
    for place in row_ranges(session, note.first_seq, note.last_seq):
        rows: list[Row] = yield _EVENTS, place
        for event_id, content in rows:
            if words & set((content or "").lower().split()):
                yield from delete_memory(session.name.app_name, session.name.user_id, event_id)
