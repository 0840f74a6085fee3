"""Show and change the state of a session, a user and the app."""

from typing import Annotated, Any

from fastapi import Query
from msgspec.structs import asdict, replace
from pydantic import ConfigDict

from lango.runtime.sessions.session_state import SessionState
from lango.server.context import CurrentUser
from lango.server.errors import bad_request
from lango.server.schemas import COMMON_ERRORS, CONFLICT, MAX_INTEGER, RequestBody, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_APP_STATE = error_responses({403: "Only the users in the setting `server.operators` may set `app:` state."})

AtMessage = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]


class StateReport(SessionState, frozen=True):
    """The state now or at a message, and the newest changes up to there, in order.

    `app` is empty for callers that are not in the setting `server.operators`. Of the user's state at a message, this is
    what the session had set by then; other sessions of the user change it, too.
    """

    may_set_app: bool = False


class NewState(RequestBody):
    """Values to set. `user:` names belong to all sessions of the user, `app:` names to all users."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delta": {"city": "Bern"}}]})

    delta: dict[str, Any]


@router.get("/{session_id}/state")
async def read_state(session_id: SessionIdPath, user: CurrentUser, at: AtMessage = None) -> StateReport:
    """Read the state now, or when message `at` was the newest, and what each event changed."""
    state = await user.sessions.state(session_id, user_id=user.id, at=at)
    if not user.is_operator:
        state = _without_app(state)
    return StateReport(**asdict(state), may_set_app=user.is_operator)


def _without_app(state: SessionState) -> SessionState:
    changes = [replace(one, values=[value for value in one.values if value.scope != "app"]) for one in state.changes]
    return replace(state, app={}, changes=[change for change in changes if change.values])


@router.patch("/{session_id}/state", responses=CONFLICT | _APP_STATE)
async def set_state(session_id: SessionIdPath, new: NewState, user: CurrentUser) -> StateReport:
    """Set values of the state, between two turns. `app:` values are for the users in the setting `server.operators`."""
    await user.get_session(session_id)
    if any(name.startswith("temp:") for name in new.delta):
        raise bad_request("temp: state exists only during a turn and is not stored")
    if any(name.startswith("app:") for name in new.delta):
        user.require_operator("set it", "app: state is shared by all users")
    if new.delta:
        await user.sessions.change_state(session_id, new.delta, user_id=user.id)
    return await read_state(session_id, user)
