"""Send server-sent events with heartbeats, and stop for clients that do not read or lose access."""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from lango.errors import EventsGone, LangoError, SessionNotFound, Stopping
from lango.runtime.turns import LoggedEvent
from lango.server.errors import ApiError, to_api_error
from lango.server.streaming.live import Changed

T = TypeVar("T")

_log = logging.getLogger("lango.server")

RECHECK_CALLER_S = 4.0
"""How often an open stream checks that its caller still has access."""
VERIFY_CALLER = "verify_caller"
"""Key in the state of a request: the check of its caller, which an open stream repeats."""
_HEARTBEAT = b": still here\n\n"
_RETRY_SOON = b"retry: 500\n"
"""How soon a browser's EventSource reconnects, in milliseconds; by itself it waits for seconds."""
# JSON may hold these, and many clients split lines at them
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})


class StreamResponse(Response, ABC, Generic[T]):
    """Server-sent frames, one for each `T`, until the generator ends or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[T | None, None],
        write_timeout_s: float,
        moved: asyncio.Event | None = None,
        *,
        status_code: int = 200,
    ) -> None:
        """`moved` is set when the client should reconnect to another replica; without it, the client cannot resume.

        `status_code` is a parameter because FastAPI reads its default for the OpenAPI description.
        """
        super().__init__(status_code=status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._write_timeout_s = write_timeout_s
        self._moved = moved or asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, until the client disconnects or loses access, or until it should reconnect."""
        sending = asyncio.create_task(self._send_all(send))
        disconnect = asyncio.create_task(_wait_disconnected(receive))
        recheck = asyncio.create_task(wait_until_refused(scope.get("state", {}).get(VERIFY_CALLER)))
        reconnect = asyncio.create_task(self._moved.wait())
        tasks = [sending, disconnect, recheck, reconnect]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled():
            sending.result()
        elif disconnect.cancelled():
            if reconnect.cancelled():
                await self._write(send, self._error_frame(recheck.result()))
            else:
                stopping = Stopping("this server stops, and another one continues")
                await self._write(send, _RETRY_SOON + self._error_frame(stopping))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._write(send, _HEARTBEAT if event is None else self._frame(event))
        except LangoError as error:
            if not isinstance(error, SessionNotFound | Stopping):
                _log.warning("a stream ended early: %s", error)
            await self._write(send, self._error_frame(error))
        except TimeoutError:
            _log.warning("a client that read nothing for %g s was disconnected", self._write_timeout_s)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @abstractmethod
    def _frame(self, event: T) -> bytes:
        """Encode an event."""

    @abstractmethod
    def _error_frame(self, error: LangoError | ApiError) -> bytes:
        """Encode the end of a stream whose turn may continue."""

    async def _write(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._write_timeout_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})


class EventStreamResponse(StreamResponse[LoggedEvent | Changed]):
    """The events of turns, as they are stored, and hints about other changes."""

    @override
    def _frame(self, event: LoggedEvent | Changed) -> bytes:
        match event:
            case LoggedEvent():
                data = escape_line_ends(event.data)
                return f"id: {event.id}\nevent: {event.event.type}\ndata: {data}\n\n".encode()
            case Changed():
                return b"event: changed\ndata: %b\n\n" % msgspec.json.encode(event)

    @override
    def _error_frame(self, error: LangoError | ApiError) -> bytes:
        can_resume = not isinstance(error, EventsGone | SessionNotFound)
        message = f"{error}; reconnect with Last-Event-ID" if can_resume else str(error)
        fields = {"error": to_api_error(error).type, "message": message, "fatal": True, "call_id": None}
        return f"event: turn_error\ndata: {json.dumps({'type': 'turn_error'} | fields)}\n\n".encode()


async def wait_until_refused(check: Callable[[], Awaitable[object]] | None) -> ApiError:
    """Repeat a check of the caller; return the error with which it fails."""
    while True:
        await asyncio.sleep(RECHECK_CALLER_S)
        try:
            if check is not None:
                await check()
        except ApiError as refused:
            return refused
        except LangoError as error:  # the store, or the issuer, is not available
            _log.warning("the caller of an open stream could not be checked: %s", error)


def escape_line_ends(json_text: str) -> str:
    """Escape in JSON the characters that clients take for the end of a line."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class FrameStreamResponse(StreamResponse[str]):
    """Frames of another protocol; `encode_error` makes the one that ends a stream whose turn may continue."""

    def __init__(
        self,
        frames: AsyncGenerator[str | None, None],
        write_timeout_s: float,
        encode_error: Callable[[ApiError], str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(frames, write_timeout_s)
        self.headers.update(headers or {})
        self._encode_error = encode_error

    @override
    def _frame(self, event: str) -> bytes:
        return escape_line_ends(event).encode()

    @override
    def _error_frame(self, error: LangoError | ApiError) -> bytes:
        return self._encode_error(to_api_error(error)).encode()
