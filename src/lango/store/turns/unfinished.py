"""List the turns of all apps that have not ended: queued, running, or paused until a person or a tool answers."""

from typing import Literal

from msgspec import Struct

from lango.sessions import SessionId
from lango.store.engine.database import Operation
from lango.store.waits.waits import IS_OPEN

_OPEN = """
SELECT s.app_name, s.user_id, s.id, t.turn, t.status, t.created_at, t.owner, t.attempts
FROM turns t JOIN sessions s ON s.session_key = t.session_key
WHERE t.status IN ('queued', 'running')
"""
# a question of a running tool does not pause its turn
_PAUSED = f"""
SELECT w.app_name, w.user_id, s.id, w.turn, 'paused', MIN(w.opened_at), NULL, 0
FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.user_id IS NOT NULL AND w.epoch IS NULL AND {IS_OPEN}
GROUP BY w.app_name, w.user_id, s.id, w.turn
"""  # noqa: S608 - constants


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
