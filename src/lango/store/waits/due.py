"""Read when something is due, and the waits for a time or an event that have ended; end each of them once."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.sessions import SessionId
from lango.store.codec.json_text import loads
from lango.store.codec.wait_rows import WAIT_COLUMNS, row_to_wait
from lango.store.engine.database import Operation
from lango.waits import EventWait
from lango.waits.pauses import timeout_result, timer_result

_MAX_WAITS = 100
_NEXT = """
SELECT
    (SELECT MIN(expires_at) FROM waits
    WHERE closed IS NULL AND answered_at IS NULL AND epoch IS NULL AND expires_at IS NOT NULL
        AND (kind NOT IN ('timer', 'event') OR app_name = $1)) - now,
    (SELECT MIN(check_at) FROM schedules WHERE app_name = $1 AND check_at IS NOT NULL) - now,
    (SELECT MIN(next_at) FROM webhook_deliveries WHERE next_at IS NOT NULL) - now
FROM database_clock
"""
_DUE = f"""
SELECT s.user_id, s.id, {WAIT_COLUMNS} FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.closed IS NULL AND w.answered_at IS NULL AND w.epoch IS NULL AND w.kind IN ('timer', 'event')
    AND w.data IS NOT NULL AND w.app_name = $1 AND w.expires_at <= (SELECT now FROM database_clock)
ORDER BY w.expires_at LIMIT {_MAX_WAITS}
"""  # noqa: S608 - constants
_END = """
UPDATE waits SET answered_at = (SELECT now FROM database_clock), answered_by = $1
WHERE session_key = $2 AND id = $3 AND seq = $4 AND closed IS NULL AND answered_at IS NULL
    AND kind IN ('timer', 'event')
RETURNING id
"""


class NextDue(Struct, frozen=True):
    """In how many seconds the next work of each kind is due, or None if there is none."""

    waits: float | None
    schedules: float | None
    deliveries: float | None


class EndedWait(Struct, frozen=True):
    """A wait for a time or an event that ends with the input of a turn."""

    wait_id: str
    seq: int
    """The message that opened it: the same call may wait again."""
    by: str = ""
    """The user who ended it; empty: its time, or an event."""


class DueWait(Struct, frozen=True):
    """A wait whose time has come, or that an event has answered."""

    name: SessionId
    wait_id: str
    seq: int
    call_id: str
    result: Mapping[str, Any]
    """The result of the call that waits."""


def read_next_due(app_name: str) -> Operation[NextDue]:
    """Read when a request expires, a timer or a schedule of an app is due, and a webhook is to be notified."""
    [row] = yield _NEXT, (app_name,)
    return NextDue(*row)


def read_due_waits(app_name: str) -> Operation[list[DueWait]]:
    """Read the waits of an app that are due, the oldest first; some of them, if there are many."""
    found: list[DueWait] = []
    for user_id, session_id, *row in (yield _DUE, (app_name,)):
        stored = row_to_wait(session_id, row)
        if isinstance(stored.wait, EventWait):
            result = loads(stored.answer) if stored.answer else timeout_result(stored.wait.event)
        else:
            result = timer_result("time")
        name = SessionId(app_name, user_id, session_id)
        found.append(DueWait(name, stored.wait.id, stored.seq, stored.call_id, result))
    return found


def end_timed_wait(key: int, name: SessionId, ended: EndedWait) -> Operation[None]:
    """Note that a wait for a time or an event has ended: once. Raise `WaitNotOpen` if it had ended before."""
    if not (yield _END, (ended.by or None, key, ended.wait_id, ended.seq)):
        raise WaitNotOpen(f"the wait {ended.wait_id!r} of session {name.id!r} is no longer open", "answered")
