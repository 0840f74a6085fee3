"""Run a turn on from one of its steps with something changed, as a fork."""

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from lango.model_options import AgentOptions
from lango.runtime.playground import Changes
from lango.server.api.sessions.session_routes import session_response
from lango.server.context import CurrentUser
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    MAX_INTEGER,
    SESSION_ID,
    WHOLE_NUMBER,
    RequestBody,
    SessionIdPath,
    SessionWithState,
    error_responses,
)
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import MAX_TITLE

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_REFUSED = error_responses({403: "Only the users in the setting `server.operators` may do it."}) | CONFLICT


class AgentChange(BaseModel):
    """What an agent gets instead of its own in the turn; empty: its own."""

    model_config = ConfigDict(extra="forbid")

    system: Annotated[str, Field(max_length=200_000)] = ""
    """The whole system text of its requests."""
    model: Annotated[str, Field(max_length=200)] = ""
    """As `provider/name`."""


class RunOn(RequestBody):
    """The step from which a turn runs on, and what is changed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "Hello?"}]})

    turn: Annotated[int, Field(ge=1, le=MAX_INTEGER), WHOLE_NUMBER] | None = None
    """The turn that is run again; null sends `message` after all others."""
    before: Annotated[int, Field(ge=1, le=MAX_INTEGER), WHOLE_NUMBER] | None = None
    """The message of the turn that its next step makes again; null: all after its first."""
    message: Annotated[str, Field(min_length=1)] | None = None
    """Another message for the whole turn."""
    agents: Annotated[dict[str, AgentChange], Field(default_factory=dict, max_length=50)]
    """By the names of the agents."""
    results: Annotated[dict[str, dict[str, Any]], Field(default_factory=dict, max_length=100)]
    """Other results of tool calls, by their ids; message `before` has the results that they replace."""
    state: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Other values in the state of the conversation."""
    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """The id of the fork; a random one by default."""
    title: Annotated[str, Field(max_length=MAX_TITLE)] | None = None


@router.post("/{session_id}/run-on", status_code=201, responses=_REFUSED, response_model=SessionWithState)
async def run_on(session_id: SessionIdPath, wanted: RunOn, user: CurrentUser) -> Response:
    """Fork a session inside a turn, and run the turn on with another prompt, model, result or state; for operators.

    The steps before are not done again, and the original stays. Follow the turn with `/stream` of the fork.
    """
    user.require_operator("do it", "it may use any model and prompt")
    await user.check_token_quota()
    agents = {name: AgentOptions(one.system, one.model) for name, one in wanted.agents.items()}
    changes = Changes(wanted.message, agents, wanted.results, wanted.state)
    fork, running = await user.runtime.playground.run_on(
        session_id,
        wanted.turn,
        changes,
        before=wanted.before,
        user_id=user.id,
        quota_id=user.caller.quota.id,
        tokens_per_day=user.caller.quota.tokens_per_day,
        new_id=wanted.id,
        title=wanted.title,
    )
    running.is_detached = True
    return await session_response(fork, 201)
