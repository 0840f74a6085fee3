"""Send messages, cancel turns and stream their events."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from lango.server.context import CurrentUser
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
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.live import live_events
from lango.server.streaming.sse import EventStreamResponse

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
        "description": "Server-sent events: accepted, queued, text_delta, thought_delta, text_end, tool_start, "
        "tool_end, wait_opened, wait_closed, node, steered, turn_error, done. The last is done, or a fatal error. "
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
    """Whether a turn was open."""

    cancelled: bool


class AcceptedTurn(BaseModel):
    """A turn that runs in the background."""

    session_id: str
    turn: int
    address: str
    """Where to poll it; `/stream` below it follows it, and `/cancel` stops it."""


_ACCEPTED: Responses = {202: {"description": "With `Prefer: respond-async`: the turn.", "model": AcceptedTurn}}
Prefer = Annotated[str | None, Header(max_length=200)]


class Retried(BaseModel):
    """The turn that is run again."""

    turn: int


@router.post(
    "/sessions/{session_id}/messages",
    response_class=EventStreamResponse,
    responses=STREAM_RESPONSES | _ACCEPTED | CONFLICT | _KEY_REUSED,
)
async def send_message(
    session_id: SessionIdPath, new: NewMessage, user: CurrentUser, key: IdempotencyKey = None, prefer: Prefer = None
) -> Response:
    """Send a message and follow its turn. The same Idempotency-Key with the same message gives the same turn.

    With `Prefer: respond-async`, the answer is 202 with the address of the turn, which runs in the background.
    """
    turn = await user.send(session_id, new, key)
    if prefer is not None and "respond-async" in prefer.lower():
        address = f"/v1/sessions/{quote(session_id, safe='')}/turns/{turn.turn}"
        body = AcceptedTurn(session_id=session_id, turn=turn.turn, address=address)
        return JSONResponse(body.model_dump(), 202, {"Location": address, "Preference-Applied": "respond-async"})
    return user.context.event_response(user.turns.follow(turn))


@router.get(
    "/sessions/{session_id}/stream",
    response_class=EventStreamResponse,
    responses=STREAM_RESPONSES | _NO_CONTENT | _EVENTS_GONE,
)
async def resume_stream(session_id: SessionIdPath, user: CurrentUser, last_id: LastEventId = None) -> Response:
    """Resume after Last-Event-ID until no turn runs; without it, stream the newest turn from its start.

    If the events after that id are no longer kept, the answer is 410: read the messages, then resume without it.
    """
    after_id = parse_last_event_id(last_id)
    session = await user.get_session(session_id)
    if not await user.turns.has_more(session, after_id):
        return Response(status_code=204)
    return user.context.event_response(user.turns.follow_session(session, after_id))


@router.post("/sessions/{session_id}/cancel")
async def cancel(session_id: SessionIdPath, user: CurrentUser) -> CancelResult:
    """Cancel the running turn, or close what a waiting one waits for; what is stored stays."""
    await user.get_session(session_id)
    return CancelResult(cancelled=await user.runtime.cancel(session_id, user_id=user.id))


@router.post("/sessions/{session_id}/turns/{turn}/retry", status_code=202, responses=CONFLICT)
async def retry(
    session_id: SessionIdPath, turn: Annotated[int, Path(ge=1, le=2**40, examples=[2])], user: CurrentUser
) -> Retried:
    """Run a turn again that failed for good, from what is stored; follow it with `/stream`."""
    await user.check_token_quota()
    await user.get_session(session_id)
    await user.runtime.turns.retry(session_id, turn, user_id=user.id)
    return Retried(turn=turn)


@router.get("/live", response_class=EventStreamResponse, responses=_LIVE_RESPONSES | _EVENTS_GONE)
async def follow_live(
    user: CurrentUser, session: Annotated[str | None, Query(pattern=SESSION_ID)] = None, last_id: LastEventId = None
) -> Response:
    """Follow a session after Last-Event-ID, or from its current turn on, and changes to the caller's sessions."""
    after_id = parse_last_event_id(last_id)
    if session is not None:
        user = await user.of_session(session)
    record = None if session is None else await user.get_session(session)
    if record is not None and after_id is not None:
        # raises if the events after that id are gone
        await user.turns.has_more(record, after_id)
    _, *others = user.runtimes(all_agents=True)
    watched = [runtime.sessions.changes for runtime in others]
    return user.context.event_response(live_events(user.turns, user.id, record, after_id, watched))


def parse_last_event_id(last_id: str | None) -> int | None:
    """Parse the header Last-Event-ID, or return None if it was not sent."""
    if last_id is None:
        return None
    if not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise bad_request("Last-Event-ID: send the id of the last event that was read")
    return int(last_id)
