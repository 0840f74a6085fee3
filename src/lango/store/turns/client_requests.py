"""Read back turns as the API of a client shows them: where a turn ends, what its client sent, and which are deleted."""

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from lango.errors import IdempotencyKeyReused
from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store.codec.records import CLIENT_HISTORY_KEY
from lango.store.engine.database import Operation
from lango.store.sessions.open_calls import is_closing_event
from lango.store.sessions.sessions import lock_session
from lango.store.sessions.window import read_message_page
from lango.store.turns.queue import read_queued_messages
from lango.store.turns.turns import BY_IDEMPOTENCY_KEY, StoredTurn, read_turn_messages, request_to_text, text_to_request

_PAGE = 100
_RECENT_TURNS = 200
_BY_KEY_PREFIX = f"""
SELECT recent.first_seq FROM (
    SELECT turn, first_seq, idempotency_key FROM turns WHERE session_key = $1 ORDER BY turn DESC LIMIT {_RECENT_TURNS}
) recent WHERE substr(recent.idempotency_key, 1, $2) = $3 ORDER BY recent.turn DESC LIMIT 1
"""  # noqa: S608 - constants
_BY_KEY = """
SELECT s.session_key, t.turn, t.digest FROM sessions s
JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = $1
WHERE s.app_name = $2 AND s.user_id = $3 ORDER BY CASE WHEN t.request IS NULL THEN 1 ELSE 0 END, s.session_key LIMIT 1
"""
"""Prefers the session of the request to imported copies, whose turns have no request."""
_BY_KEY_AND_NAME = """
SELECT s.session_key, t.turn, t.digest FROM sessions s
JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = $1
WHERE s.app_name = $2 AND s.user_id = $3 AND s.id = $4
"""
_LIST_BY_KEY = """
SELECT s.session_key, t.turn, t.idempotency_key, COALESCE(t.ended_at, t.started_at, t.created_at) AS changed_at
FROM sessions s JOIN turns t ON t.session_key = s.session_key AND substr(t.idempotency_key, 1, $1) = $2
    AND t.request IS NOT NULL
WHERE s.app_name = $3 AND s.user_id = $4 AND (s.id = $5 OR $5 = '')
ORDER BY changed_at DESC, t.idempotency_key
"""
_REQUESTS = "SELECT turn, request FROM turns WHERE session_key = $1"
_SET_REQUEST = "UPDATE turns SET request = $1 WHERE session_key = $2 AND turn = $3"


class KeyedTurn(Struct, frozen=True):
    """A turn whose request had an idempotency key."""

    session_key: int
    turn: int
    idempotency_key: str
    changed_at: float
    """When it ended, or else started, or else was stored."""


class StoredKey(Struct, frozen=True):
    """The turn of an idempotency key, and the digest of its request."""

    session_key: int
    turn: int
    digest: str | None

    def check(self, digest: str) -> None:
        """Raise `IdempotencyKeyReused` unless the key came with this request."""
        if self.digest not in (None, digest):
            raise IdempotencyKeyReused("the idempotency key was already used with another request: use another key")


def find_key_of_session(key: int, idempotency_key: str) -> Operation[StoredKey | None]:
    """Find the turn of an idempotency key that holds in a session."""
    rows = yield BY_IDEMPOTENCY_KEY, (key, idempotency_key)
    return StoredKey(key, rows[0][0], rows[0][3]) if rows else None


def find_key_of_name(name: SessionId, idempotency_key: str) -> Operation[StoredKey | None]:
    """Find the turn of an idempotency key in the session of a name, if there is such a session."""
    rows = yield _BY_KEY_AND_NAME, (idempotency_key, *astuple(name))
    return StoredKey(*rows[0]) if rows else None


def find_message_of_key(key: int, prefix: str) -> Operation[int | None]:
    """Return the message of the newest recent turn whose idempotency key begins with this, or None."""
    rows = yield _BY_KEY_PREFIX, (key, len(prefix), prefix)
    return rows[0][0] if rows else None


def find_key_of_user(app_name: str, user_id: str, idempotency_key: str) -> Operation[StoredKey | None]:
    """Find the turn of an idempotency key that holds in all sessions of a user."""
    rows = yield _BY_KEY, (idempotency_key, app_name, user_id)
    return StoredKey(*rows[0]) if rows else None


def list_by_key_prefix(app_name: str, user_id: str, prefix: str, session_id: str) -> Operation[list[KeyedTurn]]:
    """List the turns of a user, or of one session, whose idempotency keys begin with this, the newest first.

    Those of imports, which have no request, are left out.
    """
    rows = yield _LIST_BY_KEY, (len(prefix), prefix, app_name, user_id, session_id)
    return [KeyedTurn(*row) for row in rows]


def last_message_of_turn(key: int, turn: int, row: StoredTurn) -> Operation[int | None]:
    """Return the last message of a turn, before what the next turn's input brought, or None if it has not started."""
    found = yield from read_turn_messages(key, turn)
    own = [event.seq for event in found if not (is_closing_event(event) or is_from_client(event))]
    return max(own, default=row.first_seq)


def read_input_messages(session: SessionInfo, turn: int, row: StoredTurn) -> Operation[list[StoredEvent]]:
    """Read what the client sent for a turn: the message or results that started it, after the history before them."""
    if row.first_seq is None:
        queued = yield from read_queued_messages(session.key)
        return [entry.message for entry in queued if entry.turn == turn]
    found = yield from read_message_page(session, before=row.first_seq + 1, limit=_PAGE)
    while len(found) > 1 and is_from_client(found[0]):
        page = yield from read_message_page(session, before=found[0].seq, limit=_PAGE)
        if not page:
            break
        found = page + found
    for place in range(len(found) - 2, -1, -1):
        if not is_from_client(found[place]):
            return found[place + 1 :]
    return found


def is_from_client(stored: StoredEvent) -> bool:
    """Whether a message is part of a history that a client sent along."""
    metadata: dict[str, Any] = (stored.extra or {}).get("custom_metadata") or {}
    return bool(metadata.get(CLIENT_HISTORY_KEY))


def mark_request_deleted(key: int, turn: int) -> Operation[bool]:
    """Mark a turn as deleted for its client; return whether all turns of the session are."""
    yield from lock_session(key)
    everything = True
    for number, text in (yield _REQUESTS, (key,)):
        request = text_to_request(text)
        options = request.options
        if number == turn and options.client_request:
            options = replace(options, client_request={"deleted": True})
            yield _SET_REQUEST, (request_to_text(replace(request, options=options)), key, turn)
        everything = everything and bool((options.client_request or {}).get("deleted"))
    return everything
