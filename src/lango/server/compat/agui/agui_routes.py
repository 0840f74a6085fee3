"""Serve AG-UI runs at `POST /agui`: a thread is a session, a run is a turn.

A new thread id creates a session of the caller; ids belong to each user, so they reveal nothing about other users. What
a turn waits for ends the run with an interrupt, which the next run answers in `resume`. docs/howto/serve.md describes
state, files, client tools and edits.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from lango.server.context import CurrentUser
from lango.server.errors import ApiError
from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import COMMON_ERRORS, CONFLICT, SESSION_ID, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.sse import EventStreamResponse
from lango.threads import run_in_thread

router = AuthenticatedRouter(tags=["agui"])

_RESPONSES: Responses = {
    200: {
        "description": "AG-UI's events, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": EVENT_STREAM},
    },
    **COMMON_ERRORS,
    **CONFLICT,
} | error_responses({413: "A file of the message is refused.", 501: "AG-UI's package is not installed here."})
_EXAMPLE: dict[str, Any] = {
    "threadId": "agui",
    "runId": "r1",
    "messages": [{"id": "m1", "role": "user", "content": "Hello!"}],
}


class RunInput(BaseModel):
    """AG-UI's RunAgentInput; the other fields are validated by AG-UI's own type."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_EXAMPLE]})

    thread_id: Annotated[str, Field(alias="threadId", pattern=SESSION_ID)]
    run_id: Annotated[str, Field(alias="runId")]
    messages: list[dict[str, Any]]


@router.post("/agui", response_class=EventStreamResponse, responses=_RESPONSES)
async def run_agent(body: RunInput, user: CurrentUser) -> EventStreamResponse:
    """Run the agent on a thread."""
    try:
        from lango.server.compat.agui import agui_events, run_input
    except ImportError as error:
        message = 'AG-UI needs a package that is not installed here: pip install "lango-adk[agui]"'
        raise ApiError(501, "MissingDependency", message) from error
    fields = {"threadId": body.thread_id, "runId": body.run_id, "messages": body.messages, **(body.model_extra or {})}
    parsed = await run_in_thread(run_input.parse_run_input, fields)
    turns, state_delta = await run_input.submit_run(user, parsed)
    frames = agui_events.RunEvents(user, parsed, turns, state_delta).frames()
    return EventStreamResponse(frames, user.settings.server.write_timeout_s, agui_events.encode_error)
