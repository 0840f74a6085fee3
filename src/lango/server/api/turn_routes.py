"""Send messages, answer approval requests, cancel turns and stream their events."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from lango.server.context import Context
from lango.server.errors import ApiError
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    SESSION_ID,
    STREAM_EXAMPLE,
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalRequests,
    CancelResult,
    IdempotencyKey,
    NewMessage,
    Responses,
    SessionIdPath,
    error_responses,
)
from lango.server.security.auth import AuthenticatedRoute, CurrentCaller
from lango.server.streaming.live import live_events
from lango.server.streaming.sse import EventStreamResponse
from lango.store.turns.approvals import read_approval_requests

CallIdPath = Annotated[str, Path(max_length=512, examples=["call_1"])]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]

_KEY_REUSED = error_responses({422: "The Idempotency-Key was used before, with another message: use another one."})
_EVENTS_GONE = error_responses(
    {410: "The events after that id are no longer kept: read the messages, then resume without it."}
)
_STREAM_RESPONSES: Responses = {
    200: {
        "description": "Server-sent events: accepted, queued, text_delta, thought_delta, tool_start, tool_end, "
        "approval, error, done. The last is done, or an error that is fatal. Resume a lost stream at GET .../stream.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}},
    }
}
_NO_CONTENT: Responses = {204: {"description": "No event follows that id, and no turn runs."}}

_LIVE_RESPONSES: Responses = {
    200: {
        "description": "Server-sent events of the session's turns, one turn after the other, and `changed` with "
        '`{"what": "sessions"}`, `"waiting"`, `"rewound"` or `"messages"`. It ends only with the server, or with the '
        "session.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
router = APIRouter(prefix="/v1", tags=["sessions"], responses=COMMON_ERRORS, route_class=AuthenticatedRoute)


@router.post(
    "/sessions/{session_id}/messages",
    response_class=EventStreamResponse,
    responses=_STREAM_RESPONSES | CONFLICT | _KEY_REUSED,
)
async def send_message(
    session_id: SessionIdPath, new: NewMessage, caller: CurrentCaller, context: Context, key: IdempotencyKey = None
) -> EventStreamResponse:
    """Send a message and follow its turn. The same Idempotency-Key with the same message gives the same turn."""
    await context.check_may_write(caller, session_id)
    turn = await context.turns.submit(caller, session_id, new.text, key, new.files)
    return context.event_response(context.turns.follow(turn))


@router.get(
    "/sessions/{session_id}/stream",
    response_class=EventStreamResponse,
    responses=_STREAM_RESPONSES | _NO_CONTENT | _EVENTS_GONE,
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
    """Cancel the running turn; what is stored stays."""
    await context.get_session(caller, session_id)
    return CancelResult(cancelled=await context.runtime.cancel(session_id, user_id=caller.user_id))


@router.get("/sessions/{session_id}/approvals")
async def list_approval_requests(
    session_id: SessionIdPath, caller: CurrentCaller, context: Context
) -> ApprovalRequests:
    """Read the open approval requests."""
    requests = await context.store.read(
        read_approval_requests, await context.get_session_without_expired_approvals(caller, session_id)
    )
    return ApprovalRequests(approvals=[ApprovalRequest.model_validate(request) for request in requests])


@router.post(
    "/sessions/{session_id}/approvals/{call_id}",
    response_class=EventStreamResponse,
    responses=_STREAM_RESPONSES | CONFLICT,
)
async def answer_approval(
    session_id: SessionIdPath, call_id: CallIdPath, answer: ApprovalAnswer, caller: CurrentCaller, context: Context
) -> EventStreamResponse:
    """Answer an approval request, and follow the turn. The answer applies to the arguments that were shown."""
    await context.authenticator.check_token_quota(caller)
    await context.get_session(caller, session_id)
    turn = await context.turns.submit_approval(caller, session_id, call_id, approved=answer.approved)
    return context.event_response(context.turns.follow(turn))


@router.get("/live", response_class=EventStreamResponse, responses=_LIVE_RESPONSES | _EVENTS_GONE)
async def follow_live(
    caller: CurrentCaller,
    context: Context,
    session: Annotated[str | None, Query(pattern=SESSION_ID)] = None,
    last_id: LastEventId = None,
) -> Response:
    """Follow a session after Last-Event-ID, or from its current turn on, and changes to the caller's sessions."""
    after_id = _parse_last_event_id(last_id)
    record = None if session is None else await context.get_session(caller, session)
    if record is not None and after_id is not None:
        await context.turns.has_more(record, after_id)  # raises if the events after that id are gone
    return context.event_response(live_events(context.turns, caller.user_id, record, after_id))


def _parse_last_event_id(last_id: str | None) -> int | None:
    """Parse the header Last-Event-ID; None: it was not sent."""
    if last_id is not None and not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise ApiError(400, "BadRequest", "Last-Event-ID: send the id of the last event that was read")
    return int(last_id) if last_id else None
