"""Collect what one model call sends: the attempts that failed and, where they are kept, the requests and their answers.

The caller sets `current_call_log` before it calls a model. Without it, nothing is collected. The HTTP clients of the
vendors' SDKs have `note_request` and `note_response` as hooks. Headers are not kept: they hold the keys. Bodies are
stored as JSON text within a bound and without secrets.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from msgspec import DecodeError, Struct, field, json

from lango.providers.reply_assembly import ReplyAssembler
from lango.safe_text import redact_json, redact_secrets

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


# -- bodies as JSON text -----------------------------------------------------------------------------------------------

_TEXT_LIMITS = (50_000, 10_000, 2_000, 500, 100)
"""How many characters of each text are kept, tried in this order until the whole fits."""
_ITEM_LIMITS = (1_000, 200, 50, 10)
_MAX_PARSED_BYTES = 8_000_000


def body_to_json_text(body: bytes, content_type: str, max_bytes: int) -> str:
    """Return a body as JSON text of at most `max_bytes`: an event stream as the list of its events."""
    if len(body) > _MAX_PARSED_BYTES:
        return _cut_text(body[:max_bytes].decode("utf-8", "replace"), len(body), max_bytes)
    try:
        return bounded_json_text(redact_json(_parse(body, content_type)), max_bytes)
    except RecursionError:
        return _cut_text(body.decode("utf-8", "replace"), len(body), max_bytes)


def bounded_json_text(value: Any, max_bytes: int) -> str:
    """Encode a JSON value; shorten long texts, then long lists, until it has at most `max_bytes`."""
    whole = encoded = json.encode(value)
    limits = [(limit, None) for limit in _TEXT_LIMITS] + [(_TEXT_LIMITS[-1], items) for items in _ITEM_LIMITS]
    for characters, items in limits:
        if len(encoded) <= max_bytes:
            return encoded.decode()
        encoded = json.encode(_clip(value, characters, items))
    return encoded.decode() if len(encoded) <= max_bytes else _cut_text(whole.decode(), len(whole), max_bytes)


def _parse(body: bytes, content_type: str) -> Any:
    if content_type.startswith("text/event-stream"):
        return _parse_events(body.decode("utf-8", "replace"))
    try:
        return json.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")


def _parse_events(text: str) -> list[Any]:
    """Return the data of the events of a stream; what is not JSON stays text."""
    events: list[Any] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if lines:
            data = "\n".join(lines)
            try:
                events.append(json.decode(data.encode()))
            except DecodeError:
                events.append(data)
    return events


def _clip(value: Any, characters: int, items: int | None) -> Any:
    if isinstance(value, str):
        left_out = len(value) - characters
        return f"{value[:characters]}... ({left_out:,} more characters)" if left_out > 0 else value
    if isinstance(value, Mapping):
        members = list(cast("Mapping[str, Any]", value).items())
        kept = members if items is None else members[:items]
        clipped = {name[:200]: _clip(member, characters, items) for name, member in kept}
        return clipped | ({"...": f"{len(members) - len(kept):,} more members"} if len(members) > len(kept) else {})
    if isinstance(value, list):
        entries = cast("Sequence[Any]", value)
        if items is None or len(entries) <= items:
            return [_clip(entry, characters, items) for entry in entries]
        first, last = entries[: items // 2], entries[-(items // 2) :]
        note = f"... ({len(entries) - len(first) - len(last):,} more items)"
        return [*(_clip(e, characters, items) for e in first), note, *(_clip(e, characters, items) for e in last)]
    return value


def _cut_text(text: str, size: int, max_bytes: int) -> str:
    """Return the beginning of a text that is not JSON, as a JSON string."""
    kept = redact_secrets(text[: max(0, max_bytes // 6 - 50)])  # a control character takes six bytes
    return json.encode(f"{kept}... ({size:,} bytes in all)").decode()
