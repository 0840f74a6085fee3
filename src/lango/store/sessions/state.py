"""Read and change the state of sessions, users and apps."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.sessions import APP_PREFIX, USER_PREFIX, SessionId
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation

_SESSION_STATE = "SELECT state FROM session_states WHERE session_key = $1"
_SET_SESSION_STATE = """
INSERT INTO session_states (session_key, state) VALUES ($1, $2)
ON CONFLICT (session_key) DO UPDATE SET state = excluded.state
"""

# The upserts lock the row and read it in one step, so that no other writer comes between reading and setting.
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

_FIRST_OF_INVOCATION = "SELECT MIN(seq) FROM messages_with_lineage WHERE session_key = $1 AND invocation_id = $2"
_DELTAS_UP_TO = """
SELECT state_delta, seq, 0, 0 FROM messages_with_lineage
WHERE session_key = $1 AND seq <= $2 AND state_delta IS NOT NULL
UNION ALL SELECT state_delta, seq, 1, revision FROM state_events_with_lineage WHERE session_key = $1 AND seq <= $3
ORDER BY 2, 3, 4
"""

_STATE_EVENTS_UP_TO = """
SELECT seq, 0, 0, created_at, author, state_delta, NULL FROM messages_with_lineage
WHERE session_key = $1 AND seq <= $2 AND state_delta IS NOT NULL
UNION ALL
SELECT seq, 1, revision, created_at, '', state_delta, extra FROM state_events_with_lineage
WHERE session_key = $1 AND seq <= $2
ORDER BY 1, 2, 3
"""


class StateEvent(Struct, frozen=True):
    """What one event changed in the state."""

    seq: int
    is_message: bool
    """Otherwise it only changes state, after message `seq`."""
    created_at: float
    author: str
    delta: Mapping[str, Any]


def read_user_state(app_name: str, user_id: str) -> Operation[dict[str, Any]]:
    """Read the state of a user, without prefixes."""
    if not SessionId(app_name, user_id, "").is_storable:
        return {}
    rows = yield _USER_STATE, (app_name, user_id)
    return loads(rows[0][0]) if rows else {}


def apply_delta(key: int, name: SessionId, delta: Mapping[str, Any]) -> Operation[None]:
    """Change session, user and app state, always in this order, so that two writers cannot deadlock."""
    session_delta, user_delta, app_delta = split_scopes(delta)
    if session_delta:
        state = yield from read_session_state(key)
        yield from set_session_state(key, state | session_delta)
    if user_delta:
        [[text]] = yield LOCK_USER_STATE, (name.app_name, name.user_id)
        yield _SET_USER_STATE, (dumps(loads(text) | user_delta), name.app_name, name.user_id)
    if app_delta:
        [[text]] = yield _LOCK_APP_STATE, (name.app_name,)
        yield _SET_APP_STATE, (dumps(loads(text) | app_delta), name.app_name)


def read_session_state(key: int) -> Operation[dict[str, Any]]:
    """Read a session's own state."""
    rows = yield _SESSION_STATE, (key,)
    return loads(rows[0][0]) if rows else {}


def set_session_state(key: int, state: Mapping[str, Any]) -> Operation[None]:
    """Set a session's own state."""
    yield _SET_SESSION_STATE, (key, dumps(state))


def read_state_at(key: int, seq: int, *, before_state_events: bool = False) -> Operation[dict[str, Any]]:
    """Compute the session's own state as it was when message `seq` was the newest.

    With `before_state_events`, leave out the events after that message that only changed state.
    """
    rows = yield _DELTAS_UP_TO, (key, seq, seq - 1 if before_state_events else seq)
    state: dict[str, Any] = {}
    for text, *_ in rows:
        state |= split_scopes(loads(text))[0]
    return state


def read_state_events(key: int, seq: int) -> Operation[list[StateEvent]]:
    """Read what each event up to message `seq` changed in the state, in order."""
    rows = yield _STATE_EVENTS_UP_TO, (key, seq)
    found: list[StateEvent] = []
    for of_seq, kind, _, created_at, author, delta, extra in rows:
        known = author or (loads(extra).get("author") if extra else "") or ""
        found.append(StateEvent(of_seq, not kind, created_at, known, loads(delta)))
    return found


def first_seq_of_invocation(key: int, invocation_id: str) -> Operation[int | None]:
    """Return the first message of an invocation."""
    [[first]] = yield _FIRST_OF_INVOCATION, (key, invocation_id)
    return first


def read_state_before(key: int, invocation_id: str) -> Operation[dict[str, Any]]:
    """Compute the session's own state as it was before an invocation."""
    first = yield from first_seq_of_invocation(key, invocation_id)
    return (yield from read_state_at(key, (first or 1) - 1))


def delta_to_restore(own: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the delta that restores a session's own state, as ADK's rewind does."""
    kept = {name: value for name, value in target.items() if value is not None}
    return {name: value for name, value in kept.items() if name not in own or own[name] != value} | {
        name: None for name in own if name not in kept
    }


def split_scopes(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split a delta into those of the session, the user and the app, without prefixes."""
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
