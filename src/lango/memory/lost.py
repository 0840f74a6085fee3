"""Tell for a text of the transcript whether the agent still reads it, and otherwise which step of memory dropped it.

Pure functions over the stored messages and batches: they ask no model.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from lango.memory.notes.key_terms import content_words, key_terms, missing_terms
from lango.memory.notes.transcript import text_of
from lango.memory.quote import notes_of, shown_notes
from lango.sessions import SessionId, StoredEvent
from lango.store.engine.database import Operation
from lango.store.memory.observations import (
    Batch,
    SessionMemory,
    read_all_batches,
    read_window_with_memory,
)
from lango.store.sessions.window import read_session_events

Step = Literal["shown", "noted", "recalled only", "replaced", "condensed away", "not noted", "not observed"]
"""Where a text of a message is now.

- shown: the request holds the message itself.
- noted: the request holds a note that has it.
- recalled only: a current note has it, but the request has no room for that note.
- replaced: a later note about the same thing replaced the note that had it.
- condensed away: a note had it, and the reflection of that note has not.
- not noted: the message was observed, and no note has it.
- not observed: the message is no longer shown, and was not observed yet.
"""
_ALL_SEQS = 2**62


class LostText(Struct, frozen=True):
    """What became of a text, or of the names, numbers and dates, of one message."""

    seq: int
    text: str
    step: Step
    note: str = ""
    """The note that has it, or had it at last: `3.1` is the first of batch 3."""


def read_lost(
    name: SessionId, text: str | None, budget_tokens: int, notes_tokens: int | None
) -> Operation[list[LostText]]:
    """Read what became of a text, or without one of every name, number and date, in the next request of a session."""
    found = yield from read_window_with_memory(name, budget_tokens, notes_tokens=notes_tokens)
    if found is None:
        return []
    session, window, memory = found
    batches = yield from read_all_batches(session)
    _, messages = (yield from read_session_events(name)) or (session, [])
    first_seq = min((stored.seq for stored in window), default=_ALL_SEQS)
    if text is None:
        return trace_all(messages, batches, memory, first_seq)
    return trace_terms(text, messages, batches, memory, first_seq)


def trace_terms(
    text: str, messages: Sequence[StoredEvent], batches: Sequence[Batch], memory: SessionMemory, first_seq: int
) -> list[LostText]:
    """Return what became of a text in each message that has it; the request shows messages from `first_seq` on."""
    found = [stored for stored in messages if _has(text_of(stored), text)]
    index = _Index(batches, memory)
    return [LostText(stored.seq, text, *_step(stored.seq, [text], index, first_seq)) for stored in found]


def trace_all(
    messages: Iterable[StoredEvent], batches: Sequence[Batch], memory: SessionMemory, first_seq: int
) -> list[LostText]:
    """Return what became of the names, numbers and dates of every message that is no longer shown."""
    index = _Index(batches, memory)
    found: list[LostText] = []
    for stored in messages:
        if stored.seq >= first_seq:
            break
        by_step: dict[tuple[Step, str], list[str]] = {}
        for term in sorted(key_terms(text_of(stored))):
            by_step.setdefault(_step(stored.seq, [term], index, first_seq), []).append(term)
        found += [LostText(stored.seq, ", ".join(terms), *where) for where, terms in by_step.items()]
    return found


def trace_text(text: str, batches: Sequence[Batch], memory: SessionMemory | None = None) -> Step:
    """Return which step dropped a text that was observed, wherever it was said."""
    current = memory or SessionMemory(tuple(batch for batch in batches if batch.standing == "current"))
    return _step(0, [text], _Index(batches, current), 0, anywhere=True)[0]


class _Index:
    """The notes of a session by their place: all of them, the current ones, and those that a request shows."""

    def __init__(self, batches: Sequence[Batch], memory: SessionMemory) -> None:
        self.every = [
            (f"{batch.batch}.{note.number}", note)
            for batch in batches
            if batch.standing != "taken_back"
            for note in batch.observations
        ]
        notes = notes_of(memory)
        self.shown = {current.number for current in shown_notes(memory, notes)}
        self.current = {current.number for current in notes}
        self.unreplaced = {f"{batch.batch}.{note.number}" for batch in memory.batches for note in batch.observations}
        self.observed_seq = memory.observed_seq


def _step(
    seq: int, wanted: Sequence[str], index: _Index, first_seq: int, *, anywhere: bool = False
) -> tuple[Step, str]:
    if not anywhere and seq >= first_seq:
        return "shown", ""
    having = [
        (number, note)
        for number, note in index.every
        if (anywhere or note.first_seq <= seq <= note.last_seq) and all(_has(note.text, text) for text in wanted)
    ]
    numbers = [number for number, _ in having]
    places: list[tuple[set[str], Step]] = [
        (index.shown, "noted"),
        (index.current, "recalled only"),
        (index.unreplaced, "replaced"),
    ]
    for place, step in places:
        if found := [number for number in numbers if number in place]:
            return step, found[-1]
    if numbers:
        return "condensed away", numbers[-1]
    return ("not noted" if anywhere or seq <= index.observed_seq else "not observed"), ""


def _has(whole: str, text: str) -> bool:
    """Whether a note or a message has a text, or at least its key terms and other words that are not common."""
    wanted = " ".join(text.lower().split())
    if wanted in " ".join(whole.lower().split()):
        return True
    words = content_words(text)
    return bool(words) and words <= content_words(whole) and not missing_terms(text, [whole])
