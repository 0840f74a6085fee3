"""List the turns of all apps that have not ended: queued, running, or paused until a person or a tool answers."""

from typing import Literal

from msgspec import Struct

from lango.sessions import SessionId
from lango.store.engine.database import Operation

_OPEN = """
SELECT s.app_name, s.user_id, s.id, t.turn, t.status, t.created_at, t.owner, t.attempts
FROM turns t JOIN sessions s ON s.session_key = t.session_key
WHERE t.status IN ('queued', 'running')
"""
_PAUSED = """
SELECT o.app_name, o.user_id, s.id, o.turn, 'paused', MIN(o.asked_at), NULL, 0
FROM open_calls o JOIN sessions s ON s.session_key = o.session_key
WHERE o.user_id IS NOT NULL AND o.answered_at IS NULL AND o.seq > s.user_seq
    AND (o.expires_at IS NULL OR o.expires_at > (SELECT now FROM database_clock))
GROUP BY o.app_name, o.user_id, s.id, o.turn
UNION ALL
SELECT l.app_name, l.user_id, s.id, l.turn, 'paused', MIN(l.created_at), NULL, 0
FROM long_running_calls l JOIN sessions s ON s.session_key = l.session_key
WHERE l.user_id IS NOT NULL AND l.settled = 0
GROUP BY l.app_name, l.user_id, s.id, l.turn
"""


class UnfinishedTurn(Struct, frozen=True):
    """A turn that has not ended."""

    session: SessionId
    turn: int | None
    """None: a turn of the session that this one was forked from."""
    status: Literal["queued", "running", "paused"]
    since: float
    """When its input was stored; of a paused one, when it asked."""
    owner: str = ""
    """The process that runs it; empty: it was released, or is paused."""
    attempts: int = 0
    """How often it was run again after a crash or a failure."""


def list_unfinished() -> Operation[list[UnfinishedTurn]]:
    """Return the unfinished turns of all apps, the oldest first."""
    rows = [*(yield _OPEN, ()), *(yield _PAUSED, ())]
    found = [
        UnfinishedTurn(SessionId(app, user, id_), turn, status, since, owner or "", attempts)
        for app, user, id_, turn, status, since, owner, attempts in rows
    ]
    return sorted(found, key=lambda one: one.since)
