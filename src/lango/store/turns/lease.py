"""Lease queued turns, renew leases with heartbeats, and take over turns whose owner died."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from lango.errors import SessionNotFound, TurnRunning
from lango.store.codec.records import SessionId
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import lock_session
from lango.store.turns.queue import ANY_AHEAD, TURN, WITHDRAW, decode_input, read_open_turns
from lango.store.turns.recovery import close_open_calls
from lango.store.turns.submit import NEW_EPOCH, accepts_results, append_input, start_turn
from lango.store.turns.turns import QueuedTurn, Turn

_HEARTBEAT = """
UPDATE turns SET heartbeat = heartbeat + 1 WHERE session_key = $1 AND epoch = $2 AND status = 'running'
RETURNING cancel_requested
"""
_INTERRUPT = """
UPDATE turns SET status = CASE WHEN answer_stored = 1 THEN 'done' ELSE 'interrupted' END, ended_at = $1,
    queued_input = NULL
WHERE session_key = $2 AND turn = $3 AND heartbeat = $4 AND status IN ('queued', 'running') RETURNING turn
"""
_OPEN_TURNS_OF_OWNER = """
SELECT turn, status, heartbeat FROM turns
WHERE session_key = $1 AND owner = $2 AND invocation_id = $3 AND status IN ('queued', 'running')
"""
_SET_FIRST_SEQ = "UPDATE turns SET epoch = $1, first_seq = $2 WHERE session_key = $3 AND turn = $4"
_HEARTBEAT_QUEUED = """
UPDATE turns SET heartbeat = heartbeat + 1 WHERE session_key = $1 AND turn = $2 AND status = 'queued'
"""
_RUNNING_BY_OWNER = "SELECT COALESCE(owner, ''), COUNT(*) FROM turns WHERE status = 'running' GROUP BY owner"
# a queued turn is behind a running one: this join uses the index of running turns
_COUNT_QUEUED = """
SELECT COUNT(*) FROM turns r JOIN turns w ON w.session_key = r.session_key AND w.turn > r.turn AND w.status = 'queued'
WHERE r.status = 'running'
"""


class LeaseCounts(Struct, frozen=True):
    """The number of open turns in the whole store."""

    running_by_owner: Mapping[str, int]
    queued: int


def lease_turn(key: int, name: SessionId, turn: int, now: float) -> Operation[Turn | list[QueuedTurn]]:
    """Start a queued turn; if open turns are ahead of it, return these. Return a turn that is not queued as it is."""
    if (yield from lock_session(key)) is None:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} is not there (any more)")
    [[status, epoch, message]] = yield TURN, (key, turn)
    if status != "queued":
        return Turn(key, turn, epoch if status == "running" else None, status)
    queued_before = yield from read_open_turns(key, turn)
    if queued_before:
        yield _HEARTBEAT_QUEUED, (key, turn)  # the process of a queued turn lives, too
        return queued_before
    entry = decode_input(message)
    if not (yield from accepts_results(key, entry)):
        yield WITHDRAW, (now, key, turn)
        return Turn(key, turn, None, "failed")
    return (yield from start_turn(key, name, turn, entry, now))


def interrupt_turn(key: int, name: SessionId, abandoned: QueuedTurn, now: float) -> Operation[bool]:
    """End the first open turn of a session, whose process died: as interrupted, or as done if its last event is stored.

    Its calls are closed, and a new epoch fences writes of its process, should it only have paused. The message of a
    queued turn is appended to the conversation. False: the turn is not the first, or its heartbeat has changed.
    """
    if (yield from lock_session(key)) is None or (yield ANY_AHEAD, (key, abandoned.turn)):
        return False
    rows = yield TURN, (key, abandoned.turn)
    if not (yield _INTERRUPT, (now, key, abandoned.turn, abandoned.heartbeat)):
        return False
    [[_, _, message]] = rows
    entry = decode_input(message) if message else None
    if entry and (yield from accepts_results(key, entry)):
        begun = yield from append_input(key, name, entry, now)
        yield _SET_FIRST_SEQ, (begun.epoch, begun.seq, key, abandoned.turn)
        epoch, revision = begun.epoch, begun.revision
    else:
        [[epoch, revision]] = yield NEW_EPOCH, (key,)
    yield from close_open_calls(key, name, revision, now, epoch - 1)
    return True


def abandon_turn(key: int, name: SessionId, owner: str, invocation_id: str, now: float) -> Operation[None]:
    """End a queued or running turn that its owner could not run; its message stays.

    Raise `TurnRunning` while another turn is ahead of it.
    """
    yield from lock_session(key)
    for turn, status, last_heartbeat in (yield _OPEN_TURNS_OF_OWNER, (key, owner, invocation_id)):
        if (yield from read_open_turns(key, turn)):
            raise TurnRunning(f"session {name.id!r} is busy with a turn before this one")
        yield from interrupt_turn(key, name, QueuedTurn(turn, status, owner, last_heartbeat), now)


def renew_lease(turn: Turn) -> Operation[Literal["alive", "cancelled", "lost"]]:
    """Renew the lease of a running turn; return whether it was cancelled, or lost to another process."""
    rows = yield _HEARTBEAT, (turn.session_key, turn.epoch)
    if not rows:
        return "lost"
    return "cancelled" if rows[0][0] else "alive"


def count_leases() -> Operation[LeaseCounts]:
    """Count the running turns by owner, and the queued ones."""
    held = yield _RUNNING_BY_OWNER, ()
    [[queued]] = yield _COUNT_QUEUED, ()
    return LeaseCounts({str(row[0]): int(row[1]) for row in held}, queued)
