"""Report the ends of turns to webhooks: a row for each in the transaction of the end, leased by one sender at a time.

A lease moves the time at which the row is due: if its sender dies, the row is due again when that time has come.
"""

import secrets
from collections.abc import Sequence

from msgspec import Struct

from lango.sessions import SessionId
from lango.store.engine.database import Operation

HAS_WEBHOOKS = "EXISTS (SELECT 1 FROM webhooks)"
"""Whether there are any: a part of the statements that end turns, so it costs no extra statement."""
_MATCHING = """
SELECT s.app_name, w.id FROM turns t JOIN sessions s ON s.session_key = t.session_key
JOIN webhooks w ON w.app_name = s.app_name AND w.session_key IN (0, t.session_key)
WHERE t.session_key = $1 AND t.turn = $2 AND (w.quota_id IS NULL OR w.quota_id = t.quota_id) AND w.events LIKE $3
"""
_INSERT = """
INSERT INTO webhook_deliveries (session_key, id, app_name, webhook_id, turn, event, created_at, next_at)
VALUES ($1, $2, $3, $4, $5, $6, (SELECT now FROM database_clock), (SELECT now FROM database_clock))
"""
_DUE = """
SELECT d.session_key, d.id, d.turn, d.event, d.attempts, (SELECT now FROM database_clock) - d.created_at,
    d.app_name, d.webhook_id, w.url, w.secret_env, w.secret, w.include_text, s.user_id, s.id, t.ended_at, t.extra,
    w.task_id
FROM webhook_deliveries d JOIN sessions s ON s.session_key = d.session_key
JOIN turns t ON t.session_key = d.session_key AND t.turn = d.turn
LEFT JOIN webhooks w ON w.app_name = d.app_name AND w.id = d.webhook_id
WHERE d.next_at <= (SELECT now FROM database_clock) ORDER BY d.next_at LIMIT $1
"""
_LEASE = """
UPDATE webhook_deliveries SET attempts = attempts + 1, next_at = (SELECT now FROM database_clock) + $1
WHERE session_key = $2 AND id = $3 AND attempts = $4 AND next_at <= (SELECT now FROM database_clock) RETURNING id
"""
_DELETE = "DELETE FROM webhook_deliveries WHERE session_key = $1 AND id = $2"
_POSTPONE = """
UPDATE webhook_deliveries SET next_at = (SELECT now FROM database_clock) + $1, problem = $2
WHERE session_key = $3 AND id = $4
"""
_WAITS = "SELECT id, kind FROM waits WHERE session_key = $1 AND turn = $2 ORDER BY seq, id"
_DEAD = """
SELECT d.id, d.webhook_id, w.url, s.user_id, s.id, d.turn, d.event, d.created_at, d.attempts, COALESCE(d.problem, '')
FROM webhook_deliveries d JOIN webhooks w ON w.app_name = d.app_name AND w.id = d.webhook_id
JOIN sessions s ON s.session_key = d.session_key
WHERE d.app_name = $1 AND d.next_at IS NULL AND ($2 = '' OR w.user_id = $2) ORDER BY d.created_at DESC, d.id LIMIT $3
"""
_RESEND = """
UPDATE webhook_deliveries SET next_at = (SELECT now FROM database_clock), created_at = (SELECT now FROM database_clock),
    attempts = 0
WHERE app_name = $1 AND id = $2 AND next_at IS NULL AND ($3 = '' OR EXISTS (SELECT 1 FROM webhooks w
    WHERE w.app_name = webhook_deliveries.app_name AND w.id = webhook_deliveries.webhook_id AND w.user_id = $3))
RETURNING id
"""


class DueDelivery(Struct, frozen=True):
    """A delivery that this process has leased, with what is sent."""

    session_key: int
    id: str
    turn: int
    event: str
    attempts: int
    """This one included."""
    age_s: float
    app_name: str
    webhook_id: str
    url: str | None
    """None: the webhook was deleted."""
    secret_env: str | None
    secret: str | None
    """Encrypted."""
    include_text: bool
    user_id: str
    session_id: str
    ended_at: float | None
    extra: str | None
    """How the turn ended, as its row keeps it."""
    task_id: str | None
    """The A2A task whose turns are reported, and no others."""

    @property
    def session(self) -> SessionId:
        """The name of the session."""
        return SessionId(self.app_name, self.user_id, self.session_id)


class DeadDelivery(Struct, frozen=True):
    """A delivery that was given up."""

    id: str
    webhook_id: str
    url: str
    user_id: str
    session_id: str
    turn: int
    event: str
    created_at: float
    attempts: int
    problem: str
    """Why the last attempt failed."""


def report_end(key: int, turn: int, event: str) -> Operation[bool]:
    """Store the reports of a turn that ended in this transaction, for its webhooks; return whether there are any."""
    rows = yield _MATCHING, (key, turn, f'%"{event}"%')
    for app_name, webhook_id in rows:
        yield _INSERT, (key, f"msg_{secrets.token_hex(16)}", app_name, webhook_id, turn, event)
    return bool(rows)


def report_to(app_name: str, webhook_id: str, key: int, turn: int, event: str) -> Operation[None]:
    """Store the report of a turn that ended before the webhook was added."""
    yield _INSERT, (key, f"msg_{secrets.token_hex(16)}", app_name, webhook_id, turn, event)


def lease_due(most: int, lease_s: float) -> Operation[list[DueDelivery]]:
    """Lease the deliveries that are due longest: no other process sends them before the lease ends."""
    leased: list[DueDelivery] = []
    for key, id_, turn, event, attempts, *rest in (yield _DUE, (most,)):
        if (yield _LEASE, (lease_s, key, id_, attempts)):
            leased.append(DueDelivery(key, id_, turn, event, attempts + 1, *rest))
    return leased


def finish_delivery(key: int, id_: str) -> Operation[None]:
    """Delete a delivery that was received."""
    yield _DELETE, (key, id_)


def postpone_delivery(key: int, id_: str, delay_s: float | None, problem: str) -> Operation[None]:
    """Let a delivery be due again after some seconds, or give it up without a delay."""
    yield _POSTPONE, (delay_s, problem, key, id_)


def read_turn_waits(key: int, turn: int) -> Operation[Sequence[tuple[str, str]]]:
    """Read the ids and kinds of the waits that a turn opened."""
    return [(id_, kind) for id_, kind in (yield _WAITS, (key, turn))]


def list_dead(app_name: str, user_id: str = "", limit: int = 100) -> Operation[list[DeadDelivery]]:
    """Read the deliveries that were given up, or only those of a user's webhooks, the newest first."""
    return [DeadDelivery(*row) for row in (yield _DEAD, (app_name, user_id, limit))]


def resend(app_name: str, id_: str, user_id: str = "") -> Operation[bool]:
    """Let a delivery that was given up be sent again; return False if there is none."""
    return bool((yield _RESEND, (app_name, id_, user_id)))
