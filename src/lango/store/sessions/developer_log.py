"""Store what developers read of turns: the requests to models, and the failures of the user's own code.

Both are kept within a bound for each session and one for all. A request belongs to a step of its turn: the agent with
its branch and the number of the model call, such as `lango@#2`, after the ids of the tool calls that it runs inside of.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from lango.development.failures import Failure
from lango.errors import TraceNotFound
from lango.json_values import convert, storable_text
from lango.sessions import SessionId, SessionInfo
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import find_session, get_session, is_current_epoch

_COLUMNS = "step, provider, model, url, started_at, duration_s, status, error, id, turn, size"
_ADD = f"""
INSERT INTO model_requests (session_key, {_COLUMNS}, request, response)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""  # noqa: S608 - constants
_OLDEST = """
SELECT id FROM (
    SELECT id, SUM(size) OVER (ORDER BY id DESC) AS total FROM model_requests WHERE session_key = $1
) AS sizes WHERE total > $2
"""
_DELETE = "DELETE FROM model_requests WHERE session_key = $1 AND id <= $2"
_OLDEST_OF_ALL = """
SELECT id FROM (SELECT id, SUM(size) OVER (ORDER BY id DESC) AS total FROM model_requests) AS sizes
WHERE total > $1 ORDER BY id LIMIT $2
"""
_DELETE_OF_ALL = "DELETE FROM model_requests WHERE id <= $1"
_MOST_DELETED = 200
_OF_TURNS = f"""
SELECT {_COLUMNS} FROM model_requests WHERE session_key = $1 AND turn >= $2 AND turn <= $3 ORDER BY id
"""  # noqa: S608 - constants
_BEFORE = "SELECT id, step FROM model_requests WHERE session_key = $1 AND id < $2 ORDER BY id DESC LIMIT 100"
_ONE = f"SELECT {_COLUMNS}, request, response FROM model_requests WHERE session_key = $1 AND id = $2"  # noqa: S608


class ModelRequest(Struct, frozen=True):
    """One request to a model, and its response."""

    step: str
    provider: str
    model: str
    url: str
    """Empty: the model runs in the process of the turn."""
    started_at: float
    duration_s: float | None
    status: int | None
    """The HTTP status of the response."""
    error: str
    """Why the attempt failed; empty: it did not."""
    id: str = ""
    turn: int = 0
    size: int = 0
    """The bytes of request and response."""
    request: str = ""
    response: str = ""
    """JSON texts; empty if they were not read. The response has `answer`, merged, and `raw`, as it came."""

    def bodies(self) -> dict[str, Any]:
        """Decode the request, the response as it came, and the merged answer: None if nothing came."""
        response = loads(self.response)
        return {"request": loads(self.request), "response": response["raw"], "answer": response["answer"]}


def _new_id(at: float) -> str:
    """Return an id that sorts by time; two at once differ."""
    return f"{int(at * 1e6):014x}{secrets.token_hex(3)}"


def add_requests(turn: Turn, requests: Sequence[ModelRequest], max_bytes: int) -> Operation[int]:
    """Store requests of a turn that has its lease, and delete the oldest of the session beyond `max_bytes`.

    Return the size of what was stored.
    """
    key, added = turn.session_key, 0
    if not (yield from is_current_epoch(key, turn.epoch)):
        return 0
    for new in requests:
        texts = storable_text(new.request), storable_text(new.response)
        size = sum(len(text.encode()) for text in texts)
        about = new.step, new.provider, new.model, new.url, new.started_at, new.duration_s, new.status
        yield _ADD, (key, *about, storable_text(new.error), _new_id(new.started_at), turn.turn, size, *texts)
        added += size
    if beyond := (yield _OLDEST, (key, max_bytes)):
        yield _DELETE, (key, max(row[0] for row in beyond))
    return added


def delete_oldest(max_bytes: int) -> Operation[bool]:
    """Delete the oldest requests of all sessions beyond `max_bytes`, some at a time; return whether there are more."""
    rows = yield _OLDEST_OF_ALL, (max_bytes, _MOST_DELETED)
    if rows:
        yield _DELETE_OF_ALL, (rows[-1][0],)
    return len(rows) == _MOST_DELETED


def read_requests(session: SessionInfo, first_turn: int, last_turn: int) -> Operation[list[ModelRequest]]:
    """Read the requests of some turns, the oldest first, without their bodies."""
    rows = yield _OF_TURNS, (session.key, first_turn, last_turn)
    return [ModelRequest(*row) for row in rows]


def read_request(name: SessionId, request_id: str) -> Operation[tuple[ModelRequest, ModelRequest | None]]:
    """Read a request with its bodies, and the one that the same agent sent before it, or None if none is kept.

    Raise `TraceNotFound` if the session has no such request, or no longer has it.
    """
    session = yield from find_session(name)
    found = (yield from _read_one(session.key, request_id)) if session else None
    if session is None or found is None:
        raise TraceNotFound(f"session {name.id!r} has no request {request_id!r}: it was never kept, or is deleted")
    for id_, step in (yield _BEFORE, (session.key, found.id)):
        if step.rpartition("#")[0] == found.step.rpartition("#")[0]:
            return found, (yield from _read_one(session.key, id_))
    return found, None


def _read_one(key: int, request_id: str) -> Operation[ModelRequest | None]:
    rows = yield _ONE, (key, request_id)
    return ModelRequest(*rows[0]) if rows else None


# -- failures of the user's own code -----------------------------------------------------------------------------------

MAX_FAILURES_OF_SESSION = 50
MAX_FAILURES = 500

_ADD_FAILURE = "INSERT INTO failures (session_key, id, data) VALUES ($1, $2, $3)"
_BEYOND_IN_SESSION = "SELECT id FROM failures WHERE session_key = $1 ORDER BY id DESC LIMIT 1 OFFSET $2"
_DELETE_IN_SESSION = "DELETE FROM failures WHERE session_key = $1 AND id <= $2"
_BEYOND = "SELECT id FROM failures ORDER BY id DESC LIMIT 1 OFFSET $1"
_DELETE_FAILURES = "DELETE FROM failures WHERE id <= $1"
_OF_SESSION = "SELECT data FROM failures WHERE session_key = $1 ORDER BY id"


def add_failures(turn: Turn, failures: Sequence[Failure]) -> Operation[None]:
    """Store failures of a turn that has its lease, and delete the oldest beyond the bounds."""
    key = turn.session_key
    if not (yield from is_current_epoch(key, turn.epoch)):
        return
    for failure in failures:
        yield _ADD_FAILURE, (key, _new_id(failure.at), dumps(to_builtins(failure)))
    for [oldest] in (yield _BEYOND_IN_SESSION, (key, MAX_FAILURES_OF_SESSION)):
        yield _DELETE_IN_SESSION, (key, oldest)
    for [oldest] in (yield _BEYOND, (MAX_FAILURES,)):
        yield _DELETE_FAILURES, (oldest,)


def read_failures(name: SessionId) -> Operation[list[Failure]]:
    """Read the failures in a session, the oldest first. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    return [convert(loads(data), Failure) for [data] in (yield _OF_SESSION, (session.key,))]
