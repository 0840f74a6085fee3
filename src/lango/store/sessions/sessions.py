"""Create, find, list and lock sessions, and store what a user chose for one: a model and an instruction."""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from lango.errors import FencedWrite, SessionExists, SessionNotFound
from lango.sessions import APP_PREFIX, USER_PREFIX, SessionId, SessionInfo
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import without_temporary_state
from lango.store.codec.rows import garbage_collection_paused, origin_from_json, rewinds_from_json
from lango.store.engine.database import LockingRead, Operation, Row
from lango.store.sessions import lineage
from lango.store.sessions.state import apply_delta
from lango.store.sessions.titles import FIRST_WORDS_COLUMN, shorten_title, with_first_words, with_first_words_of_forks

_log = logging.getLogger("lango.store")
_INSERT = """
INSERT INTO sessions (session_key, app_name, user_id, id, created_at, updated_at)
SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS DOUBLE PRECISION),
    CAST($5 AS DOUBLE PRECISION)
WHERE NOT EXISTS (SELECT 1 FROM shared_sessions WHERE session_key = $1)
ON CONFLICT DO NOTHING RETURNING session_key
"""

_FIRST_STATE = """
INSERT INTO state_events (session_key, seq, revision, event_id, created_at, state_delta) VALUES ($1, 0, 0, '', $2, $3)
"""

SESSION_COLUMNS = (
    "s.session_key, s.app_name, s.user_id, s.id, s.revision, s.last_seq, s.user_seq, s.total_tokens, s.epoch, "
    "s.created_at, s.updated_at, s.rewinds, s.title, s.forked_from"
)
_COLUMNS_WITH_STATE = f"""
{SESSION_COLUMNS}, ss.state, us.state, ap.state FROM sessions s
LEFT JOIN session_states ss ON ss.session_key = s.session_key
LEFT JOIN user_states us ON us.app_name = s.app_name AND us.user_id = s.user_id
LEFT JOIN app_states ap ON ap.app_name = s.app_name
"""

_GET = f"SELECT {_COLUMNS_WITH_STATE} WHERE s.app_name = $1 AND s.user_id = $2 AND s.id = $3"
_NAME_BY_KEY = "SELECT app_name, user_id, id FROM sessions WHERE session_key = $1"
_LIST_EVERY = f"SELECT {_COLUMNS_WITH_STATE}"
_LIST = f"SELECT {_COLUMNS_WITH_STATE} WHERE s.app_name = $1"
_LIST_OF_USER = f"SELECT {_COLUMNS_WITH_STATE} WHERE s.app_name = $1 AND s.user_id = $2"
_LIST_OF_ID = f"SELECT {_COLUMNS_WITH_STATE} WHERE s.id = $1"
_USERS = "SELECT DISTINCT app_name, user_id FROM sessions"

_system_random = random.SystemRandom()

_PAGE = f"""
SELECT {SESSION_COLUMNS}, {FIRST_WORDS_COLUMN}
FROM sessions s WHERE app_name = $1 AND user_id = $2 AND (updated_at < $3 OR (updated_at = $3 AND session_key < $4))
ORDER BY updated_at DESC, session_key DESC LIMIT $5
"""  # noqa: S608 - constants
_NEWEST_FIRST = (float("inf"), 0)
_NEWEST_OF_APP = f"""
SELECT {SESSION_COLUMNS} FROM sessions s WHERE app_name = $1 ORDER BY updated_at DESC, session_key DESC LIMIT $2
"""  # noqa: S608 - constants
_ANY_OF_APP = "SELECT 1 FROM sessions WHERE app_name = $1 LIMIT 1"

# shared: tools of one turn may start at once, but not while another process takes the turn over
_LOCK_EPOCH = LockingRead("SELECT epoch FROM sessions WHERE session_key = $1", "SHARE")

_RUNNING = "SELECT turn FROM turns WHERE session_key = $1 AND status = 'running'"
_LOCK = LockingRead("SELECT revision, app_name, user_id, id FROM sessions WHERE session_key = $1", "UPDATE")

_EXISTS = "SELECT 1 FROM sessions WHERE app_name = $1 AND user_id = $2 AND id = $3"


class LockedSession(Struct, frozen=True):
    """A session whose row is locked by this transaction."""

    revision: int
    name: SessionId


def lock_session(key: int) -> Operation[LockedSession | None]:
    """Lock a session's row until the transaction ends; return None if the session was deleted."""
    for revision, *name in (yield _LOCK, (key,)):
        return LockedSession(revision, SessionId(*name))
    return None


def lock_named_session(name: SessionId) -> Operation[SessionInfo]:
    """Lock a session's row and read the session. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    if (yield from lock_session(session.key)) is None:  # it was deleted just now
        return (yield from lock_named_session(name))
    return (yield from get_session(name))  # again: the lock may have waited for a writer


def create_session(name: SessionId, state: Mapping[str, Any] | None, now: float) -> Operation[SessionInfo]:
    """Create a session with its first state. Raise `SessionExists` if there is one of that name."""
    name.check_new()
    key = yield from insert(name, now)
    kept = without_temporary_state(state or {})
    if kept:
        yield _FIRST_STATE, (key, now, dumps(kept))
        yield from apply_delta(key, name, kept)
    return (yield from get_session(name))


def insert(name: SessionId, now: float) -> Operation[int]:
    """Insert the row of a session and return its key. Raise `SessionExists` if the name is taken."""
    keys = new_session_keys()
    key = next(keys)
    while not (yield _INSERT, (key, *astuple(name), now)):
        if (yield from find_session(name)) is not None:
            raise SessionExists(
                f"a session {name.id!r} already exists for user {name.user_id!r} of app {name.app_name!r}"
            )
        key = next(keys)  # the key was taken, not the name
    return key


def find_session(name: SessionId) -> Operation[SessionInfo | None]:
    """Read a session and its state, without its messages."""
    if not name.is_storable:
        return None
    rows = yield _GET, astuple(name)
    if not rows:
        return None
    [session] = yield from with_lineage([_row_with_state(rows[0], {})])
    return session


def find_session_by_key(key: int) -> Operation[SessionInfo | None]:
    """Read a session by its key, of any user."""
    for name in (yield _NAME_BY_KEY, (key,)):
        return (yield from find_session(SessionId(*name)))
    return None


def get_session(name: SessionId) -> Operation[SessionInfo]:
    """Read a session and its state. Raise `SessionNotFound`."""
    session = yield from find_session(name)
    if session is None:
        raise SessionNotFound(f"there is no session {name.id!r}")
    return session


def list_sessions(app_name: str | None = None, user_id: str | None = None) -> Operation[list[SessionInfo]]:
    """Read all sessions, or those of an app, or those of one of its users, oldest update first."""
    if not SessionId(app_name or "", user_id or "", "").is_storable:
        return []
    if app_name is None:
        rows = yield _LIST_EVERY, ()
    else:
        rows = yield (_LIST, (app_name,)) if user_id is None else (_LIST_OF_USER, (app_name, user_id))
    parsed: dict[str, dict[str, Any]] = {}
    with garbage_collection_paused():
        found = decode_readable(rows, lambda row: _row_with_state(row, parsed))
    found = yield from with_lineage(found)
    # sorted here: the databases order text differently
    return sorted(found, key=lambda session: (session.updated_at, session.name.user_id, session.name.id))


def list_sessions_by_id(session_id: str) -> Operation[list[SessionInfo]]:
    """Read the sessions with an id, of all users and apps."""
    if not SessionId("", "", session_id).is_storable:
        return []
    rows = yield _LIST_OF_ID, (session_id,)
    return (yield from with_lineage(decode_readable(rows, lambda row: _row_with_state(row, {}))))


def list_users() -> Operation[list[tuple[str, str]]]:
    """Read the apps and users that have sessions."""
    rows = yield _USERS, ()
    return sorted((str(app_name), str(user_id)) for app_name, user_id in rows)


def with_lineage(sessions: list[SessionInfo]) -> Operation[list[SessionInfo]]:
    """Add their lineage to the forks among some sessions."""
    forks = [session.key for session in sessions if session.forked_from]
    if not forks:
        return sessions
    lineages = yield from lineage.read_lineages(forks)
    return [replace(session, lineage=lineages.get(session.key, ())) for session in sessions]


def decode_readable(rows: Iterable[Row], read: Callable[[Row], SessionInfo]) -> list[SessionInfo]:
    """Decode the rows of a list; a row that cannot be decoded is logged and left out."""
    found: list[SessionInfo] = []
    for row in rows:
        try:
            found.append(read(row))
        except Exception as error:  # noqa: BLE001 - the column may hold anything
            _log.warning("session %r cannot be read (%s): see `lango sessions check`", row[3], type(error).__name__)
    return found


def row_to_session(row: Sequence[Any], state: Mapping[str, Any] | None = None, first_words: str = "") -> SessionInfo:
    """Decode a row of `SESSION_COLUMNS`."""
    key, app_name, user_id, id_, *numbers, rewinds, title, forked_from = row
    return SessionInfo(
        key,
        SessionId(app_name, user_id, id_),
        *numbers,
        rewinds=rewinds_from_json(rewinds),
        state=state or {},
        title=title,
        first_words=first_words,
        forked_from=origin_from_json(forked_from),
    )


def _row_with_state(row: Row, parsed: dict[str, dict[str, Any]]) -> SessionInfo:
    *columns, own, of_user, of_app = row
    state: dict[str, Any] = loads(own) if own else {}
    if of_app:
        state.update((APP_PREFIX + name, value) for name, value in _parse_once(of_app, parsed).items())
    if of_user:
        state.update((USER_PREFIX + name, value) for name, value in _parse_once(of_user, parsed).items())
    return row_to_session(columns, state=state)


def _parse_once(text: str, parsed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Parse state that many sessions of a list share only once."""
    if text not in parsed:
        parsed[text] = loads(text)
    return parsed[text]


def new_session_keys() -> Iterator[int]:
    """Yield keys to try for a new session: random, so that replicas need no common counter.

    The first is short, because it is in every row and index of the session; if it is taken, long ones follow.
    """
    yield _system_random.getrandbits(31)
    while True:
        yield _system_random.getrandbits(62)


def list_session_page(
    app_name: str, user_id: str, *, after: tuple[float, int] | None = None, limit: int = 50
) -> Operation[Sequence[SessionInfo]]:
    """Read a page of a user's sessions without state, the newest first, after the (updated_at, key) of a session."""
    updated_at, key = after or _NEWEST_FIRST
    rows = yield _PAGE, (app_name, user_id, updated_at, key, limit)
    found = yield from with_lineage(
        decode_readable(rows, lambda row: row_to_session(row[:-1], first_words=shorten_title(row[-1])))
    )
    return (yield from with_first_words_of_forks(found))


def list_newest_sessions(app_name: str, limit: int) -> Operation[list[SessionInfo]]:
    """Read the newest sessions of an app, of all users, without state, the newest first."""
    rows = (yield _NEWEST_OF_APP, (app_name, limit)) if limit else []
    return (yield from with_lineage(decode_readable(rows, row_to_session)))


def get_titled_session(name: SessionId) -> Operation[SessionInfo]:
    """Return a session with its title or, without one, with its first words. Raise `SessionNotFound`."""
    return (yield from with_first_words((yield from get_session(name))))


def has_sessions(app_name: str) -> Operation[bool]:
    """Whether an app has sessions."""
    return bool((yield _ANY_OF_APP, (app_name,)))


def find_running_turn(key: int) -> Operation[int | None]:
    """Return the running turn of a session."""
    rows = yield _RUNNING, (key,)
    return rows[0][0] if rows else None


def check_epoch(key: int, epoch: int | None) -> Operation[None]:
    """Raise `FencedWrite` for a turn that lost its lease."""
    if not (yield from is_current_epoch(key, epoch)):
        raise FencedWrite("this turn was taken over by another process: it must no longer run tools")


def is_current_epoch(key: int, epoch: int | None) -> Operation[bool]:
    """Whether a turn still has its lease; if so, no other process takes it over before this transaction ends."""
    rows = yield _LOCK_EPOCH, (key,)
    return bool(rows) and rows[0][0] == epoch


def find_apps(apps: Iterable[str], user_id: str, session_id: str) -> Operation[list[str]]:
    """Return which of the apps have a session of a user with that id."""
    rows: dict[str, Any] = {}
    for app in apps:
        if SessionId(app, user_id, session_id).is_storable:
            rows[app] = yield _EXISTS, (app, user_id, session_id)
    return [app for app, found in rows.items() if found]


# -- options -----------------------------------------------------------------------------------------------------------

_READ_OPTIONS = "SELECT model, instruction FROM session_options WHERE session_key = $1"
_DELETE_OPTIONS = "DELETE FROM session_options WHERE session_key = $1"
_INSERT_OPTIONS = "INSERT INTO session_options (session_key, model, instruction) VALUES ($1, $2, $3)"
_COPY_OPTIONS = """
INSERT INTO session_options (session_key, model, instruction)
SELECT CAST($1 AS BIGINT), model, instruction FROM session_options WHERE session_key = $2
"""


class SessionOptions(Struct, frozen=True):
    """What a user chose for a session, or None for what is configured."""

    model: str | None = None
    instruction: str | None = None


def read_options(key: int) -> Operation[SessionOptions]:
    """Read the options of a session."""
    for model, instruction in (yield _READ_OPTIONS, (key,)):
        return SessionOptions(model, instruction)
    return SessionOptions()


def change_options(name: SessionId, changes: dict[str, str | None]) -> Operation[SessionOptions]:
    """Change some options of a session and return all of them. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    yield from lock_session(session.key)
    before = yield from read_options(session.key)
    model = changes.get("model", before.model)
    instruction = changes.get("instruction", before.instruction)
    yield _DELETE_OPTIONS, (session.key,)
    if model is not None or instruction is not None:
        yield _INSERT_OPTIONS, (session.key, model, instruction)
    return SessionOptions(model, instruction)


def copy_options(key: int, source_key: int) -> Operation[None]:
    """Give a fork the options of its source."""
    yield _COPY_OPTIONS, (key, source_key)
