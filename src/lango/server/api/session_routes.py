"""`/v1/sessions`: make, list, read, delete; send a message and follow its turn."""

import base64
import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query, Response

from lango.adk.services.message_parts import stored_attachments
from lango.server.compat.inline_files import file_response
from lango.server.context import Here
from lango.server.errors import Refused, no_session
from lango.server.json_body import large_response
from lango.server.schemas import (
    EXAMPLE_ID,
    SESSION_ID,
    STREAM_EXAMPLE,
    Answer,
    Cancelled,
    Error,
    Message,
    MessagePage,
    NewMessage,
    NewSession,
    Question,
    Questions,
    Session,
    SessionPage,
    SessionWithState,
)
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.sse import EventStream
from lango.store import SessionRecord

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": why}
    for status, why in {
        400: "The request is wrong; the message says how.",
        401: "A valid key is missing.",
        404: "There is no such session.",
        429: "The key's limit is reached; see Retry-After.",
        503: "Not now; see Retry-After.",
    }.items()
}
BUSY: dict[int | str, dict[str, Any]] = {409: {"model": Error, "description": "Somebody was faster."}}
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
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}
GONE: dict[int | str, dict[str, Any]] = {
    410: {
        "model": Error,
        "description": "The events after that id are not kept any more: read the messages, then go on without it.",
    }
}
_NOTHING: dict[int | str, dict[str, Any]] = {204: {"description": "Nothing comes after that event, and nothing runs."}}

router = APIRouter(prefix="/v1", tags=["sessions"], responses=ERRORS, route_class=AuthenticatedRoute)

Id = Annotated[str, Path(pattern=SESSION_ID, examples=[EXAMPLE_ID])]
CallId = Annotated[str, Path(max_length=512, examples=["call_1"])]
Limit = Annotated[int, Query(ge=1, le=200)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]
LastId = Annotated[str | None, Header(alias="Last-Event-ID")]


@router.post("/sessions", status_code=201, responses=BUSY, response_model=SessionWithState)
async def create_session(
    new: Annotated[NewSession, Body(default_factory=NewSession)], user: User, here: Here
) -> Response:
    """Make a session; without a body, an empty one of a random id."""
    return await session_response(await here.sessions.create(new.id, user_id=user.user_id, state=new.state), 201)


@router.get("/sessions")
async def list_sessions(
    user: User, here: Here, cursor: Annotated[str | None, Query(max_length=200)] = None, limit: Limit = 50
) -> SessionPage:
    """List the caller's sessions, the newest first."""
    after = _read_cursor(cursor) if cursor else None
    found = await here.store.sessions_page(here.runtime.app_name, user.user_id, after=after, limit=limit + 1)
    page = found[:limit]
    more = _cursor(page[-1].updated_at, page[-1].key) if len(found) > limit else None
    return SessionPage(sessions=[Session.of(record) for record in page], next_cursor=more)


@router.get("/sessions/{session_id}", response_model=SessionWithState)
async def read_session(session_id: Id, user: User, here: Here) -> Response:
    """Read a session and its state."""
    return await session_response(await here.sessions.read(session_id, user_id=user.user_id))


@router.delete("/sessions/{session_id}", status_code=204)
async def delete_session(session_id: Id, user: User, here: Here) -> None:
    """Stop what runs in a session, and delete it with everything that belongs to it."""
    session = await here.session(user, session_id)
    await here.runtime.cancel(session_id, user_id=user.user_id)
    if not await here.store.delete_session(session.name):
        raise no_session(session_id)
    here.turns.watching.happened(session)


@router.get("/sessions/{session_id}/messages", response_model=MessagePage)
async def read_messages(
    session_id: Id,
    user: User,
    here: Here,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Limit = 50,
) -> Response:
    """Read messages in order: the newest, or those before a sequence number."""
    session = await here.current(user, session_id)
    found = await here.store.messages_page(session, before=before, limit=limit + 1)
    page = found[-limit:]
    journal = await here.store.effects_of(session.key, page)

    def shown() -> dict[str, Any]:
        messages = [Message.of(stored, journal).model_dump(mode="json") for stored in page]
        return {"messages": messages, "before": page[0].seq if len(found) > limit else None}

    return await large_response(shown)


@router.get("/sessions/{session_id}/messages/{seq}/attachments/{index}", response_class=Response, responses=_FILE)
async def read_attachment(
    session_id: Id,
    seq: Annotated[int, Path(ge=1, le=2**62, examples=[1])],
    index: Annotated[int, Path(ge=0, le=1000, examples=[0])],
    user: User,
    here: Here,
) -> Response:
    """Read a file of a message: a picture to be shown, anything else to be saved."""
    stored = await here.store.message(await here.session(user, session_id), seq)
    files = stored_attachments(stored) if stored else []
    if index >= len(files):
        raise Refused(404, "AttachmentNotFound", f"message {seq} of session {session_id!r} has no such file")
    return file_response(files[index])


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


async def session_response(record: SessionRecord, status: int = 200) -> Response:
    """Show a session with its state, which may be large."""
    return await large_response(lambda: SessionWithState.of(record).model_dump(mode="json"), status)


def read_last_id(last_id: str | None) -> int | None:
    """Read the header Last-Event-ID; None: it was not sent."""
    if last_id is not None and not (last_id.isascii() and last_id.isdigit() and len(last_id) < 19):
        raise Refused(400, "BadRequest", "Last-Event-ID: send the id of the last event that was read")
    return int(last_id) if last_id else None


def _cursor(updated_at: float, key: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([updated_at, key]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[float, int]:
    try:
        updated_at, key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return float(updated_at), min(max(int(key), 0), 2**62)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(400, "BadRequest", "cursor: send the next_cursor of the page before") from error
