"""Read stored and queued messages and their files, and withdraw queued ones."""

from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from lango.adk.services.message_parts import stored_attachments
from lango.messages import Attachment as StoredFile
from lango.server.context import Context
from lango.server.errors import ApiError
from lango.server.json_body import large_response
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    Attachment,
    Message,
    MessagePage,
    PageSize,
    Responses,
    SessionIdPath,
    attachments_of,
)
from lango.server.security.auth import AuthenticatedRoute, CurrentCaller
from lango.store.codec.records import as_datetime
from lango.store.sessions.window import read_message, read_message_page
from lango.store.turns import queue
from lango.store.turns.tool_journal import read_journal_entries
from lango.store.turns.turns import read_turn

_FILE_RESPONSES: Responses = {
    200: {"description": "The file.", "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}

_INLINE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that a browser may display: images that hold no script. Other files are downloads."""

router = APIRouter(prefix="/v1", tags=["sessions"], responses=COMMON_ERRORS, route_class=AuthenticatedRoute)


@router.get("/sessions/{session_id}/messages", response_model=MessagePage)
async def read_messages(
    session_id: SessionIdPath,
    caller: CurrentCaller,
    context: Context,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: PageSize = 50,
) -> Response:
    """Read messages in order: the newest, or those before a sequence number."""
    session = await context.get_session_without_expired_approvals(caller, session_id)
    records = await context.store.read(read_message_page, session, before=before, limit=limit + 1)
    page = records[-limit:]
    journal = await context.store.read(read_journal_entries, session.key, page)

    def shown() -> dict[str, Any]:
        messages = [Message.from_stored(stored, journal).model_dump(mode="json") for stored in page]
        return {"messages": messages, "before": page[0].seq if len(records) > limit else None}

    return await large_response(shown)


@router.get(
    "/sessions/{session_id}/messages/{seq}/attachments/{index}", response_class=Response, responses=_FILE_RESPONSES
)
async def read_attachment(
    session_id: SessionIdPath,
    seq: Annotated[int, Path(ge=1, le=2**62, examples=[1])],
    index: Annotated[int, Path(ge=0, le=1000, examples=[0])],
    caller: CurrentCaller,
    context: Context,
) -> Response:
    """Read a file of a message: an image for display, any other type as a download."""
    stored = await context.store.read(read_message, await context.get_session(caller, session_id), seq)
    files = stored_attachments(stored) if stored else []
    if index >= len(files):
        raise ApiError(404, "AttachmentNotFound", f"message {seq} of session {session_id!r} has no such file")
    return file_response(files[index])


def file_response(file: StoredFile) -> Response:
    """Return a file as a response."""
    is_inline = file.mime_type in _INLINE_TYPES
    disposition = "inline" if is_inline else "attachment"
    headers = {
        "Content-Disposition": f"{disposition}; filename*=UTF-8''{quote(file.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, max-age=3600",
    }
    return Response(file.data, media_type=file.mime_type if is_inline else "application/octet-stream", headers=headers)


class QueuedMessage(BaseModel):
    """A message that is queued behind another turn of its session."""

    turn: int
    content: str
    attachments: list[Attachment] = []
    created_at: datetime
    invocation_id: str
    is_answer: bool
    """It is not a message but the answer to an approval request."""

    @classmethod
    def from_record(cls, queued: queue.QueuedMessage) -> Self:
        """Convert a queued message."""
        message = queued.message.message
        return cls(
            turn=queued.turn,
            content=message.content if message else "",
            attachments=attachments_of(queued.message),
            created_at=as_datetime(queued.message.created_at),
            invocation_id=queued.message.invocation_id,
            is_answer=message is None or message.role != "user",
        )


class QueuedMessages(BaseModel):
    """The queued messages of a session, in order."""

    waiting: list[QueuedMessage]


@router.get("/sessions/{session_id}/waiting")
async def list_queued_messages(session_id: SessionIdPath, caller: CurrentCaller, context: Context) -> QueuedMessages:
    """Read the queued messages, in order."""
    session = await context.get_session(caller, session_id)
    queued = await context.store.read(queue.read_queued_messages, session.key)
    return QueuedMessages(waiting=[QueuedMessage.from_record(message) for message in queued])


@router.delete("/sessions/{session_id}/waiting/{turn}", status_code=204, responses=CONFLICT)
async def withdraw_queued_message(
    session_id: SessionIdPath,
    turn: Annotated[int, Path(ge=1, le=2**40, examples=[2])],
    caller: CurrentCaller,
    context: Context,
) -> None:
    """Withdraw a queued message. If its turn has started, the answer is 409: cancel the turn instead."""
    session = await context.get_session(caller, session_id)
    if await context.runtime.take_back(session_id, turn, user_id=caller.user_id):
        context.turns.session_watch.notify(session, queued=True)
        return
    record = await context.store.read(read_turn, session.key, turn)
    if record is None:
        raise ApiError(404, "TurnNotFound", f"session {session_id!r} has no turn {turn}")
    if record.status != "cancelled":
        raise ApiError(409, "TurnRunning", f"turn {turn} has begun already: stop it, or let it finish")
