"""Send server-sent events with heartbeats, and stop for clients that do not read or lose access."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lango.errors import LangoError, SessionNotFound, Stopping
from lango.runtime.turns import LoggedEvent
from lango.server.errors import ApiError, to_api_error
from lango.server.security.auth import run_until_first_ends, wait_disconnected
from lango.server.streaming.live import Changed, LiveEvents

T = TypeVar("T")

_log = logging.getLogger("lango.server")

RECHECK_CALLER_S = 4.0
"""How often an open stream checks that its caller still has access."""
VERIFY_CALLER = "verify_caller"
"""Key in the state of a request: the check of its caller, which an open stream repeats."""
_HEARTBEAT = b": still here\n\n"
_RETRY_SOON = "retry: 500\n"
"""How soon a browser's EventSource reconnects, in milliseconds; by itself it waits for seconds."""
# JSON may hold these, and many clients split lines at them
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})


class EventStreamResponse(Response):
    """Server-sent frames, until the generator ends or the client disconnects; None becomes a heartbeat."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[str | None, None],
        write_timeout_s: float,
        encode_error: Callable[[ApiError], str],
        headers: Mapping[str, str] | None = None,
        *,
        moved: asyncio.Event | None = None,
        status_code: int = 200,
    ) -> None:
        """`encode_error` makes the frame that ends a stream whose turn may continue.

        `moved` is set when the client should reconnect to another replica; without it, the client cannot resume.
        `status_code` is a parameter because FastAPI reads its default for the OpenAPI description.
        """
        super().__init__(status_code=status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.headers.update(headers or {})
        self._frames = frames
        self._write_timeout_s = write_timeout_s
        self._encode_error = encode_error
        self._moved = moved or asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, until the client disconnects or loses access, or until it should reconnect."""
        sending, disconnect, recheck, reconnect = await run_until_first_ends(
            self._send_all(send),
            wait_disconnected(receive),
            wait_until_refused(scope.get("state", {}).get(VERIFY_CALLER)),
            self._moved.wait(),
        )
        if not sending.cancelled():
            sending.result()
        elif disconnect.cancelled():
            if reconnect.cancelled():
                await self._write_error(send, recheck.result())
            else:
                await self._write_error(send, Stopping("this server is shutting down; another one continues the turn"))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._frames) as frames:
                async for frame in frames:
                    await self._write(send, _HEARTBEAT if frame is None else escape_line_ends(frame).encode())
        except LangoError as error:
            if not isinstance(error, SessionNotFound | Stopping):
                _log.warning("a stream ended early: %s", error)
            await self._write_error(send, error)
        except TimeoutError:
            _log.warning("disconnected a client that read nothing for %g s", self._write_timeout_s)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._write_timeout_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _write_error(self, send: Send, error: LangoError | ApiError) -> None:
        await self._write(send, self._encode_error(to_api_error(error)).encode())


async def with_heartbeats(items: AsyncIterator[T], heartbeat_s: float) -> AsyncGenerator[T | None, None]:
    """Yield items; None whenever no item came for a heartbeat."""
    upcoming = asyncio.ensure_future(anext(items))
    try:
        while True:
            done, _ = await asyncio.wait([upcoming], timeout=heartbeat_s)
            if not done:
                yield None
                continue
            try:
                item = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = asyncio.ensure_future(anext(items))
            yield item
    finally:
        upcoming.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await upcoming


async def event_frames(events: LiveEvents) -> AsyncGenerator[str | None, None]:
    """Yield the events of turns, as they are stored, and hints about other changes as frames."""
    async with aclosing(events) as items:
        async for event in items:
            match event:
                case LoggedEvent():
                    yield f"id: {event.id}\nevent: {event.event.type}\ndata: {event.data}\n\n"
                case Changed():
                    yield f"event: changed\ndata: {msgspec.json.encode(event).decode()}\n\n"
                case None:
                    yield None


def encode_turn_error(error: ApiError) -> str:
    """Encode the error that ends a stream of events; where this server stops, the client reconnects soon."""
    retry = _RETRY_SOON if error.type == "Stopping" else ""
    can_resume = error.type not in ("EventsGone", "SessionNotFound")
    message = f"{error}; reconnect with Last-Event-ID" if can_resume else str(error)
    fields = {"type": "turn_error", "error": error.type, "message": message, "fatal": True, "call_id": None}
    return f"{retry}event: turn_error\ndata: {json.dumps(fields)}\n\n"


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
            _log.warning("cannot check the caller of an open stream: %s", error)


def escape_line_ends(json_text: str) -> str:
    """Escape in JSON the characters that clients take for the end of a line."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)
