"""Send messages, answer approval requests, cancel turns and stream their events."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from lango.server.api.parameters import BUSY, ERRORS, GONE, CallId, Id, LastId, read_last_id
from lango.server.context import Here
from lango.server.schemas import (
    SESSION_ID,
    STREAM_EXAMPLE,
    Answer,
    Cancelled,
    Error,
    Key,
    NewMessage,
    Question,
    Questions,
)
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.live import live_events
from lango.server.streaming.sse import EventStream

_REUSED: dict[int | str, dict[str, Any]] = {
    422: {"model": Error, "description": "The Idempotency-Key came before, with another message: use another one."}
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: accepted, queued, text_delta, thought_delta, tool_start, tool_end, "
        "approval, error, done. The last is done, or an error that is fatal. A lost stream goes on at GET .../stream.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": STREAM_EXAMPLE}},
    }
}
_NOTHING: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing comes after that event, and nothing runs."}}

_LIVE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events of the session's turns, one turn after the other, and `changed` with "
        '`{"what": "sessions"}`, `"waiting"`, `"rewound"` or `"messages"`. It ends only with the server, or with the '
        "session.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
router = APIRouter(prefix="/v1", tags=["sessions"], responses=ERRORS, route_class=AuthenticatedRoute)


@router.post("/sessions/{session_id}/messages", response_class=EventStream, responses=_STREAM | BUSY | _REUSED)
async def send_message(session_id: Id, new: NewMessage, user: User, here: Here, key: Key = None) -> EventStream:
    """Send a message and follow its turn. The same Idempotency-Key with the same message gives the same turn."""
    await here.may_write(user, session_id)
    turn = await here.turns.submit(user, session_id, new.text, key, new.files)
    return here.stream(here.turns.follow(turn))


@router.get("/sessions/{session_id}/stream", response_class=EventStream, responses=_STREAM | _NOTHING | GONE)
async def go_on(session_id: Id, user: User, here: Here, last_id: LastId = None) -> Response:
    """Go on after Last-Event-ID until nothing runs any more; without one, tell the newest turn whole.

    Where the events after that id are not kept any more, answer 410: read the messages, then go on without it.
    """
    after_id = read_last_id(last_id)
    session = await here.session(user, session_id)
    if not await here.turns.has_more(session, after_id):
        return Response(status_code=204)
    return here.stream(here.turns.follow_session(session, after_id))


@router.post("/sessions/{session_id}/cancel")
async def cancel(session_id: Id, user: User, here: Here) -> Cancelled:
    """Stop the running turn; what is stored stays."""
    await here.session(user, session_id)
    return Cancelled(cancelled=await here.runtime.cancel(session_id, user_id=user.user_id))


@router.get("/sessions/{session_id}/approvals")
async def read_approvals(session_id: Id, user: User, here: Here) -> Questions:
    """Read which tools wait for a yes or a no."""
    found = await here.store.open_questions(await here.current(user, session_id))
    return Questions(approvals=[Question.model_validate(one) for one in found])


@router.post("/sessions/{session_id}/approvals/{call_id}", response_class=EventStream, responses=_STREAM | BUSY)
async def approve(session_id: Id, call_id: CallId, answer: Answer, user: User, here: Here) -> EventStream:
    """Answer a tool that asked, and follow what comes of it. The answer holds for the arguments that were shown."""
    await here.door.check_tokens(user)
    await here.session(user, session_id)
    turn = await here.turns.approve(user, session_id, call_id, approved=answer.approved)
    return here.stream(here.turns.follow(turn))


@router.get("/live", response_class=EventStream, responses=_LIVE_RESPONSES | GONE)
async def live(
    user: User, here: Here, session: Annotated[str | None, Query(pattern=SESSION_ID)] = None, last_id: LastId = None
) -> Response:
    """Stay and be told what happens: in the session after Last-Event-ID, or from its current turn on; and around it."""
    after_id = read_last_id(last_id)
    record = None if session is None else await here.session(user, session)
    if record is not None and after_id is not None:
        await here.turns.has_more(record, after_id)  # raises where the events after that id are gone
    return here.stream(live_events(here.turns, user.user_id, record, after_id))
