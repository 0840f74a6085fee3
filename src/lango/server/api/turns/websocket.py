"""Serve turns of any of the caller's sessions over one WebSocket at `/v1/ws`.

A client sends JSON: `{"type": "message", "session", "text", "attachments"?, "when_busy"?, "idempotency_key"?}`,
`{"type": "cancel", "session"}`, `{"type": "answer", "session", "wait_id", "answer", "idempotency_key"?}` (the answer is
that of `POST /v1/sessions/{id}/waits/{wait_id}`) or `{"type": "resume", "session", "after"?}`. The server sends the
events of those turns, each with its `session`. It answers an
invalid message with a `turn_error` that has no `id`, is not `fatal`, and names its `session`, if there is
one. The same form reports `NothingRuns` (no turn to cancel), `NothingToResume` (no event follows, and no turn runs) and
`EventsGone` (the events that follow are no longer kept).
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, WebSocket
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import override

from lango.errors import LangoError, SessionNotFound, Stopping
from lango.runtime.turns import LoggedEvent
from lango.server.api.turns.wait_routes import submit_answer
from lango.server.api.turns.wait_schemas import AnswerBody
from lango.server.context import Context, ServerContext
from lango.server.errors import ApiError, bad_request, describe_problems, to_api_error
from lango.server.schemas import MAX_INTEGER, SESSION_ID, IdempotencyKeyText, NewMessage, RequestBody
from lango.server.security.websocket_protocol import LAST_EVENT_ID
from lango.server.sockets import CONNECTION_ERRORS, SocketConnection, read_message
from lango.server.streaming.turn_streams import TurnStreams
from lango.sessions import SessionInfo

router = APIRouter()

_MAX_STREAMS = 32
_UNKNOWN_TYPE = "send an object with a type: message, cancel, answer or resume"

SessionName = Annotated[str, Field(pattern=SESSION_ID)]


class SendMessage(NewMessage):
    """Send a message."""

    type: Literal["message"]
    session: SessionName
    idempotency_key: IdempotencyKeyText | None = None


class Cancel(RequestBody):
    """Cancel a turn."""

    type: Literal["cancel"]
    session: SessionName


class AnswerWait(RequestBody):
    """Answer what a turn waits for."""

    type: Literal["answer"]
    session: SessionName
    wait_id: Annotated[str, Field(max_length=512)]
    answer: AnswerBody
    idempotency_key: IdempotencyKeyText | None = None


class Resume(RequestBody):
    """Resume the stream of a session after an event."""

    type: Literal["resume"]
    session: SessionName
    after: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None = None


ClientMessage = Annotated[SendMessage | Cancel | AnswerWait | Resume, Field(discriminator="type")]
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


@router.websocket("/v1/ws")
async def serve_socket(socket: WebSocket, context: Context) -> None:
    """Handle the client's messages and send it events, until it disconnects."""
    await _TurnSocket(socket, context).serve()


def _parse_client_message(text: str) -> ClientMessage:
    """Parse a message of the client; raise `ApiError` for an invalid one."""
    try:
        return _CLIENT_MESSAGE.validate_python(read_message(text))
    except ValidationError as error:
        problems = error.errors()
        message = describe_problems(problems) if problems[0]["loc"] else _UNKNOWN_TYPE
        raise bad_request(message) from error


class _TurnSocket(SocketConnection):
    """One socket, with the streams of any number of turns."""

    def __init__(self, socket: WebSocket, context: ServerContext) -> None:
        super().__init__(socket, context)
        self._streams: set[asyncio.Task[None]] = set()

    @override
    def _tasks(self) -> list[asyncio.Task[None]]:
        return list(self._streams)

    @override
    async def _receive_all(self) -> None:
        while (text := await self._receive()) is not None:
            try:
                message = _parse_client_message(text)
            except ApiError as refused:
                await self._send_error(refused)
                continue
            try:
                await self._handle(message)
            except (LangoError, ApiError) as error:
                await self._send_error(error, message.session)

    async def _handle(self, message: ClientMessage) -> None:
        user = await self._authenticate()
        if len(self._streams) >= _MAX_STREAMS:
            raise ApiError(429, "TooManyStreams", f"at most {_MAX_STREAMS} streams on one socket")
        user = await user.of_session(message.session)
        match message:
            case SendMessage(session=session_id, idempotency_key=key):
                self._start_stream(session_id, user.turns.follow(await user.send(session_id, message, key)))
            case AnswerWait(session=session_id, wait_id=wait_id, answer=answer, idempotency_key=key):
                turn = await submit_answer(user, session_id, wait_id, answer, key)
                self._start_stream(session_id, user.turns.follow(turn))
            case Resume(session=session_id):
                session = await user.get_session(session_id)
                self._start_stream(session_id, self._resumed_events(user.turns, session, message.after))
            case Cancel(session=session_id):
                await user.get_session(session_id)
                if not await user.runtime.cancel(session_id, user_id=user.id):
                    raise ApiError(
                        409, "NothingRuns", f"no turn is running in session {session_id!r}: there is nothing to cancel"
                    )

    async def _resumed_events(
        self, turns: TurnStreams, session: SessionInfo, after: int | None
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a session after an id; raise `ApiError` if there are none."""
        any_event = False
        async with aclosing(turns.follow_session(session, after)) as events:
            async for event in events:
                any_event = any_event or event is not None
                yield event
        if not any_event:
            what = "there was no turn" if after is None else f"there is no event after {after}"
            raise ApiError(409, "NothingToResume", f"{what} in session {session.name.id!r}, and no turn is running")

    def _start_stream(self, session_id: str, events: AsyncGenerator[LoggedEvent | None, None]) -> None:
        task = asyncio.create_task(self._send_events(session_id, events))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _send_events(self, session_id: str, events: AsyncGenerator[LoggedEvent | None, None]) -> None:
        session_suffix = f',"session":{json.dumps(session_id)}}}'
        try:
            async with aclosing(events):
                async for event in events:
                    if event:  # WebSocket has its own pings
                        await self._send(event.data.removesuffix("}") + session_suffix)
                        self._socket.scope["state"][LAST_EVENT_ID] = event.id
        except (LangoError, ApiError) as error:
            await self._send_error(error, session_id, fatal=isinstance(error, SessionNotFound | Stopping))
        except CONNECTION_ERRORS:
            self._disconnect()

    async def _send_error(self, error: Exception, session_id: str | None = None, *, fatal: bool = False) -> None:
        api_error = to_api_error(error)
        body: dict[str, object] = {
            "type": "turn_error",
            "error": api_error.type,
            "message": str(api_error),
            "fatal": fatal,
        }
        if fatal:
            body["call_id"] = None  # as in every error event that ends a stream
        try:
            await self._send(json.dumps(body if session_id is None else body | {"session": session_id}))
        except CONNECTION_ERRORS:
            self._disconnect()
