"""Keep which replicas run, and with which version of their app: processes that take over turns of every session.

A replica is listed while it was seen within a few seconds of the database's clock. That only decides which replica
takes a turn first; whether a lease may be taken over is decided by heartbeats (`lango.turns.liveness`).
"""

from msgspec import Struct

from lango.store.engine.database import Operation

SEEN_WITHIN_S = 6.0
_FORGET_AFTER_S = 60.0

_SEEN = """
INSERT INTO replicas (owner, app_name, version, started_at, seen_at)
SELECT $1, $2, $3, now, now FROM database_clock WHERE TRUE
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at
"""
_FORGET_OLD = "DELETE FROM replicas WHERE seen_at < (SELECT now FROM database_clock) - $1"
_FORGET = "DELETE FROM replicas WHERE owner = $1"
_LIVE = """
SELECT owner, app_name, version, started_at,
    (SELECT COUNT(*) FROM turns t WHERE t.owner = r.owner AND t.status = 'running')
FROM replicas r WHERE seen_at > (SELECT now FROM database_clock) - $1 ORDER BY app_name, started_at, owner
"""


class Replica(Struct, frozen=True):
    """A process that runs turns of an app."""

    owner: str
    app: str
    version: str
    """The version of the app that it runs."""
    started_at: float
    running_turns: int


def mark_seen(owner: str, app_name: str, version: str) -> Operation[None]:
    """Store that a replica runs now, and forget those that were not seen for long."""
    yield _SEEN, (owner, app_name, version)
    yield _FORGET_OLD, (_FORGET_AFTER_S,)


def forget_replica(owner: str) -> Operation[None]:
    """Delete a replica that stops."""
    yield _FORGET, (owner,)


def read_replicas() -> Operation[list[Replica]]:
    """Read the replicas of all apps that were seen lately."""
    return [Replica(*row) for row in (yield _LIVE, (SEEN_WITHIN_S,))]
