"""Operations on turns: one runs per session at a time, and its epoch fences what it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lango.errors import SessionNotFound, TurnRunning
from lango.store.database import Operation
from lango.store.jsontext import dumps

Outcome = Literal["done", "failed", "cancelled", "interrupted"]

_CLAIM_EPOCH = "UPDATE sessions SET epoch = epoch + 1 WHERE session_key = $1 RETURNING epoch"
_NEXT_TURN = "SELECT COALESCE(MAX(turn), 0) + 1 FROM turns WHERE session_key = $1"
_RUNNING = "SELECT turn, lease_until FROM turns WHERE session_key = $1 AND status = 'running'"
_START = """
INSERT INTO turns (session_key, turn, status, epoch, idempotency_key, owner, lease_until, created_at, started_at)
VALUES ($1, $2, 'running', $3, $4, $5, $6, $7, $7)
"""
_END = """
UPDATE turns SET status = $1, ended_at = $2, extra = $3 WHERE session_key = $4 AND epoch = $5 AND status = 'running'
RETURNING turn
"""
_RENEW = """
UPDATE turns SET lease_until = $1 WHERE session_key = $2 AND epoch = $3 AND status = 'running' RETURNING turn
"""
_INTERRUPT = "UPDATE turns SET status = 'interrupted', ended_at = $1 WHERE session_key = $2 AND turn = $3"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that runs: `epoch` goes with everything it writes."""

    session_key: int
    turn: int
    epoch: int


def start(key: int, owner: str, now: float, lease_s: float, idempotency_key: str | None = None) -> Operation[Turn]:
    """Claim the session for a turn. A running one whose lease has run out is marked as interrupted and fenced off."""
    rows = yield _CLAIM_EPOCH, (key,)
    if not rows:
        raise SessionNotFound("the session is not there (any more)")
    [[epoch]] = rows
    running = yield _RUNNING, (key,)
    for turn, lease_until in running:
        if lease_until > now:
            raise TurnRunning(f"turn {turn} of this session is still running")
        yield _INTERRUPT, (now, key, turn)
    [[turn]] = yield _NEXT_TURN, (key,)
    yield _START, (key, turn, epoch, idempotency_key, owner, now + lease_s, now)
    return Turn(key, turn, epoch)


def renew(turn: Turn, now: float, lease_s: float) -> Operation[bool]:
    """Hold the claim for longer; False: it is lost."""
    rows = yield _RENEW, (now + lease_s, turn.session_key, turn.epoch)
    return bool(rows)


def end(turn: Turn, outcome: Outcome, now: float, extra: Mapping[str, Any] | None = None) -> Operation[bool]:
    """Give the claim back; False: it was lost before."""
    rows = yield _END, (outcome, now, dumps(extra) if extra else None, turn.session_key, turn.epoch)
    return bool(rows)
