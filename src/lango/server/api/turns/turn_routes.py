"""Send messages, cancel turns and stream their events."""

from typing import Annotated

from fastapi import Header, Query, Response
from pydantic import BaseModel

from lango.server.context import Context
from lango.server.errors import bad_request
from lango.server.openapi import EVENT_STREAM, STREAM_EXAMPLE
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    SESSION_ID,
    IdempotencyKey,
    NewMessage,
    Responses,
    SessionIdPath,
    error_responses,
)
from lango.server.security.auth import AuthenticatedRouter, CurrentCaller
from lango.server.streaming.live import live_events
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import SubmittedMessage, TurnRequest

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", json_schema_extra={"pattern": "^[0-9]{1,18}$"}),
]

_KEY_REUSED = error_responses({422: "The Idempotency-Key was used before, with another request: use another one."})
_EVENTS_GONE = error_responses(
    {410: "The events after that id are no longer kept: read the messages, then resume without it."}
)
STREAM_RESPONSES: Responses = {
    200: {
        "description": "Server-sent events: accepted, queued, text_delta, thought_delta, tool_start, tool_end, "
        "wait_opened, wait_closed, node, turn_error, done. The last is done, or an error that is fatal. "
        "Resume a lost stream at GET .../stream.",
        "content": {"text/event-stream": EVENT_STREAM | {"example": STREAM_EXAMPLE}},
    }
}
_NO_CONTENT: Responses = {204: {"description": "No event follows that id, and no turn runs."}}

_LIVE_RESPONSES: Responses = {
    200: {
        "description": "Server-sent events of the session's turns, one turn after the other, and `changed` with "
        '`{"what": "sessions"}`, `"inbox"`, `"waiting"` or `"rewound"`. It ends only with the server, '
        "or with the session.",
        "content": {"text/event-stream": EVENT_STREAM},
    }
}
router = AuthenticatedRouter("/v1", tags=["sessions"], responses=COMMON_ERRORS)


class CancelResult(BaseModel):
    """Whether a turn was running."""

    cancelled: bool


@router.post(
    "/sessions/{session_id}/messages",
    response_class=EventStreamResponse,
    responses=STREAM_RESPONSES | CONFLICT | _KEY_REUSED,
)
async def send_message(
    session_id: SessionIdPath, new: NewMessage, caller: CurrentCaller, context: Context, key: IdempotencyKey = None
) -> EventStreamResponse:
    """Send a message and follow its turn. The same Idempotency-Key with the same message gives the same turn."""
    await context.authenticator.check_token_quota(caller)
    files = await context.load_files(caller, session_id, new.files)
    turn = await context.turns.submit(caller, session_id, SubmittedMessage(new.text, files, request=TurnRequest(key)))
    return context.event_response(context.turns.follow(turn))


@router.get(
    "/sessions/{session_id}/stream",
    response_class=EventStreamResponse,
    responses=STREAM_RESPONSES | _NO_CONTENT | _EVENTS_GONE,
)
async def resume_stream(
    session_id: SessionIdPath, caller: CurrentCaller, context: Context, last_id: LastEventId = None
) -> Response:
    """Resume after Last-Event-ID until no turn runs; without it, stream the newest turn from its start.

    If the events after that id are no longer kept, the answer is 410: read the messages, then resume without it.
    """
    after_id = _parse_last_event_id(last_id)
    session = await context.get_session(caller, session_id)
    if not await context.turns.has_more(session, after_id):
        return Response(status_code=204)
    return context.event_response(context.turns.follow_session(session, after_id))


@router.post("/sessions/{session_id}/cancel")
async def cancel(session_id: SessionIdPath, caller: CurrentCaller, context: Context) -> CancelResult:
    """Cancel the running turn, or close what a waiting one waits for; what is stored stays."""
    await context.get_session(caller, session_id)
    return CancelResult(cancelled=await context.runtime.cancel(session_id, user_id=caller.user_id))


@router.get("/live", response_class=EventStreamResponse, responses=_LIVE_RESPONSES | _EVENTS_GONE)
async def follow_live(
    caller: CurrentCaller,
    context: Context,
    session: Annotated[str | None, Query(pattern=SESSION_ID)] = None,
    last_id: LastEventId = None,
) -> Response:
    """Follow a session after Last-Event-ID, or from its current turn on, and changes to the caller's sessions."""
    after_id = _parse_last_event_id(last_id)
    if session is not None:
        context = await context.agents.of_session(caller, session, preferred=context)
    record = None if session is None else await context.get_session(caller, session)
    if record is not None and after_id is not None:
        await context.turns.has_more(record, after_id)  # raises if the events after that id are gone
    return context.event_response(live_events(context.turns, caller.user_id, record, after_id))


def _parse_last_event_id(last_id: str | None) -> int | None:
    """Parse the header Last-Event-ID; None: it was not sent."""
    if last_id is None:
        return None
    if not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise bad_request("Last-Event-ID: send the id of the last event that was read")
    return int(last_id)
