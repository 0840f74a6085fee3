"""JSON responses that can hold every value that the store can: a value that one client stored must not break another.

JSON and UTF-8 cannot hold some values that Python can. Half a character is written as its escape, NaN and infinities as
`null`, and bytes in base64.
"""

import asyncio
import base64
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import orjson
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from lango.json_pieces import PIECE

_LEVELS = 6
_SENT_AT_ONCE = 1_000_000


class JsonResponse(JSONResponse):
    """Says any value that was stored."""

    @override
    def render(self, content: Any) -> bytes:
        """Return the body."""
        try:
            return _dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return _dumps(content, ensure_ascii=True).encode()
        except ValueError:
            return _dumps(without_nan(content), ensure_ascii=True).encode()


class _LargeResponse(JsonResponse):
    """Writes the first levels of a value piece by piece: other threads run in between."""

    @override
    def render(self, content: Any) -> bytes:
        return b"".join(list(_in_pieces(content, _LEVELS, super().render)))

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body in pieces: to hand over tens of megabytes at once takes long, too."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, len(body), _SENT_AT_ONCE):
            await send({"type": "http.response.body", "body": body[start : start + _SENT_AT_ONCE], "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


async def large_response(make: Callable[[], Any], status: int = 200) -> JsonResponse:
    """Make and write a value of any size in a thread, so that it does not hold the event loop."""
    return await asyncio.to_thread(lambda: _LargeResponse(make(), status))


def _in_pieces(value: Any, levels: int, render: Callable[[Any], bytes]) -> Iterator[bytes]:
    if levels and value and isinstance(value, dict):
        for number, (name, one) in enumerate(cast("dict[str, Any]", value).items()):
            yield b"," if number else b"{"
            yield from _text(name, render)
            yield b":"
            yield from _in_pieces(one, levels - 1, render)
        yield b"}"
    elif levels and value and isinstance(value, list):
        for number, one in enumerate(cast("list[Any]", value)):
            yield b"," if number else b"["
            yield from _in_pieces(one, levels - 1, render)
        yield b"]"
    elif isinstance(value, str):
        yield from _text(value, render)
    else:
        yield render(value)


def _text(text: str, render: Callable[[Any], bytes]) -> Iterator[bytes]:
    yield b'"'
    for start in range(0, len(text), PIECE):
        piece = text[start : start + PIECE]
        try:
            yield orjson.dumps(piece)[1:-1]  # a long text at a fifth of the time
        except orjson.JSONEncodeError:  # half a character
            yield render(piece)[1:-1]
    yield b'"'


def _dumps(content: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(content, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"), default=in_json)


def in_json(value: Any) -> Any:
    """Return what stands in JSON for a value that JSON does not know."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


def without_nan(value: Any) -> Any:
    """Return a value with `None` in the place of numbers that JSON does not know."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in cast("list[Any]", value)]
    return value
