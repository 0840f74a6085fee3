"""Keep events of other systems for a while, and answer the waits for them.

An event answers each open wait that it fits, in the transaction that stores it: the wait is due at once, and any
process continues its turn. A wait that opens is answered by an event that came shortly before. Both lock the row of the
event's name first, so that neither overlooks the other.
"""

import uuid
from typing import Any

from msgspec import Struct

from lango.errors import IdempotencyKeyReused
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation
from lango.waits.pauses import AwaitedEvent, event_result, matches

EVENTS_KEPT_S = 86_400.0
_LOCK_NAME = """
INSERT INTO event_names (app_name, name, changes) VALUES ($1, $2, 1)
ON CONFLICT (app_name, name) DO UPDATE SET changes = event_names.changes + 1
"""
_STORE = """
INSERT INTO sent_events (app_name, name, event_key, user_id, session_id, data, sent_at, expires_at)
SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), now,
    now + CAST($7 AS DOUBLE PRECISION)
FROM database_clock WHERE TRUE ON CONFLICT (app_name, name, event_key) DO NOTHING RETURNING sent_at
"""
_KNOWN = "SELECT data FROM sent_events WHERE app_name = $1 AND name = $2 AND event_key = $3"
_DELETE_EXPIRED = """
DELETE FROM sent_events WHERE app_name = $1 AND name = $2 AND expires_at <= (SELECT now FROM database_clock)
"""
_WAITING = """
SELECT w.session_key, w.id, w.data FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE w.app_name = $1 AND w.event_name = $2 AND w.closed IS NULL AND w.answered_at IS NULL AND w.answer IS NULL
    AND w.data IS NOT NULL AND (w.expires_at IS NULL OR w.expires_at > (SELECT now FROM database_clock))
    AND CAST($3 AS TEXT) IN ('', s.user_id) AND CAST($4 AS TEXT) IN ('', s.id)
"""
_RECENT = """
SELECT e.event_key, e.data, e.sent_at FROM sent_events e
WHERE e.app_name = $1 AND e.name = $2 AND e.sent_at >= (SELECT now FROM database_clock) - CAST($3 AS DOUBLE PRECISION)
    AND e.expires_at > (SELECT now FROM database_clock)
    AND e.user_id IN ('', $4) AND e.session_id IN ('', $5)
    AND NOT EXISTS (SELECT 1 FROM answered_events a
        WHERE a.session_key = $6 AND a.name = e.name AND a.event_key = e.event_key)
ORDER BY e.sent_at, e.event_key
"""
_SESSION = "SELECT app_name, user_id, id FROM sessions WHERE session_key = $1"
_ANSWER = """
UPDATE waits SET answer = $1, expires_at = (SELECT now FROM database_clock)
WHERE session_key = $2 AND id = $3 AND closed IS NULL
"""
_NOTE_ANSWERED = """
INSERT INTO answered_events (session_key, name, event_key) VALUES ($1, $2, $3)
ON CONFLICT (session_key, name, event_key) DO NOTHING
"""


class SentEvent(Struct, frozen=True):
    """An event that was stored."""

    name: str
    key: str
    """Its idempotency key, or the random one that it got."""
    answered: int
    """How many open waits it answered."""
    repeated: bool = False
    """An event with this key was stored before: this one changed nothing."""


def send_event(
    app_name: str, name: str, data: Any, key: str | None, user_id: str, session_id: str, keep_s: float
) -> Operation[SentEvent]:
    """Store an event, and answer the open waits that it fits.

    Empty: those of every user, of every session. Raise `IdempotencyKeyReused` for a key that came with other data.
    """
    yield _LOCK_NAME, (app_name, name)
    yield _DELETE_EXPIRED, (app_name, name)
    key, text = key or uuid.uuid4().hex, dumps(data)
    stored = yield _STORE, (app_name, name, key, user_id, session_id, text, keep_s)
    if not stored:
        for [known] in (yield _KNOWN, (app_name, name, key)):
            if loads(known) != loads(text):
                raise IdempotencyKeyReused(
                    f"the idempotency key {key!r} was already used for an event {name!r} with other data: use another"
                )
        return SentEvent(name, key, 0, repeated=True)
    [[sent_at]] = stored
    answer, answered = dumps(event_result(name, data, sent_at)), 0
    for session_key, wait_id, wait in (yield _WAITING, (app_name, name, user_id, session_id)):
        if matches(data, loads(wait)["value"].get("match") or {}):
            yield from _answer(session_key, wait_id, name, key, answer)
            answered += 1
    return SentEvent(name, key, answered)


def is_sent(app_name: str, name: str, key: str) -> Operation[bool]:
    """Whether an event with an idempotency key is kept."""
    return bool((yield _KNOWN, (app_name, name, key)))


def answer_from_sent_events(session_key: int, wait_id: str, awaited: AwaitedEvent) -> Operation[None]:
    """Answer a wait that opens with the first event that fits it and came within its window, if there is one."""
    for app_name, user_id, session_id in (yield _SESSION, (session_key,)):
        yield _LOCK_NAME, (app_name, awaited.event)
        place = app_name, awaited.event, awaited.window_s, user_id, session_id, session_key
        for key, text, sent_at in (yield _RECENT, place):
            if matches(data := loads(text), awaited.match):
                answer = dumps(event_result(awaited.event, data, sent_at))
                return (yield from _answer(session_key, wait_id, awaited.event, key, answer))
    return None


def _answer(session_key: int, wait_id: str, name: str, key: str, answer: str) -> Operation[None]:
    yield _ANSWER, (answer, session_key, wait_id)
    yield _NOTE_ANSWERED, (session_key, name, key)
