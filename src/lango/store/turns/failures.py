"""Store what the user's own code raised in turns, for its developer: the newest, of each session and of all."""

import secrets
from collections.abc import Sequence

from msgspec import to_builtins

from lango.failures import Failure
from lango.json_values import convert
from lango.sessions import SessionId
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import get_session, is_current_epoch

MAX_OF_SESSION = 50
MAX_OF_ALL = 500

_ADD = "INSERT INTO failures (session_key, id, data) VALUES ($1, $2, $3)"
_BEYOND_IN_SESSION = "SELECT id FROM failures WHERE session_key = $1 ORDER BY id DESC LIMIT 1 OFFSET $2"
_DELETE_IN_SESSION = "DELETE FROM failures WHERE session_key = $1 AND id <= $2"
_BEYOND = "SELECT id FROM failures ORDER BY id DESC LIMIT 1 OFFSET $1"
_DELETE = "DELETE FROM failures WHERE id <= $1"
_OF_SESSION = "SELECT data FROM failures WHERE session_key = $1 ORDER BY id"


def add_failures(turn: Turn, failures: Sequence[Failure]) -> Operation[None]:
    """Store failures of a turn that has its lease, and delete the oldest beyond the bounds."""
    key = turn.session_key
    if not (yield from is_current_epoch(key, turn.epoch)):
        return
    for failure in failures:
        id_ = f"{int(failure.at * 1e6):014x}{secrets.token_hex(3)}"  # sorts by time; two at once differ
        yield _ADD, (key, id_, dumps(to_builtins(failure)))
    for [oldest] in (yield _BEYOND_IN_SESSION, (key, MAX_OF_SESSION)):
        yield _DELETE_IN_SESSION, (key, oldest)
    for [oldest] in (yield _BEYOND, (MAX_OF_ALL,)):
        yield _DELETE, (oldest,)


def read_failures(name: SessionId) -> Operation[list[Failure]]:
    """Read the failures in a session, the oldest first. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    return [convert(loads(data), Failure) for [data] in (yield _OF_SESSION, (session.key,))]
