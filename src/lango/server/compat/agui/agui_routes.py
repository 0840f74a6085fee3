"""AG-UI at `POST /agui`: the thread is the session, a run is a turn.

The last message is the turn; those before it are in the session already and are not read, but for the user's own since
the last answer that the session does not hold yet. A thread that is not there
yet begins one of the caller's own: ids are each user's own, so nobody learns of anybody else's. Instruction and state
are the agent's: a client's `context` and `state` are read past, and `STATE_SNAPSHOT` tells the state.
The last message may bring files: media parts (`image`, `audio`, `video`, `document`) whose source is `data`, or a `url`
that begins with `data:`, and the `binary` parts of before 1.0. Nothing is fetched: other addresses and ids are refused.
A client's `tools` are offered to the model in this run, beside the agent's own. A call of one is told and ends the run
without a result; the next run brings it as a tool message. What a run brings no result for when it goes on with a
user's message is closed as unanswered.
A tool that needs approval ends the run with an interrupt; the next run answers it in `resume`, with the payload
`{"approved": true}`.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from lango.server.context import Context
from lango.server.errors import ApiError
from lango.server.schemas import SESSION_ID, ErrorBody
from lango.server.security.auth import CurrentCaller
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.sse import EventStreamResponse, FrameStreamResponse

router = APIRouter(tags=["agui"], route_class=AuthenticatedRoute)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "AG-UI's events, from RUN_STARTED to RUN_FINISHED or RUN_ERROR.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    400: {"model": ErrorBody, "description": "The request is wrong; the message says how."},
    401: {"model": ErrorBody, "description": "A valid key is missing."},
    501: {"model": ErrorBody, "description": "AG-UI's package is not installed here."},
}
_EXAMPLE: dict[str, Any] = {
    "threadId": "agui",
    "runId": "r1",
    "messages": [{"id": "m1", "role": "user", "content": "Hello!"}],
}


class RunInput(BaseModel):
    """AG-UI's RunAgentInput; its own type checks what is not shown here."""

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
    asked = await asyncio.to_thread(run_input.parse_run_input, fields)
    turns = await run_input.submit_run(context, caller, asked)
    frames = agui_events.RunEvents(context, caller, asked, turns).frames()
    return FrameStreamResponse(frames, context.settings.server.write_timeout_s, agui_events.encode_error)
