"""Operations on sessions and on the state of sessions, users and apps."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lango.errors import SessionExists, Unstorable
from lango.store.codec.ids import shorten
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import SessionId, SessionRecord, origin_from_json, rewinds_from_json, without_temp
from lango.store.engine.database import Operation, Row, new_session_keys, no_collection
from lango.store.sessions import lineage

_log = logging.getLogger("lango.store")

USER_PREFIX = "user:"
APP_PREFIX = "app:"

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
_COLUMNS = f"""
{SESSION_COLUMNS}, ss.state, us.state, ap.state FROM sessions s
LEFT JOIN session_states ss ON ss.session_key = s.session_key
LEFT JOIN user_states us ON us.app_name = s.app_name AND us.user_id = s.user_id
LEFT JOIN app_states ap ON ap.app_name = s.app_name
"""

_GET = f"SELECT {_COLUMNS} WHERE s.app_name = $1 AND s.user_id = $2 AND s.id = $3"
_LIST_EVERY = f"SELECT {_COLUMNS}"
_LIST = f"SELECT {_COLUMNS} WHERE s.app_name = $1"
_LIST_OF_USER = f"SELECT {_COLUMNS} WHERE s.app_name = $1 AND s.user_id = $2"
_LIST_OF_ID = f"SELECT {_COLUMNS} WHERE s.id = $1"
_OWNERS = "SELECT DISTINCT app_name, user_id FROM sessions"

_SESSION_STATE = "SELECT state FROM session_states WHERE session_key = $1"
_SET_SESSION_STATE = """
INSERT INTO session_states (session_key, state) VALUES ($1, $2)
ON CONFLICT (session_key) DO UPDATE SET state = excluded.state
"""

# The upserts take the row's lock and read it in one step, so that no other writer can come between reading and setting.
LOCK_USER_STATE = """
INSERT INTO user_states (app_name, user_id, state) VALUES ($1, $2, '{}')
ON CONFLICT (app_name, user_id) DO UPDATE SET state = user_states.state RETURNING state
"""
_SET_USER_STATE = "UPDATE user_states SET state = $1 WHERE app_name = $2 AND user_id = $3"
_LOCK_APP_STATE = """
INSERT INTO app_states (app_name, state) VALUES ($1, '{}')
ON CONFLICT (app_name) DO UPDATE SET state = app_states.state RETURNING state
"""
_SET_APP_STATE = "UPDATE app_states SET state = $1 WHERE app_name = $2"
_USER_STATE = "SELECT state FROM user_states WHERE app_name = $1 AND user_id = $2"

_FIRST_OF_INVOCATION = "SELECT MIN(seq) FROM history WHERE session_key = $1 AND invocation_id = $2"
_DELTAS_UP_TO = """
SELECT state_delta, seq, 0, 0 FROM history WHERE session_key = $1 AND seq <= $2 AND state_delta IS NOT NULL
UNION ALL SELECT state_delta, seq, 1, revision FROM history_states WHERE session_key = $1 AND seq <= $2
ORDER BY 2, 3, 4
"""


def create(name: SessionId, state: Mapping[str, Any], now: float) -> Operation[SessionRecord]:
    """Make a session with its first state."""
    name.check_new()
    key = yield from insert(name, now)
    kept = without_temp(state)
    if kept:
        yield _FIRST_STATE, (key, now, dumps(kept))
        yield from apply_delta(key, name, kept)
    record = yield from get(name)
    assert record
    return record


def insert(name: SessionId, now: float) -> Operation[int]:
    """Make the row of a session and return its key. Raise `SessionExists` where the name is taken."""
    keys = new_session_keys()
    key = next(keys)
    while not (yield _INSERT, (key, name.app_name, name.user_id, name.id, now)):
        if (yield from get(name)) is not None:
            raise SessionExists(
                f"a session {name.id!r} already exists for user {name.user_id!r} of app {name.app_name!r}"
            )
        key = next(keys)  # not the name was taken, but the key
    return key


def get(name: SessionId) -> Operation[SessionRecord | None]:
    """Read a session and its state."""
    rows = yield _GET, (name.app_name, name.user_id, name.id)
    if not rows:
        return None
    record = _record(rows[0], {})
    if record.forked_from is None:
        return record
    return replace(record, pasts=(yield from lineage.of_session(record.key)))


def list_all(app_name: str | None, user_id: str | None) -> Operation[list[SessionRecord]]:
    """Read every session, or those of an app, or those of one of its users, oldest update first."""
    if app_name is None:
        rows = yield _LIST_EVERY, ()
    else:
        rows = yield (_LIST, (app_name,)) if user_id is None else (_LIST_OF_USER, (app_name, user_id))
    parsed: dict[str, dict[str, Any]] = {}
    with no_collection():
        records = readable_rows(rows, lambda row: _record(row, parsed))
    records = yield from with_pasts(records)
    # sorted here: the two databases do not agree on the order of texts
    return sorted(records, key=lambda record: (record.updated_at, record.name.user_id, record.name.id))


def of_id(session_id: str) -> Operation[list[SessionRecord]]:
    """Read the sessions of an id, whoever's they are: an id is unique for one user of one app."""
    try:
        SessionId("", "", session_id).check()
    except Unstorable:
        return []
    rows = yield _LIST_OF_ID, (session_id,)
    return (yield from with_pasts(readable_rows(rows, lambda row: _record(row, {}))))


def owners() -> Operation[list[tuple[str, str]]]:
    """Read which users of which apps have sessions."""
    rows = yield _OWNERS, ()
    return sorted((str(app_name), str(user_id)) for app_name, user_id in rows)


def with_pasts(records: list[SessionRecord]) -> Operation[list[SessionRecord]]:
    """Give the forks among some sessions their pasts."""
    forks = [record.key for record in records if record.forked_from]
    if not forks:
        return records
    found = yield from lineage.of_sessions(forks)
    return [replace(record, pasts=found.get(record.key, ())) for record in records]


def user_state(app_name: str, user_id: str) -> Operation[dict[str, Any]]:
    """Read the state of a user, without prefixes."""
    rows = yield _USER_STATE, (app_name, user_id)
    return loads(rows[0][0]) if rows else {}


def apply_delta(key: int, name: SessionId, delta: Mapping[str, Any]) -> Operation[None]:
    """Change session, user and app state. Always in this order, so that two writers cannot wait for each other."""
    own, of_user, of_app = split_scopes(delta)
    if own:
        rows = yield _SESSION_STATE, (key,)
        state: dict[str, Any] = loads(rows[0][0]) if rows else {}
        yield _SET_SESSION_STATE, (key, dumps(state | own))
    if of_user:
        [[text]] = yield LOCK_USER_STATE, (name.app_name, name.user_id)
        yield _SET_USER_STATE, (dumps(loads(text) | of_user), name.app_name, name.user_id)
    if of_app:
        [[text]] = yield _LOCK_APP_STATE, (name.app_name,)
        yield _SET_APP_STATE, (dumps(loads(text) | of_app), name.app_name)


def state_at(key: int, seq: int) -> Operation[dict[str, Any]]:
    """Return the session's own state as it was when message `seq` was the newest, by replaying what was journaled."""
    rows = yield _DELTAS_UP_TO, (key, seq)
    state: dict[str, Any] = {}
    for text, *_ in rows:
        state |= split_scopes(loads(text))[0]
    return state


def first_of_invocation(key: int, invocation_id: str) -> Operation[int | None]:
    """Return where an invocation begins."""
    [[first]] = yield _FIRST_OF_INVOCATION, (key, shorten(invocation_id))
    return first


def state_before(key: int, invocation_id: str) -> Operation[dict[str, Any]]:
    """Return the session's own state as it was before an invocation."""
    first = yield from first_of_invocation(key, invocation_id)
    return (yield from state_at(key, (first or 1) - 1))


def delta_back_to(own: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the delta that makes a session's own state what it was, as ADK's rewind works it out."""
    kept = {name: value for name, value in target.items() if value is not None}
    return {name: value for name, value in kept.items() if name not in own or own[name] != value} | {
        name: None for name in own if name not in kept
    }


def split_scopes(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Part a delta into what belongs to the session, to the user and to the app, without their prefixes."""
    own: dict[str, Any] = {}
    of_user: dict[str, Any] = {}
    of_app: dict[str, Any] = {}
    for name, value in delta.items():
        if name.startswith(APP_PREFIX):
            of_app[name.removeprefix(APP_PREFIX)] = value
        elif name.startswith(USER_PREFIX):
            of_user[name.removeprefix(USER_PREFIX)] = value
        else:
            own[name] = value
    return own, of_user, of_app


def readable_rows(rows: Iterable[Row], read: Callable[[Row], SessionRecord]) -> list[SessionRecord]:
    """Decode the rows of a list; one that cannot be decoded is left out and logged, and does not break the list."""
    records: list[SessionRecord] = []
    for row in rows:
        try:
            records.append(read(row))
        except Exception as error:  # noqa: BLE001 - whatever stands there
            _log.warning("session %r cannot be read (%s): see `lango sessions check`", row[3], type(error).__name__)
    return records


def from_session_row(
    row: Sequence[Any], state: Mapping[str, Any] | None = None, first_words: str = ""
) -> SessionRecord:
    """Decode a row of `SESSION_COLUMNS`."""
    key, app_name, user_id, id_, *counts, created_at, updated_at, rewinds, title, forked_from = row
    revision, last_seq, user_seq, total_tokens, epoch = counts
    return SessionRecord(
        key=key,
        name=SessionId(app_name, user_id, id_),
        revision=revision,
        last_seq=last_seq,
        user_seq=user_seq,
        total_tokens=total_tokens,
        epoch=epoch,
        created_at=created_at,
        updated_at=updated_at,
        rewinds=rewinds_from_json(rewinds),
        state=state or {},
        title=title,
        first_words=first_words,
        forked_from=origin_from_json(forked_from),
    )


def _record(row: Row, parsed: dict[str, dict[str, Any]]) -> SessionRecord:
    *columns, own, of_user, of_app = row
    state: dict[str, Any] = loads(own) if own else {}
    if of_app:
        state.update((APP_PREFIX + name, value) for name, value in _shared(of_app, parsed).items())
    if of_user:
        state.update((USER_PREFIX + name, value) for name, value in _shared(of_user, parsed).items())
    return from_session_row(columns, state=state)


def _shared(text: str, parsed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Parse what many sessions of a list have in common only once."""
    if text not in parsed:
        parsed[text] = loads(text)
    return parsed[text]
