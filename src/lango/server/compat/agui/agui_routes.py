"""Serve AG-UI runs at `POST /agui`: a thread is a session, a run is a turn.

The last message starts the turn. Earlier messages are not read, except the user's own since the last answer that the
session does not hold yet. A new thread id creates a session of the caller; ids belong to each user, so they reveal
nothing about other users. The instruction is the agent's: a client's `context` is ignored.
The client's `state` is the session's. A run stores what differs, and keeps keys that the client does not send; null is
a value. `STATE_SNAPSHOT` carries the whole state at the start of the run, and `STATE_DELTA` what tools and agents
change. Keys with `user:` are the state of the user in all sessions; `app:` and `temp:` keys are refused, and not shown.
The last message may have files: media parts (`image`, `audio`, `video`, `document`) whose source is `data`, or a `url`
that begins with `data:`, and the `binary` parts of versions before 1.0. Other URLs and file ids are refused.
A client's `tools` are offered to the model in this run, beside the agent's own. A call of one ends the run without a
result; the next run carries the result as a tool message. If the next run carries a user's message instead, the call is
closed as unanswered.
A tool that needs approval ends the run with an interrupt; the next run answers it in `resume`, with the payload
`{"approved": true}`, and a `grant` or a `reason` as in `POST /v1/sessions/{id}/waits/{wait_id}`. A workflow that
needs input, a tool that needs a credential, and a long-running tool without a result end it in the same way: the
payload is then the value, or the result.
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
