"""Collect what one model call sends: the attempts that failed and, where they are kept, the requests and their answers.

The caller sets `current_call_log` before it calls a model. Without it, nothing is collected. The HTTP clients of the
vendors' SDKs have `note_request` and `note_response` as hooks. Headers are not kept: they hold the keys.
"""

import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field

from lango.providers.reply_assembly import ReplyAssembler
from lango.safe_text import redact_secrets

_MAX_ERROR_CHARACTERS = 2_000
_MAX_RESPONSE_BYTES = 4_000_000
"""How much of a response is held in memory."""


class FailedAttempt(Struct, frozen=True):
    """An attempt that failed. Another one may have followed, with the same model or the fallback."""

    provider: str
    model: str
    started_at: float
    duration_s: float
    error: str


class Exchange(Struct, eq=False):
    """One request and its response, as they went over the wire."""

    provider: str
    model: str
    started_at: float = field(default_factory=time.time)
    duration_s: float | None = None
    url: str = ""
    """Empty: the model runs in this process."""
    status: int | None = None
    """The HTTP status of the response."""
    error: str = ""
    """Why the attempt failed."""
    request: bytes = b""
    response: bytearray = field(default_factory=bytearray)
    response_type: str = ""
    """The content type of the response."""
    _began: float = field(default_factory=time.monotonic)
    answer: ReplyAssembler = field(default_factory=ReplyAssembler)
    """The answer, merged from what the provider streams; empty for one of ADK's own models."""

    def end(self, error: str = "") -> None:
        """Note that the attempt has ended, and why it failed."""
        if self.duration_s is None:
            self.duration_s = time.monotonic() - self._began
            self.error = error

    def add_response(self, chunk: bytes) -> None:
        """Add a piece of the response, unless there is too much of it."""
        if len(self.response) + len(chunk) <= _MAX_RESPONSE_BYTES:
            self.response += chunk


class CallLog(Struct, eq=False):
    """What one model call sent."""

    failures: list[FailedAttempt] = []
    exchanges: list[Exchange] | None = None
    """The requests and responses, or None if they are not kept."""

    @property
    def open_exchange(self) -> Exchange | None:
        """The exchange that the HTTP client of the current attempt fills, or None if none is under way."""
        newest = self.exchanges[-1] if self.exchanges else None
        return newest if newest is not None and newest.duration_s is None else None


current_call_log: ContextVar[CallLog | None] = ContextVar("lango_call_log", default=None)


def note_failure(provider: str, model: str, started_at: float, error: Exception) -> None:
    """Note that an attempt of the current model call failed."""
    if (log := current_call_log.get()) is not None:
        duration_s = max(0.0, time.time() - started_at)
        log.failures.append(FailedAttempt(provider, model, started_at, duration_s, describe_error(error)))


def describe_error(error: Exception) -> str:
    """Return the kind and the message of an error, without secrets and not too long."""
    return redact_secrets(f"{type(error).__name__}: {error}")[:_MAX_ERROR_CHARACTERS]


async def note_request(request: Any) -> None:
    """Note the body of a request before it is sent."""
    if (exchange := _open_exchange()) is None:
        return
    exchange.url = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}{request.url.path}"
    exchange.request = request.content
    exchange.response.clear()  # of the request before it, if a user's own provider repeats it
    request.headers["accept-encoding"] = "identity"  # the bytes of the response are kept as they come


async def note_response(response: Any) -> None:
    """Note the status of a response, and its body while the SDK reads it."""
    if (exchange := _open_exchange()) is None:
        return
    exchange.status = response.status_code
    exchange.response_type = response.headers.get("content-type", "")
    response.stream = _copying_stream(response.stream, exchange)


def _open_exchange() -> Exchange | None:
    log = current_call_log.get()
    return log.open_exchange if log is not None else None


def _copying_stream(stream: Any, exchange: Exchange) -> Any:
    """Return a stream that notes what is read from another one; it has the base class that its HTTP library checks."""
    base = next(kind for kind in type(stream).__mro__ if kind.__name__ == "AsyncByteStream")

    async def copy(_: Any) -> AsyncIterator[bytes]:
        async for chunk in stream:
            exchange.add_response(chunk)
            yield chunk

    async def close(_: Any) -> None:
        await stream.aclose()

    return type("CopyingStream", (base,), {"__aiter__": copy, "aclose": close})()
