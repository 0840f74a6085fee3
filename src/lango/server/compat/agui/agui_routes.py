"""Serve AG-UI runs at `POST /agui`: a thread is a session, a run is a turn.

The last message starts the turn. Earlier messages are not read, except the user's own since the last answer that the
session does not hold yet. A new thread id creates a session of the caller; ids belong to each user, so they reveal
nothing about other users. Instruction and state are the agent's: a client's `context` and `state` are ignored, and
`STATE_SNAPSHOT` carries the state.
The last message may have files: media parts (`image`, `audio`, `video`, `document`) whose source is `data`, or a `url`
that begins with `data:`, and the `binary` parts of versions before 1.0. Other URLs and file ids are refused.
A client's `tools` are offered to the model in this run, beside the agent's own. A call of one ends the run without a
result; the next run carries the result as a tool message. If the next run carries a user's message instead, the call is
closed as unanswered.
A tool that needs approval ends the run with an interrupt; the next run answers it in `resume`, with the payload
`{"approved": true}`.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from lango.server.context import Context
from lango.server.errors import ApiError
from lango.server.schemas import COMMON_ERRORS, SESSION_ID, Responses, error_responses
from lango.server.security.auth import AuthenticatedRoute, CurrentCaller
from lango.server.streaming.sse import EventStreamResponse, FrameStreamResponse

router = APIRouter(tags=["agui"], route_class=AuthenticatedRoute)

_RESPONSES: Responses = {
    200: {
        "description": "AG-UI's events, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    400: COMMON_ERRORS[400],
    401: COMMON_ERRORS[401],
} | error_responses({501: "AG-UI's package is not installed here."})
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
async def run_agent(body: RunInput, caller: CurrentCaller, context: Context) -> FrameStreamResponse:
    """Run the agent on a thread."""
    try:
        from lango.server.compat.agui import agui_events, run_input
    except ImportError as error:
        message = 'AG-UI needs a package that is not installed here: pip install "lango-adk[agui]"'
        raise ApiError(501, "MissingDependency", message) from error
    fields = {"threadId": body.thread_id, "runId": body.run_id, "messages": body.messages, **(body.model_extra or {})}
    parsed = await asyncio.to_thread(run_input.parse_run_input, fields)
    turns = await run_input.submit_run(context, caller, parsed)
    frames = agui_events.RunEvents(context, caller, parsed, turns).frames()
    return FrameStreamResponse(frames, context.settings.server.write_timeout_s, agui_events.encode_error)
