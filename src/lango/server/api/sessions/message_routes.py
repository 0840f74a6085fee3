"""Read stored and queued messages and their files, and withdraw queued ones."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel

from lango.runtime.turns import QueuedMessage as StoredMessage
from lango.server.api.paging import PageSize
from lango.server.context import CurrentUser
from lango.server.errors import ApiError
from lango.server.file_responses import file_response
from lango.server.json_body import large_response
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    MAX_INTEGER,
    Attachment,
    Message,
    MessagePage,
    Responses,
    SessionIdPath,
    attachments_of,
)
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import as_datetime

_FILE_RESPONSES: Responses = {
    200: {"description": "The file.", "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}

router = AuthenticatedRouter("/v1", tags=["sessions"], responses=COMMON_ERRORS)


@router.get("/sessions/{session_id}/messages", response_model=MessagePage)
async def read_messages(
    session_id: SessionIdPath,
    user: CurrentUser,
    before: Annotated[int | None, Query(ge=1, le=MAX_INTEGER)] = None,
    limit: PageSize = 50,
) -> Response:
    """Read messages in order: the newest, or those before a sequence number."""
    await user.runtime.inbox.expire(session_id, user_id=user.id)
    session = await user.get_session(session_id)
    page = await user.sessions.page_with_details(session, before=before, limit=limit)

    def shown() -> dict[str, Any]:
        messages = [Message.from_details(details).model_dump(mode="json") for details in page.messages]
        return {"messages": messages, "before": page.before}

    return await large_response(shown)


@router.get(
    "/sessions/{session_id}/messages/{seq}/attachments/{index}", response_class=Response, responses=_FILE_RESPONSES
)
async def read_attachment(
    session_id: SessionIdPath,
    seq: Annotated[int, Path(ge=1, le=MAX_INTEGER, examples=[1])],
    index: Annotated[int, Path(ge=0, le=1000, examples=[0])],
    user: CurrentUser,
    request: Request,
) -> Response:
    """Read a file of a message: an image for display, any other type as a download. A `Range` is honoured."""
    stored = await user.sessions.message(await user.get_session(session_id), seq)
    files = stored.attachments if stored else []
    if index >= len(files):
        raise ApiError(404, "AttachmentNotFound", f"message {seq} of session {session_id!r} has no such file")
    file = files[index]
    return file_response(user.sessions, file.name, file.mime_type, file.data, request.headers)


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
    def from_record(cls, queued: StoredMessage) -> Self:
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
async def list_queued_messages(session_id: SessionIdPath, user: CurrentUser) -> QueuedMessages:
    """Read the queued messages, in order."""
    session = await user.get_session(session_id)
    queued = await user.runtime.turns.queued(session)
    return QueuedMessages(waiting=[QueuedMessage.from_record(message) for message in queued])


@router.delete("/sessions/{session_id}/waiting/{turn}", status_code=204, responses=CONFLICT)
async def withdraw_queued_message(
    session_id: SessionIdPath, turn: Annotated[int, Path(ge=1, le=2**40, examples=[2])], user: CurrentUser
) -> None:
    """Withdraw a queued message. If its turn has started, the answer is 409: cancel the turn instead."""
    session = await user.get_session(session_id)
    if await user.runtime.withdraw(session_id, turn, user_id=user.id):
        user.runtime.sessions.changes.notify(session, queued=True)
        return
    record = await user.runtime.turns.read(session, turn)
    if record is None:
        raise ApiError(404, "TurnNotFound", f"session {session_id!r} has no turn {turn}")
    if record.status != "cancelled":
        raise ApiError(409, "TurnRunning", f"turn {turn} has already started: cancel it, or let it finish")
