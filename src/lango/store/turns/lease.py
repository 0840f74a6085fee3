"""Lease queued turns, keep leases by heartbeats, take over turns whose owner is gone, and list the replicas that do so.

A lease belongs to an owner: a runtime in a process, with one heartbeat for all that it holds. Each lease of a turn
raises the session's epoch, which fences the writes of every earlier owner. A replica runs turns of every session. It is
listed while it was seen within a few seconds of the database's clock; that only decides which replica takes a turn
first. Whether a lease may be taken over is decided by heartbeats (`lango.turns.liveness`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.errors import SessionNotFound
from lango.sessions import SessionId
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sessions import check_epoch, lock_session
from lango.store.turns.event_log import close_log
from lango.store.turns.queue import TURN, WITHDRAW, decode_input, read_open_turns, release_input
from lango.store.turns.steering import replace_turn
from lango.store.turns.submit import NEW_EPOCH, accepts_results, start_turn
from lango.store.turns.turns import OpenTurn, Turn, TurnFailure
from lango.store.webhooks.deliveries import report_end

RESULT_TOO_LATE = "the conversation continued before the turn of the client's result"
ResumeReason = Literal["crash", "handover", "failure"]
"""Why a turn continued: its process died, its process stopped and released it, or a provider or the store failed."""

_BEAT = """
INSERT INTO owners (owner, heartbeat) VALUES ($1, 1) ON CONFLICT (owner) DO UPDATE SET heartbeat = owners.heartbeat + 1
"""
_HELD = "SELECT session_key, turn, epoch, cancel_requested FROM turns WHERE owner = $1 AND status = 'running'"
_FORGET = """
DELETE FROM owners WHERE owner = $1 AND NOT EXISTS (
    SELECT 1 FROM turns WHERE owner = $1 AND status IN ('queued', 'running'))
"""
_ORPHANS = """
SELECT t.session_key, s.user_id, s.id, COALESCE(t.version, ''),
    t.turn, t.status, COALESCE(t.owner, ''), COALESCE(o.heartbeat, -1)
FROM turns t JOIN sessions s ON s.session_key = t.session_key LEFT JOIN owners o ON o.owner = t.owner
WHERE t.status IN ('queued', 'running') AND (t.owner IS NULL OR t.owner <> $1) AND s.app_name = $2
ORDER BY t.session_key, t.turn
"""
_STATE = """
SELECT status, owner, COALESCE(continued_epoch, first_epoch), attempts, resumptions, cancel_requested FROM turns
WHERE session_key = $1 AND turn = $2
"""
_CRASHED = """
SELECT t.session_key, t.turn, t.resumptions, j.name
FROM turns t LEFT JOIN tool_journal j ON j.session_key = t.session_key
    AND j.epoch = COALESCE(t.continued_epoch, t.first_epoch) AND j.status = 'started'
WHERE t.owner = $1 AND t.status = 'running' ORDER BY t.session_key, t.turn
"""
_IS_OPEN = "SELECT 1 FROM turns WHERE session_key = $1 AND turn = $2 AND status IN ('queued', 'running')"
_ADOPT = "UPDATE turns SET owner = $1 WHERE session_key = $2 AND turn = $3"
_TAKE_OVER = """
UPDATE turns SET owner = $1, epoch = $2, attempts = $3, resumptions = $4 WHERE session_key = $5 AND turn = $6
"""
_RELEASE = """
UPDATE turns SET owner = NULL WHERE session_key = $1 AND turn = $2 AND owner = $3 AND status IN ('queued', 'running')
"""
OPEN_TURNS_OF_OWNER = """
SELECT turn, status FROM turns
WHERE session_key = $1 AND owner = $2 AND invocation_id = $3 AND status IN ('queued', 'running')
"""
_REPLACES = "SELECT replaces FROM turns WHERE session_key = $1 AND turn = $2"
_COUNT_RUNNING = "SELECT COUNT(*) FROM turns WHERE status = 'running'"
# a queued turn is behind a running one: this join uses the index of running turns
_COUNT_QUEUED = """
SELECT COUNT(*) FROM turns r JOIN turns w ON w.session_key = r.session_key AND w.turn > r.turn AND w.status = 'queued'
WHERE r.status = 'running'
"""


class HeldLease(Struct, frozen=True):
    """The lease of a running turn, as the store has it."""

    session_key: int
    turn: int
    epoch: int
    cancel_requested: bool


class Orphan(Struct, frozen=True):
    """An open turn of another owner, which may be gone."""

    session_key: int
    user_id: str
    session_id: str
    version: str
    """The version of the app that ran it last; empty: none did."""
    open_turn: OpenTurn


class TakenOver(Struct, frozen=True):
    """A turn that was taken over: running, or queued and only adopted."""

    turn: Turn
    attempts: int = 0
    """How often it was run again, this time included."""
    cancel_requested: bool = False


class CrashedTurn(Struct, frozen=True):
    """A turn that ran in a process that died."""

    session_key: int
    turn: int
    suspicions: int
    """How often it was suspected before that it makes its process die."""
    steps: tuple[str, ...]
    """The names of the tools and nodes that had started and not finished."""


def beat(owner: str) -> Operation[list[HeldLease]]:
    """Send the heartbeat of an owner, and return the leases that it still holds."""
    yield _BEAT, (owner,)
    return [HeldLease(key, turn, epoch, bool(cancel)) for key, turn, epoch, cancel in (yield _HELD, (owner,))]


def forget_owner(owner: str) -> Operation[None]:
    """Delete the heartbeat of an owner that holds no open turn."""
    yield _FORGET, (owner,)


def read_orphans(app_name: str, owner: str) -> Operation[list[Orphan]]:
    """Read the open turns of an app that belong to other owners or to none, in order."""
    rows = yield _ORPHANS, (owner, app_name)
    return [Orphan(key, user_id, id_, version, OpenTurn(*turn)) for key, user_id, id_, version, *turn in rows]


def read_crashed_turns(owner: str) -> Operation[list[CrashedTurn]]:
    """Read the turns that an owner ran when it died."""
    found: dict[tuple[int, int], CrashedTurn] = {}
    for key, turn, resumptions, name in (yield _CRASHED, (owner,)):
        earlier = found.get((key, turn))
        steps = (*(earlier.steps if earlier else ()), *([name] if name else ()))
        found[key, turn] = CrashedTurn(key, turn, _suspicions(resumptions), steps)
    return list(found.values())


def any_open(turns: Iterable[CrashedTurn]) -> Operation[bool]:
    """Whether one of these turns has not ended yet."""
    for turn in turns:
        if (yield _IS_OPEN, (turn.session_key, turn.turn)):
            return True
    return False


def lease_turn(
    key: int, name: SessionId, turn: int, owner: str, now: float, version: str = ""
) -> Operation[Turn | list[OpenTurn]]:
    """Start a queued turn by this version of the app; if open turns are ahead of it, return these.

    Return a turn that is not queued as it is.
    """
    if (yield from lock_session(key)) is None:
        raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} does not exist, or was deleted")
    [[status, epoch, first_epoch, message, held_by]] = yield TURN, (key, turn)
    if status != "queued" or held_by != owner:
        held = epoch if status == "running" and held_by == owner else None
        return Turn(key, turn, held, status, first_epoch=first_epoch)
    queued_before = yield from read_open_turns(key, turn)
    if queued_before:
        return queued_before
    entry = decode_input(message)
    if not (yield from accepts_results(key, entry)):
        [[_, has_webhooks]] = yield WITHDRAW, (now, key, turn)
        yield from release_input(key, turn, entry)
        yield from close_log(key, turn, failure=TurnFailure("CallNotWaiting", RESULT_TOO_LATE))
        if has_webhooks:
            yield from report_end(key, turn, "failed")
        return Turn(key, turn, None, "failed")
    for [replaced] in (yield _REPLACES, (key, turn)):
        if replaced is not None:
            yield from replace_turn(key, name, replaced, entry, now)
    started = yield from start_turn(key, name, turn, entry, now, version)
    yield from release_input(key, turn, entry)
    return started


def take_over(
    key: int,
    abandoned: OpenTurn,
    owner: str,
    reason: ResumeReason,
    now: float,
    is_charged: bool | None = None,
) -> Operation[TakenOver | None]:
    """Take a turn over from an owner that is gone; return None if another owner took it over, or it ended.

    A running turn gets a new epoch. A queued one only changes its owner, and is leased when it is first. `is_charged`
    says of a turn that is suspected of having made its owner die (None: it is not) whether it must have: then it is
    charged an attempt, and one for each time that it was suspected before.
    """
    if (yield from lock_session(key)) is None:
        return None
    rows = yield _STATE, (key, abandoned.turn)
    for status, held_by, first_epoch, attempts, resumptions, cancel_requested in rows:
        if status not in ("queued", "running") or (held_by or "") != abandoned.owner:
            return None
        if status == "queued":
            yield _ADOPT, (owner, key, abandoned.turn)
            return TakenOver(Turn(key, abandoned.turn, None, "queued"))
        if is_charged:
            attempts = max(attempts, _suspicions(resumptions)) + 1
        [[epoch, _]] = yield NEW_EPOCH, (key,)
        history = _add_resumption(resumptions, reason, now, is_suspect=is_charged is not None)
        yield _TAKE_OVER, (owner, epoch, attempts, history, key, abandoned.turn)
        turn = Turn(key, abandoned.turn, epoch, first_epoch=first_epoch)
        return TakenOver(turn, attempts, bool(cancel_requested))
    return None


def count_attempt(turn: Turn, now: float) -> Operation[int]:
    """Count that its owner runs a turn again after a failure, and return how often it was run again so far."""
    key = turn.session_key
    yield from lock_session(key)
    yield from check_epoch(key, turn.epoch)
    [[_, owner, _, attempts, resumptions, _]] = yield _STATE, (key, turn.turn)
    history = _add_resumption(resumptions, "failure", now)
    yield _TAKE_OVER, (owner, turn.epoch, attempts + 1, history, key, turn.turn)
    return attempts + 1


def _add_resumption(resumptions: str | None, reason: ResumeReason, now: float, *, is_suspect: bool = False) -> str:
    earlier: list[dict[str, Any]] = loads(resumptions) if resumptions else []
    return dumps([*earlier, {"at": now, "reason": reason, **({"suspect": True} if is_suspect else {})}])


def _suspicions(resumptions: str | None) -> int:
    earlier: list[dict[str, Any]] = loads(resumptions) if resumptions else []
    return sum(bool(one.get("suspect")) for one in earlier)


def release_turn(key: int, turn: int, owner: str) -> Operation[None]:
    """Give up an open turn, so that another owner takes it over at once."""
    yield from lock_session(key)
    yield _RELEASE, (key, turn, owner)


def release_invocation(key: int, owner: str, invocation_id: str) -> Operation[None]:
    """Give up the open turn of an invocation, if it was stored."""
    yield from lock_session(key)
    for turn, _ in (yield OPEN_TURNS_OF_OWNER, (key, owner, invocation_id)):
        yield _RELEASE, (key, turn, owner)


def count_open_turns() -> Operation[tuple[int, int]]:
    """Count the running turns of the whole store, and the queued ones."""
    [[running]] = yield _COUNT_RUNNING, ()
    [[queued]] = yield _COUNT_QUEUED, ()
    return running, queued


# -- replicas ----------------------------------------------------------------------------------------------------------

SEEN_WITHIN_S = 6.0
_FORGET_AFTER_S = 60.0

_SEEN = """
INSERT INTO replicas (owner, app_name, version, started_at, seen_at)
SELECT $1, $2, $3, now, now FROM database_clock WHERE TRUE
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at
"""
_FORGET_OLD_REPLICAS = "DELETE FROM replicas WHERE seen_at < (SELECT now FROM database_clock) - $1"
_FORGET_REPLICA = "DELETE FROM replicas WHERE owner = $1"
_LIVE = """
SELECT owner, app_name, version, started_at,
    (SELECT COUNT(*) FROM turns t WHERE t.owner = r.owner AND t.status = 'running')
FROM replicas r WHERE seen_at > (SELECT now FROM database_clock) - $1 ORDER BY app_name, started_at, owner
"""


def mark_seen(owner: str, app_name: str, version: str) -> Operation[None]:
    """Store that a replica runs now, and forget those that were not seen for long."""
    yield _SEEN, (owner, app_name, version)
    yield _FORGET_OLD_REPLICAS, (_FORGET_AFTER_S,)


def forget_replica(owner: str) -> Operation[None]:
    """Delete a replica that stops."""
    yield _FORGET_REPLICA, (owner,)


def read_replicas() -> Operation[Sequence[Row]]:
    """Read the replicas of all apps that were seen lately: their owners, apps, versions, starts and running turns."""
    return (yield _LIVE, (SEEN_WITHIN_S,))
