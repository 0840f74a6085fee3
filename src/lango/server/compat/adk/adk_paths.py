"""Share the paths, bodies and users of ADK's REST API between its routes."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from lango.server.context import AgentUser, Context, ServerContext
from lango.server.errors import not_found
from lango.server.schemas import SESSION_ID
from lango.server.security.auth import Caller, CurrentCaller
from lango.sessions import WhenBusy

IdPath = Annotated[str, Path(pattern=SESSION_ID)]

SESSIONS_PATH = "/apps/{app}/users/{user_id}/sessions"
SESSION_PATH = SESSIONS_PATH + "/{session_id}"


class AdkRequestBody(BaseModel):
    """A request body with camelCase or snake_case names, as ADK accepts it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def check_app(context: ServerContext, app: str) -> None:
    """Raise `ApiError` for an app that is not that of the context."""
    if app != context.runtime.app_name:
        raise not_found(f"there is no app {app!r}")


def check_may_set_state(user: AgentUser, state: Mapping[str, Any] | None) -> None:
    """Raise `ApiError` if a state has `app:` keys and the user may not set what every user shares."""
    if any(name.startswith("app:") for name in state or ()):
        user.require_operator("set it", "app: state is shared by all users")


def named_user(
    context: ServerContext, caller: Caller, app: str, user_id: str, when_busy: WhenBusy | None = None
) -> AgentUser:
    """Return the user whom a request names; raise `ApiError` unless that is the caller, or there are no keys."""
    check_app(context, app)
    if context.authenticator.is_single_user:
        return AgentUser(context, Caller(user_id), when_busy=when_busy)
    if user_id != caller.user_id:
        raise not_found(f"there is no user {user_id!r}")
    return AgentUser(context, caller, when_busy=when_busy)


async def path_user(app: str, user_id: IdPath, caller: CurrentCaller, context: Context) -> AgentUser:
    """Return the user whom the path names."""
    return named_user(context, caller, app, user_id)


PathUser = Annotated[AgentUser, Depends(path_user)]
