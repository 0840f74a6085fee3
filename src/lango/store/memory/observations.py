"""Read which observations of a session are current, and which messages are not yet observed.

A batch covers a range of messages and never changes. It is valid until a later rewind removes one of its messages; then
the valid batches that it was condensed from are current again. The current batches form a chain from the first message
on; the messages after the chain are not observed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from lango.history import count_tokens
from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store.codec.json_text import loads
from lango.store.codec.rows import MESSAGE_COLUMNS, row_to_event
from lango.store.engine.database import Operation, Row
from lango.store.memory import user_facts
from lango.store.search.memory_entries import Memory
from lango.store.sessions import sessions, window
from lango.store.sessions.lineage import Range, all_row_ranges, live_ranges, read_rewinds, total_tokens_at

Priority = Literal["pinned", "high", "medium", "low"]
"""Pinned: a user asked to remember it. It is never condensed."""
BatchStatus = Literal["current", "condensed", "rewound"]

MAX_BATCH_MESSAGES = 400
_RECENT_ROWS = 200

BATCH_COLUMNS = (
    "batch, generation, first_seq, last_seq, floor_seq, rewinds, sources, model, input_tokens, output_tokens, tokens, "
    "created_at"
)
OBSERVATION_COLUMNS = "batch, number, first_seq, last_seq, priority, day, text"
_BATCH_NAMES = BATCH_COLUMNS.split(", ")
_BATCHES = f"SELECT {BATCH_COLUMNS} FROM observation_batches WHERE session_key = $1 ORDER BY batch"  # noqa: S608 - constants
_OBSERVATIONS = f"""
SELECT {OBSERVATION_COLUMNS} FROM observations
WHERE session_key = $1 AND batch >= $2 AND batch <= $3 ORDER BY batch, number
"""  # noqa: S608
_SPENT = """
SELECT COUNT(*), COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0)
FROM observation_batches WHERE session_key = $1
"""
_BUSY = """
SELECT 1 FROM turns WHERE session_key = $1 AND status = 'running'
UNION ALL SELECT 1 FROM open_calls WHERE session_key = $1 AND seq > $2
"""
_NEXT_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""  # noqa: S608
_BEFORE = """
SELECT seq, role, tokens FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq DESC LIMIT $4
"""
_FORK_BATCHES = f"""
INSERT INTO observation_batches (session_key, {BATCH_COLUMNS})
SELECT CAST($1 AS BIGINT), {BATCH_COLUMNS} FROM observation_batches WHERE session_key = $2 AND last_seq <= $3
"""  # noqa: S608
_FORK_OBSERVATIONS = f"""
INSERT INTO observations (session_key, {OBSERVATION_COLUMNS})
SELECT CAST($1 AS BIGINT), {OBSERVATION_COLUMNS} FROM observations WHERE session_key = $2
    AND batch IN (SELECT batch FROM observation_batches WHERE session_key = $2 AND last_seq <= $3)
"""  # noqa: S608
QUOTE_TOKENS = 150
"""The tokens of the text around observations and facts in a request."""

_NOTED_SESSIONS = """
SELECT s.id FROM sessions s
WHERE s.app_name = $1 AND s.user_id = $2
    AND EXISTS (SELECT 1 FROM observation_batches b WHERE b.session_key = s.session_key)
ORDER BY s.updated_at DESC LIMIT $3
"""


class Observation(Struct, frozen=True):
    """A note, and the messages that it was made from."""

    text: str
    first_seq: int
    last_seq: int
    priority: Priority = "medium"
    day: str = ""
    """Of its last message, UTC: 2026-11-15."""
    number: int = 0
    """Its number in its batch, from 1 on; 0: it is not stored yet."""


class Batch(Struct, frozen=True):
    """The observations of one response of an observer (generation 0) or a reflector."""

    first_seq: int
    last_seq: int
    observations: tuple[Observation, ...] = ()
    generation: int = 0
    floor_seq: int = 0
    rewinds: int = 0
    sources: tuple[int, ...] = ()
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    created_at: float = 0.0
    batch: int = 0
    standing: BatchStatus = "current"


class ListedNote(Observation, frozen=True, kw_only=True):
    """A note with its batch, for people."""

    id: str
    """Its batch, a dot, and its number in the batch."""
    batch: int
    """Observations of one model reply share a batch and its token counts."""
    generation: int
    """0: made from messages; more: condensed from observations."""
    standing: BatchStatus
    sources: Sequence[int]
    """The batches from which it was condensed."""
    model: str
    input_tokens: int
    output_tokens: int
    created_at: float

    @classmethod
    def of(cls, note: Observation, batch: Batch) -> "ListedNote":
        """Return a note with what its batch says of it."""
        shared = {name: getattr(batch, name) for name in _OF_BATCH}
        return cls(**asdict(note), id=f"{batch.batch}.{note.number}", **shared)


_OF_BATCH = ("batch", "generation", "standing", "sources", "model", "input_tokens", "output_tokens", "created_at")


class SessionMemory(Struct, frozen=True):
    """The current observations of a session and the facts about its user."""

    batches: tuple[Batch, ...] = ()
    facts: tuple[str, ...] = ()
    """Facts about the user, from all sessions."""
    notes_tokens: int | None = None
    """The most tokens of observations in a request; the others can be recalled."""

    @property
    def observed_seq(self) -> int:
        """The last message that was observed; 0: none."""
        return self.batches[-1].last_seq if self.batches else 0

    @property
    def floor_seq(self) -> int:
        """The first message of the window."""
        return self.batches[-1].floor_seq if self.batches else 1

    @property
    def tokens(self) -> int:
        """The tokens of all current observations."""
        return sum(batch.tokens for batch in self.batches)

    @property
    def notes(self) -> list[ListedNote]:
        """The observations, each with what its batch says of it."""
        return [ListedNote.of(note, batch) for batch in self.batches for note in batch.observations]


WindowWithMemory = tuple[SessionInfo, list[StoredEvent], SessionMemory]


class UnobservedMessages(Struct, frozen=True):
    """The messages that are not observed yet: their tokens, and the first of them in order."""

    memory: SessionMemory
    rewinds: int
    tokens: int = 0
    messages: tuple[StoredEvent, ...] = ()


# -- current batches --------------------------------------------------------------------------------------------------


def read_memory(session: SessionInfo) -> Operation[SessionMemory]:
    """Read the current batches with their observations."""
    rows = yield _BATCHES, (session.key,)
    batches = current_batches([_row_to_batch(row) for row in rows], session.last_seq, session.rewinds)
    return SessionMemory(tuple((yield from _with_observations(session.key, batches))))


def read_all_batches(session: SessionInfo) -> Operation[list[Batch]]:
    """Read all batches with their status, the oldest first."""
    rows = yield _BATCHES, (session.key,)
    batches = [_row_to_batch(row) for row in rows]
    current = {batch.batch for batch in current_batches(batches, session.last_seq, session.rewinds)}
    stood = [replace(batch, standing=_batch_status(batch, current, session.rewinds)) for batch in batches]
    return (yield from _with_observations(session.key, stood))


def current_batches(batches: Sequence[Batch], last_seq: int, rewinds: Sequence[Range]) -> list[Batch]:
    """Return the chain of current batches from the first message on, preferring the batch that reaches farthest."""
    ranges = sorted(live_ranges(last_seq, rewinds))
    farthest: dict[int, Batch] = {}
    for batch in sorted(batches, key=lambda batch: (batch.last_seq, batch.generation, batch.batch)):
        if _is_valid(batch, rewinds):
            farthest[batch.first_seq] = batch
    found: list[Batch] = []
    position = 0
    while (expected := next_live_seq(ranges, position)) is not None and expected in farthest:
        found.append(farthest[expected])
        position = found[-1].last_seq
    return found


def next_live_seq(ranges: Iterable[Range], after: int) -> int | None:
    """Return the next message that no rewind removed."""
    return next((max(first, after + 1) for first, last in ranges if last > after), None)


def _is_valid(batch: Batch, rewinds: Sequence[Range]) -> bool:
    """Whether a batch still covers the messages that it was made from."""
    return _covered_ranges(batch, rewinds[: batch.rewinds]) == _covered_ranges(batch, rewinds)


def is_still_valid(key: int, batch: Batch) -> Operation[bool]:
    """Whether no rewind has removed a message of a batch since it was made."""
    return _is_valid(batch, (yield from read_rewinds(key)))


def _covered_ranges(batch: Batch, rewinds: Sequence[Range]) -> list[Range]:
    end = max([batch.last_seq, *(at for at, _ in rewinds)])
    clipped = [(max(first, batch.first_seq), min(last, batch.last_seq)) for first, last in live_ranges(end, rewinds)]
    return sorted(range_ for range_ in clipped if range_[0] <= range_[1])


def _batch_status(batch: Batch, current: set[int], rewinds: Sequence[Range]) -> BatchStatus:
    if batch.batch in current:
        return "current"
    return "condensed" if _is_valid(batch, rewinds) else "rewound"


def _with_observations(key: int, batches: Sequence[Batch]) -> Operation[list[Batch]]:
    if not batches:
        return []
    numbers = [batch.batch for batch in batches]
    rows = yield _OBSERVATIONS, (key, min(numbers), max(numbers))
    notes: dict[int, list[Observation]] = {}
    for batch, number, first_seq, last_seq, priority, day, text in rows:
        notes.setdefault(batch, []).append(Observation(text, first_seq, last_seq, priority, day, number))
    return [replace(batch, observations=tuple(notes.get(batch.batch, ()))) for batch in batches]


def _row_to_batch(row: Row) -> Batch:
    columns: dict[str, Any] = dict(zip(_BATCH_NAMES, row, strict=True))
    columns["sources"] = tuple(loads(columns["sources"] or "[]"))
    return Batch(**columns)


def read_spent(session: SessionInfo) -> Operation[tuple[int, int, int]]:
    """Read how many batches a session has, and how many tokens went in and out to make them."""
    [[batches, input_tokens, output_tokens]] = yield _SPENT, (session.key,)
    return batches, input_tokens, output_tokens


def copy_to_fork(key: int, source_key: int, point: int) -> Operation[None]:
    """Copy the batches that end before the fork point to a fork."""
    yield _FORK_BATCHES, (key, source_key, point)
    yield _FORK_OBSERVATIONS, (key, source_key, point)


# -- unobserved messages ----------------------------------------------------------------------------------------------


def read_unobserved(session: SessionInfo) -> Operation[UnobservedMessages]:
    """Read the unobserved messages, without those of a turn that runs or waits for a user."""
    memory = yield from read_memory(session)
    busy = yield _BUSY, (session.key, session.user_seq)
    end = session.user_seq - 1 if busy else session.last_seq
    tokens = 0
    messages: list[StoredEvent] = []
    ranges = sorted(live_ranges(session.last_seq, session.rewinds))
    for key, first, last in sorted(
        all_row_ranges(session, _clip_ranges(ranges, memory.observed_seq + 1, end)), key=lambda place: place[1]
    ):
        tokens += yield from total_tokens_at(session, last)
        tokens -= yield from total_tokens_at(session, first - 1)
        room = MAX_BATCH_MESSAGES - len(messages)
        if room > 0:
            rows = yield _NEXT_MESSAGES, (key, first, last, room)
            messages += [row_to_event(row) for row in rows]
    return UnobservedMessages(memory, len(session.rewinds), tokens, tuple(messages))


def find_floor(session: SessionInfo, last_seq: int, turns: int, max_tokens: int) -> Operation[int]:
    """Return the first message of the last `turns` turns up to a message, of fewer if they exceed `max_tokens`."""
    ranges = _clip_ranges(live_ranges(session.last_seq, session.rewinds), 1, last_seq)
    rows: list[Row] = []
    for place in all_row_ranges(session, ranges):
        if len(rows) < _RECENT_ROWS:
            rows += yield _BEFORE, (*place, _RECENT_ROWS)
    floor, tokens, found = last_seq + 1, 0, 0
    for seq, role, cost in rows:
        tokens += cost
        if found == turns or tokens > max_tokens:
            break
        if role == "user":
            floor, found = seq, found + 1
    return floor


def _clip_ranges(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    clipped = [(max(begin, first), min(end, last)) for begin, end in ranges]
    return [range_ for range_ in clipped if range_[0] <= range_[1]]


def read_window_with_memory(
    name: SessionId,
    budget_tokens: int,
    *,
    with_facts: bool = False,
    notes_tokens: int | None = None,
    until: int | None = None,
) -> Operation[WindowWithMemory | None]:
    """Read a session, its observations, and the messages that fit the budget beside them; `until`: as it was then."""
    session = yield from window.find_session_at(name, until)
    if session is None:
        return None
    memory = replace((yield from read_memory(session)), notes_tokens=notes_tokens)
    if with_facts:
        facts = yield from user_facts.read_facts(name.app_name, name.user_id)
        known = sorted(facts, key=lambda fact: fact.pinned)[-user_facts.MOST_FACTS :]  # the last ones stay longest
        memory = replace(memory, facts=tuple(f"{fact.name}: {fact.text}" for fact in known))
    spent = min(memory.tokens, notes_tokens or memory.tokens)
    spent += sum(count_tokens(fact) + 4 for fact in memory.facts)
    if spent:
        spent = min(spent + QUOTE_TOKENS, budget_tokens // 2)
    stored = yield from window.read_window(
        session, budget_tokens - spent, first_seq=memory.floor_seq, as_it_was=until is not None
    )
    return session, stored, memory


def read_unobserved_of(name: SessionId) -> Operation[tuple[SessionInfo, UnobservedMessages] | None]:
    """Read a session and its unobserved messages; return None if there is no such session."""
    session = yield from sessions.find_session(name)
    return None if session is None else (session, (yield from read_unobserved(session)))


def read_user_notes(app_name: str, user_id: str, most_sessions: int) -> Operation[list[Memory]]:
    """Read the current notes about the sessions of a user that changed last, as memories."""
    notes: list[Memory] = []
    for [session_id] in (yield _NOTED_SESSIONS, (app_name, user_id, most_sessions)):
        session = yield from sessions.find_session(SessionId(app_name, user_id, session_id))
        memory = (yield from read_memory(session)) if session else None
        notes += [
            Memory(f"note:{batch.batch}.{note.number}:{session_id}", "memory", note.text, batch.created_at, session_id)
            for batch in (memory.batches if memory else ())
            for note in batch.observations
        ]
    return notes
