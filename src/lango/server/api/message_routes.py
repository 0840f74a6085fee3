"""Read stored and queued messages and their files, and withdraw queued ones."""

from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from lango.adk.services.message_parts import stored_attachments
from lango.messages import Attachment as StoredFile
from lango.server.api.parameters import BUSY, ERRORS, Id, Limit
from lango.server.context import Here
from lango.server.errors import Refused
from lango.server.json_body import large_response
from lango.server.schemas import Attachment, Message, MessagePage, files_of
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.store import Turn
from lango.store.codec.records import as_datetime
from lango.store.turns import queue

_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a browser may show in its place: pictures that hold no script. Anything else is only to be saved."""

router = APIRouter(prefix="/v1", tags=["sessions"], responses=ERRORS, route_class=AuthenticatedRoute)


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


def file_response(file: StoredFile) -> Response:
    """Answer with a file."""
    shown = file.mime_type in _SHOWN
    headers = {
        "Content-Disposition": f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, max-age=3600",
    }
    return Response(file.data, media_type=file.mime_type if shown else "application/octet-stream", headers=headers)


class WaitingMessage(BaseModel):
    """A message that waits for its turn: another one of the session is not over."""

    turn: int
    content: str
    attachments: list[Attachment] = []
    created_at: datetime
    invocation_id: str
    is_answer: bool
    """It is no message but the answer to a question for approval."""

    @classmethod
    def of(cls, one: queue.Waiting) -> Self:
        """Show a message that waits."""
        message = one.stored.message
        return cls(
            turn=one.turn,
            content=message.content if message else "",
            attachments=files_of(one.stored),
            created_at=as_datetime(one.stored.created_at),
            invocation_id=one.stored.invocation_id,
            is_answer=message is None or message.role != "user",
        )


class WaitingMessages(BaseModel):
    """The messages of a session that wait, in order."""

    waiting: list[WaitingMessage]


@router.get("/sessions/{session_id}/waiting")
async def read_waiting(session_id: Id, user: User, here: Here) -> WaitingMessages:
    """Read the messages that wait for their turn, in order."""
    session = await here.session(user, session_id)
    found = await here.store.read(lambda: queue.read(session.key))
    return WaitingMessages(waiting=[WaitingMessage.of(one) for one in found])


@router.delete("/sessions/{session_id}/waiting/{turn}", status_code=204, responses=BUSY)
async def take_back(
    session_id: Id, turn: Annotated[int, Path(ge=1, le=2**40, examples=[2])], user: User, here: Here
) -> None:
    """Take back a message that waits. One whose turn has begun is not taken back (409): stop it."""
    session = await here.session(user, session_id)
    if await here.runtime.take_back(session_id, turn, user_id=user.user_id):
        here.turns.watching.happened(session, queued=True)
        return
    record = await here.store.turn(Turn(session.key, turn))
    if record is None:
        raise Refused(404, "TurnNotFound", f"session {session_id!r} has no turn {turn}")
    if record.status != "cancelled":
        raise Refused(409, "TurnRunning", f"turn {turn} has begun already: stop it, or let it finish")
