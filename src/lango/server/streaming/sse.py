"""A stream of events as a response: heartbeats when it is silent, and a bound on how long a client may not read."""

import asyncio
import functools
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from lango.errors import EventsGone, LangoError
from lango.server.errors import ApiError
from lango.server.security.auth import Principal
from lango.server.streaming.turn_streams import cut
from lango.store.turns.event_log import LoggedEvent

T = TypeVar("T")

_log = logging.getLogger("lango.server")

RECHECK_CALLER_S = 4.0
"""How often the caller of an open stream is checked."""
_HEARTBEAT = b": still here\n\n"
# many clients cut lines where Unicode does; JSON may hold these as they are
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})

_STATUS = {
    "BudgetTooSmall": 400,  # a message that is too long: no failure of the server's, and no use to send again
    "StoreUnavailable": 503,
    "OutcomeUnknown": 503,
    "ProviderUnavailable": 503,
    "TurnTimeout": 504,
    "TurnCancelled": 409,
}


class StreamResponse(Response, ABC, Generic[T]):
    """Server-sent frames, one for each `T`. It ends when these do, or when the client goes: they are not its own."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[T | None, None], write_timeout_s: float, status_code: int = 200) -> None:
        """`status_code` is where FastAPI looks for it when it writes the OpenAPI page."""
        super().__init__(status_code=status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._write_timeout_s = write_timeout_s
        self._recheck: Callable[[], Awaitable[object]] | None = None

    def allowed_by(self, door: Principal, authorization: str | None) -> None:
        """Ask again and again whether the caller may still read, and end the stream where not."""
        self._recheck = functools.partial(door.verify, authorization)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, until the client is gone, or until it may read no more."""
        sending = asyncio.create_task(self._send_all(send))
        disconnect = asyncio.create_task(_wait_disconnected(receive))
        recheck = asyncio.create_task(wait_until_refused(self._recheck))
        tasks = [sending, disconnect, recheck]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled():
            sending.result()
        elif not recheck.cancelled() and disconnect.cancelled():
            await self._write(send, self._error_frame(recheck.result()))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._write(send, _HEARTBEAT if event is None else self._frame(event))
        except LangoError as error:
            _log.warning("a stream was cut off: %s", error)
            await self._write(send, self._error_frame(error))
        except TimeoutError:
            _log.warning("a client that read nothing for %g s was cut off", self._write_timeout_s)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @abstractmethod
    def _frame(self, event: T) -> bytes:
        """Return an event as it goes over the wire."""

    @abstractmethod
    def _error_frame(self, error: LangoError | ApiError) -> bytes:
        """Say that the stream ends here, though its turn may not."""

    async def _write(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._write_timeout_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})


class EventStreamResponse(StreamResponse[LoggedEvent]):
    """The events of turns, as they are stored."""

    @override
    def _frame(self, event: LoggedEvent) -> bytes:
        id_ = f"id: {event.id}\n" if event.id else ""
        return f"{id_}event: {event.type}\ndata: {escape_line_ends(event.data)}\n\n".encode()

    @override
    def _error_frame(self, error: LangoError | ApiError) -> bytes:
        back = "" if isinstance(error, EventsGone) else "; come back with Last-Event-ID"
        return self._frame(cut(error_type(error), f"{error}{back}"))


def error_type(error: LangoError | ApiError) -> str:
    """Return what an error is called to clients."""
    return error.type if isinstance(error, ApiError) else type(error).__name__


async def wait_until_refused(check: Callable[[], Awaitable[object]] | None) -> ApiError:
    """Check again and again; return why a caller may not go on, once that is so."""
    while True:
        await asyncio.sleep(RECHECK_CALLER_S)
        try:
            if check is not None:
                await check()
        except ApiError as refused:
            return refused
        except LangoError as error:  # the store, or the issuer, cannot say it now
            _log.warning("an open stream could not be checked: %s", error)


def escape_line_ends(json_text: str) -> str:
    """Return JSON in which nobody finds the end of a line."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def status_of(error: str) -> int:
    """Return the status for an error that a turn ended with, by its name."""
    return _STATUS.get(error, 500)


class FrameStreamResponse(StreamResponse[str]):
    """Frames as another protocol's client reads them.

    `failed` says in the protocol's words that the stream ends here, though its turn may not.
    """

    def __init__(
        self,
        frames: AsyncGenerator[str | None, None],
        write_timeout_s: float,
        encode_error: Callable[[str, str], str],
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
        return self._encode_error(error_type(error), str(error)).encode()


async def read(events: AsyncGenerator[LoggedEvent | None, None]) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Read events as their fields; None where nothing came for a while."""
    async with aclosing(events):
        async for told in events:
            yield None if told is None else json.loads(told.data)
