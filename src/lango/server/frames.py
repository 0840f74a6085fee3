"""A turn's events in somebody else's words: server-sent frames that another protocol's client reads."""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.types import Send
from typing_extensions import override

from lango.errors import LangoError
from lango.server.sse import EventStream
from lango.store.streams import ToldEvent

_log = logging.getLogger("lango.server")

_HEARTBEAT = ": still here\n\n"
# many clients cut lines where Unicode does; JSON may hold these as they are
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})
_STATUS = {"StoreUnavailable": 503, "ProviderUnavailable": 503, "TurnTimeout": 504, "TurnCancelled": 409}


def status_of(error: str) -> int:
    """Return the status for an error that a turn ended with, by its name."""
    return _STATUS.get(error, 500)


class FrameStream(EventStream):
    """Frames as they go over the wire; None is a sign of life.

    `failed` says in the protocol's words that the stream ends here, though its turn may not.
    """

    def __init__(
        self,
        frames: AsyncGenerator[str | None, None],
        write_timeout_s: float,
        failed: Callable[[str, str], str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(_nothing(), write_timeout_s)
        self.headers.update(headers or {})
        self._frames = frames
        self._failed = failed

    @override
    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self._frames) as frames:
                async for frame in frames:
                    await self._send(send, (frame or _HEARTBEAT).translate(_LINE_ENDS).encode())
        except LangoError as error:
            _log.warning("a stream was cut off: %s", error)
            await self._send(send, self._failed(type(error).__name__, str(error)).encode())
        except TimeoutError:
            _log.warning("a client that read nothing for %g s was cut off", self._write_timeout_s)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _nothing() -> AsyncGenerator[ToldEvent | None, None]:
    return
    yield


async def read(events: AsyncGenerator[ToldEvent | None, None]) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Read events as their fields; None where nothing came for a while."""
    async with aclosing(events):
        async for told in events:
            yield None if told is None else json.loads(told.data)
