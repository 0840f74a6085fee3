"""Store what a user chose for the turns of a session: a model and an instruction."""

from msgspec import Struct

from lango.sessions import SessionId
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import get_session, lock_session

_READ = "SELECT model, instruction FROM session_options WHERE session_key = $1"
_DELETE = "DELETE FROM session_options WHERE session_key = $1"
_INSERT = "INSERT INTO session_options (session_key, model, instruction) VALUES ($1, $2, $3)"
_COPY = """
INSERT INTO session_options (session_key, model, instruction)
SELECT CAST($1 AS BIGINT), model, instruction FROM session_options WHERE session_key = $2
"""


class SessionOptions(Struct, frozen=True):
    """What a user chose for a session, or None for what is configured."""

    model: str | None = None
    instruction: str | None = None


def read_options(key: int) -> Operation[SessionOptions]:
    """Read the options of a session."""
    for model, instruction in (yield _READ, (key,)):
        return SessionOptions(model, instruction)
    return SessionOptions()


def change_options(name: SessionId, changes: dict[str, str | None]) -> Operation[SessionOptions]:
    """Change some options of a session and return all of them. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    yield from lock_session(session.key)
    before = yield from read_options(session.key)
    model = changes.get("model", before.model)
    instruction = changes.get("instruction", before.instruction)
    yield _DELETE, (session.key,)
    if model is not None or instruction is not None:
        yield _INSERT, (session.key, model, instruction)
    return SessionOptions(model, instruction)


def copy_options(key: int, source_key: int) -> Operation[None]:
    """Give a fork the options of its source."""
    yield _COPY, (key, source_key)
