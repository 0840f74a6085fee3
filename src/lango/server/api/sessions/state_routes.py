"""Show and change the state of a session, a user and the app."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict

from lango.json_values import to_client_json
from lango.runtime.sessions.session_state import Scope, SessionState, StateChange
from lango.server.context import CurrentUser
from lango.server.errors import bad_request
from lango.server.json_body import large_response
from lango.server.schemas import COMMON_ERRORS, CONFLICT, MAX_INTEGER, RequestBody, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import as_datetime

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_APP_STATE = error_responses({403: "Only the users in the setting `server.operators` may set `app:` state."})

AtMessage = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]


class ValueChangeView(BaseModel):
    """What an event did to one value; `before` is null if no event of this session had set it."""

    scope: Scope
    name: str
    before: Any
    after: Any


class StateChangeView(BaseModel):
    """What one event changed."""

    seq: int
    """The message; of an event that only changes state, the newest message before it."""
    is_message: bool
    created_at: datetime
    author: str
    values: list[ValueChangeView]

    @classmethod
    def from_change(cls, change: StateChange, *, with_app: bool) -> Self:
        """Convert a change, without the state of the app unless the caller may read it."""
        values = [
            ValueChangeView(
                scope=value.scope,
                name=to_client_json(value.name),
                before=to_client_json(value.before),
                after=to_client_json(value.after),
            )
            for value in change.values
            if with_app or value.scope != "app"
        ]
        return cls(
            seq=change.seq,
            is_message=change.is_message,
            created_at=as_datetime(change.created_at),
            author=change.author,
            values=values,
        )


class StateView(BaseModel):
    """The state now or at a message, and the newest changes up to there, in order."""

    at: int | None
    session: dict[str, Any]
    user: dict[str, Any]
    """At a message: what this session had set by then; other sessions of the user change it, too."""
    app: dict[str, Any]
    """Empty for callers that are not in the setting `server.operators`."""
    changes: list[StateChangeView]
    all_changes: int
    may_set_app: bool

    @classmethod
    def from_state(cls, state: SessionState, *, with_app: bool) -> Self:
        """Convert a state, without that of the app unless the caller may read it."""
        changes = [StateChangeView.from_change(change, with_app=with_app) for change in state.changes]
        return cls(
            at=state.at,
            session=to_client_json(state.session),
            user=to_client_json(state.user),
            app=to_client_json(state.app) if with_app else {},
            changes=[change for change in changes if change.values],
            all_changes=state.all_changes,
            may_set_app=with_app,
        )


class NewState(RequestBody):
    """Values to set. `user:` names belong to all sessions of the user, `app:` names to all users."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delta": {"city": "Bern"}}]})

    delta: dict[str, Any]


@router.get("/{session_id}/state", response_model=StateView)
async def read_state(session_id: SessionIdPath, user: CurrentUser, at: AtMessage = None) -> Response:
    """Read the state now, or when message `at` was the newest, and what each event changed."""
    state = await user.sessions.state(session_id, user_id=user.id, at=at)
    return await large_response(lambda: StateView.from_state(state, with_app=user.is_operator).model_dump(mode="json"))


@router.patch("/{session_id}/state", response_model=StateView, responses={**CONFLICT, **_APP_STATE})
async def set_state(session_id: SessionIdPath, new: NewState, user: CurrentUser) -> Response:
    """Set values of the state, between two turns. `app:` values are for the users in the setting `server.operators`."""
    await user.get_session(session_id)
    if any(name.startswith("temp:") for name in new.delta):
        raise bad_request("temp: state exists only during a turn and is not stored")
    if any(name.startswith("app:") for name in new.delta):
        user.require_operator("set it", "app: state is shared by all users")
    if new.delta:
        await user.sessions.change_state(session_id, new.delta, user_id=user.id)
    return await read_state(session_id, user)
