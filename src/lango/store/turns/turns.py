"""Operations on turns: one runs per session at a time, the others wait in order, and an epoch fences what each writes.

A turn is stored with the user's message before anything runs. Whether the process that runs it still lives is told by
its `beat`, which grows: no clock is compared with another.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import SessionId, StoredEvent
from lango.store.codec.rows import MESSAGE_COLUMNS, row_to_event
from lango.store.engine.database import LARGEST, Operation
from lango.store.sessions.sessions import lock_session
from lango.store.turns.recovery import close_open_calls

Status = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
Outcome = Literal["done", "failed", "cancelled", "interrupted"]
BY_IDEMPOTENCY_KEY = "SELECT turn, status, epoch, digest FROM turns WHERE session_key = $1 AND idempotency_key = $2"
_END = """
UPDATE turns SET status = $1, ended_at = $2, extra = $3, input_tokens = $4, output_tokens = $5, cached_tokens = $6,
    model_calls = $7, cost_usd = $8
WHERE session_key = $9 AND epoch = $10 AND status = 'running' RETURNING
    (SELECT COUNT(*) FROM turns w WHERE w.session_key = turns.session_key AND w.turn > turns.turn
        AND w.status = 'queued' AND w.owner <> turns.owner)
"""
_READ = """
SELECT status, invocation_id, extra, owner, heartbeat, epoch, created_at, started_at
FROM turns WHERE session_key = $1 AND turn = $2
"""
# where the messages of a turn lie: a turn from before `first_seq` was kept lies somewhere between its neighbours
_MESSAGE_RANGE = """
SELECT t.invocation_id, t.extra, t.first_seq,
    (SELECT p.first_seq FROM turns p WHERE p.session_key = $1 AND p.turn < $2 AND p.first_seq IS NOT NULL
        ORDER BY p.turn DESC LIMIT 1),
    (SELECT n.first_seq FROM turns n WHERE n.session_key = $1 AND n.turn > $2 AND n.first_seq IS NOT NULL
        ORDER BY n.turn LIMIT 1)
FROM turns t WHERE t.session_key = $1 AND t.turn = $2
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq > $2 AND seq < $3 ORDER BY seq
"""  # noqa: S608 - constants
_CANCEL = """
UPDATE turns SET cancel_requested = 1 WHERE session_key = $1 AND status = 'running' AND turn < $2 RETURNING turn
"""


class Turn(Struct, frozen=True):
    """A turn: while it runs, `epoch` goes with everything it writes."""

    session_key: int
    turn: int
    epoch: int | None = None
    status: Status = "running"
    repeated: bool = False
    """The same request came before: this is that turn."""


class TurnRecord(Struct, frozen=True):
    """What became of a turn."""

    status: Status
    invocation_id: str
    extra: Mapping[str, Any]
    owner: str = ""
    heartbeat: int = 0
    epoch: int | None = None
    """None: it never began."""
    was_queued: bool = False
    """It did not begin at once: another turn was ahead of it."""


class EndResult(Struct, frozen=True):
    """What came of ending a turn."""

    ended: bool
    """False: it was lost before."""
    others_are_queued: bool = False
    """A turn of another owner is queued behind it."""


class QueuedTurn(Struct, frozen=True):
    """A turn that comes before another one of its session."""

    turn: int
    status: Status
    owner: str
    heartbeat: int


def end_turn(
    turn: Turn, name: SessionId, outcome: Outcome, now: float, extra: Mapping[str, Any] | None = None
) -> Operation[EndResult]:
    """End a running turn, closing what it left open."""
    key = turn.session_key
    locked = yield from lock_session(key)
    used: Mapping[str, Any] = (extra or {}).get("usage") or {}
    spent = (*(used.get(name, 0) for name in ("input", "output", "cached", "model_calls")), used.get("cost_usd"))
    rows = yield _END, (outcome, now, dumps(extra) if extra else None, *spent, key, turn.epoch)
    if not rows or not locked:
        return EndResult(bool(rows))
    yield from close_open_calls(key, name, locked.revision, now, turn.epoch or 0)
    return EndResult(True, others_are_queued=rows[0][0] > 0)


def find_by_idempotency_key(key: int, idempotency_key: str) -> Operation[int | None]:
    """Return the turn of a request that came before."""
    rows = yield BY_IDEMPOTENCY_KEY, (key, idempotency_key)
    return rows[0][0] if rows else None


def read_turn(key: int, turn: int) -> Operation[TurnRecord | None]:
    """Read what became of a turn."""
    rows = yield _READ, (key, turn)
    for status, invocation_id, extra, owner, heartbeat, epoch, created_at, started_at in rows:
        about: dict[str, Any] = loads(extra) if extra else {}
        return TurnRecord(status, invocation_id or "", about, owner or "", heartbeat, epoch, started_at != created_at)
    return None


def read_turn_texts(key: int, turn: int) -> Operation[list[StoredEvent]]:
    """Read what the agents said in a turn."""
    found = yield from read_turn_messages(key, turn)
    return [event for event in found if event.message and event.message.role == "assistant" and event.message.content]


def read_turn_messages(key: int, turn: int) -> Operation[list[StoredEvent]]:
    """Read the messages of a turn after the one that began it, however long the session is."""
    ranges = yield _MESSAGE_RANGE, (key, turn)
    for invocation_id, extra, first, before, after in ranges:
        rows = yield _MESSAGES, (key, first or before or 0, after or LARGEST)
        found = [row_to_event(row) for row in rows]
        ending: dict[str, Any] = loads(extra) if extra else {}
        own = {invocation_id, *ending.get("invocations", ())}
        return found if first else [event for event in found if event.invocation_id in own]
    return []


def request_cancel(key: int, before: int | None = None) -> Operation[bool]:
    """Ask the running turn of a session to stop, wherever it runs; False: none runs, or none before that turn."""
    return bool((yield _CANCEL, (key, LARGEST if before is None else before)))
