"""Serve turns of any of the caller's sessions over one WebSocket at `/v1/ws`.

A client sends JSON: `{"type": "message", "session", "text", "attachments"?, "idempotency_key"?}`,
`{"type": "cancel", "session"}`, `{"type": "approval", "session", "call_id", "approved"}` or
`{"type": "resume", "session", "after"?}`. The server sends the events of those turns, each with its `session`. It
answers an invalid message with an `error` that has no `id`, is not `fatal`, and names its `session`, if there is one.
The same form reports `NothingRuns` (no turn to cancel), `NothingToResume` (no event follows, and no turn runs) and
`EventsGone` (the events that follow are no longer kept).
"""

import asyncio
import functools
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import Field, TypeAdapter, ValidationError

from lango.errors import LangoError, SessionNotFound, Stopping
from lango.json_input import TooManyValues, read_json
from lango.server.context import Context, ServerContext
from lango.server.errors import ApiError, describe_problems, to_api_error
from lango.server.schemas import SESSION_ID, IdempotencyKeyText, NewMessage, RequestBody
from lango.server.security.auth import Caller, read_authorization
from lango.server.streaming.sse import wait_until_refused
from lango.store import SessionRecord
from lango.store.turns.event_log import LoggedEvent

_log = logging.getLogger("lango.server")

router = APIRouter()

_MAX_STREAMS = 32
_PROTOCOL = "lango"
_UNKNOWN_TYPE = "send an object with a type: message, cancel, approval or resume"
_CONNECTION_ERRORS = (TimeoutError, RuntimeError, WebSocketDisconnect)
"""Raised by sending to a client that does not read, or has disconnected."""

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


class Approval(RequestBody):
    """Answer an approval request."""

    type: Literal["approval"]
    session: SessionName
    call_id: Annotated[str, Field(max_length=512)]
    approved: bool


class Resume(RequestBody):
    """Resume the stream of a session after an event."""

    type: Literal["resume"]
    session: SessionName
    after: Annotated[int, Field(ge=0, lt=2**62)] | None = None


ClientMessage = Annotated[SendMessage | Cancel | Approval | Resume, Field(discriminator="type")]
_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


@router.websocket("/v1/ws")
async def serve_socket(socket: WebSocket, context: Context) -> None:
    """Handle the client's messages and send it events, until it disconnects."""
    try:
        authorization = read_authorization(socket)
        await context.authenticator.authenticate(authorization)
    except (ApiError, LangoError) as refused:
        await socket.close(1008, str(refused)[:120])
        return
    await socket.accept(_PROTOCOL if _PROTOCOL in socket.scope["subprotocols"] else None)
    connection = _SocketConnection(socket, context, authorization)
    try:
        await connection.wait_closed()
    finally:
        await connection.close()


def _parse_client_message(text: str) -> ClientMessage:
    """Parse a message of the client; raise `ApiError` for an invalid one."""
    try:
        return _CLIENT_MESSAGE.validate_python(read_json(text))
    except TooManyValues as error:
        raise ApiError(413, "TooLarge", str(error)) from error
    except ValidationError as error:
        problems = error.errors()
        message = describe_problems(problems) if problems[0]["loc"] else _UNKNOWN_TYPE
        raise ApiError(400, "BadRequest", message) from error
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "BadRequest", "send JSON as text") from error


class _SocketConnection:
    """One socket. Streams wait for the socket, and the socket for its client: nothing is buffered."""

    def __init__(self, socket: WebSocket, context: ServerContext, authorization: str | None) -> None:
        self._socket = socket
        self._context = context
        self._authorization = authorization
        self._streams: set[asyncio.Task[None]] = set()
        self._receiver = asyncio.create_task(self._receive_all())

    async def wait_closed(self) -> None:
        """Wait until the client disconnects, is disconnected, or loses access."""
        check = functools.partial(self._context.authenticator.verify, self._authorization)
        recheck = asyncio.create_task(wait_until_refused(check))
        await asyncio.wait([self._receiver, recheck], return_when=asyncio.FIRST_COMPLETED)
        recheck.cancel()
        if recheck.done() and not self._receiver.done():
            await self._socket.close(1008, str(recheck.result())[:120])
        elif not self._receiver.cancelled():
            self._receiver.result()

    async def _receive_all(self) -> None:
        while (frame := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                message = _parse_client_message(frame.get("text") or "")
            except ApiError as refused:
                await self._send_error(refused)
                continue
            try:
                await self._handle(message)
            except (LangoError, ApiError) as error:
                await self._send_error(error, message.session)

    async def _handle(self, message: ClientMessage) -> None:
        # again: the key may have been revoked
        caller = await self._context.authenticator.authenticate(self._authorization)
        if len(self._streams) >= _MAX_STREAMS:
            raise ApiError(429, "TooManyStreams", f"at most {_MAX_STREAMS} streams on one socket")
        match message:
            case SendMessage():
                await self._context.check_may_write(caller, message.session)
                turn = await self._context.turns.submit(
                    caller, message.session, message.text, message.idempotency_key, message.files
                )
                self._start_stream(message.session, self._context.turns.follow(turn))
            case Approval():
                await self._approve(caller, message)
            case Resume():
                session = await self._context.get_session(caller, message.session)
                self._start_stream(message.session, self._resumed_events(session, message.after))
            case Cancel():
                await self._context.get_session(caller, message.session)
                if not await self._context.runtime.cancel(message.session, user_id=caller.user_id):
                    raise ApiError(
                        409, "NothingRuns", f"no turn runs in session {message.session!r}: nothing to cancel"
                    )

    async def _approve(self, caller: Caller, message: Approval) -> None:
        await self._context.authenticator.check_token_quota(caller)
        await self._context.get_session(caller, message.session)
        turn = await self._context.turns.submit_approval(
            caller, message.session, message.call_id, approved=message.approved
        )
        self._start_stream(message.session, self._context.turns.follow(turn))

    async def _resumed_events(
        self, session: SessionRecord, after: int | None
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a session after an id; raise `ApiError` if there are none."""
        any_event = False
        async with aclosing(self._context.turns.follow_session(session, after)) as events:
            async for event in events:
                any_event = any_event or event is not None
                yield event
        if not any_event:
            what = "there was no turn" if after is None else f"nothing comes after event {after}"
            raise ApiError(409, "NothingToResume", f"{what} in session {session.name.id!r}, and nothing runs")

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
        except (LangoError, ApiError) as error:
            await self._send_error(error, session_id, fatal=isinstance(error, SessionNotFound | Stopping))
        except _CONNECTION_ERRORS:
            self._disconnect()

    async def _send_error(self, error: Exception, session_id: str | None = None, *, fatal: bool = False) -> None:
        api_error = to_api_error(error)
        body: dict[str, object] = {"type": "error", "error": api_error.type, "message": str(api_error), "fatal": fatal}
        if fatal:
            body["call_id"] = None  # as in every error event that ends a stream
        try:
            await self._send(json.dumps(body if session_id is None else body | {"session": session_id}))
        except _CONNECTION_ERRORS:
            self._disconnect()

    def _disconnect(self) -> None:
        _log.warning("a client that does not read was disconnected")
        self._receiver.cancel()

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(self._context.settings.server.write_timeout_s):
            await self._socket.send_text(text)

    async def close(self) -> None:
        """Stop all streams; the turns continue."""
        tasks = [self._receiver, *self._streams]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
