"""Read JSON bodies within bounds, and write any stored value as JSON.

A value that one client stored must not break the responses to another. A lone surrogate is written as its escape, NaN
and infinities as `null`, and bytes in base64.
"""

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson
from fastapi import HTTPException, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from lango.events import to_plain_values
from lango.json_input import TooManyValues, read_counted

_LEVELS = 6
_SENT_AT_ONCE = 1_000_000


class JsonResponse(JSONResponse):
    """A JSON response with any stored value."""

    @override
    def render(self, content: Any) -> bytes:
        """Encode the body."""
        try:
            return _encode(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return _encode(content, ensure_ascii=True).encode()
        except ValueError:
            return _encode(without_nan(content), ensure_ascii=True).encode()


class _LargeResponse(JsonResponse):
    """Encodes the first levels of a value piece by piece: other threads run in between."""

    @override
    def render(self, content: Any) -> bytes:
        return _in_pieces(content, _LEVELS, super().render)

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body in pieces: passing tens of megabytes at once would hold the event loop."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, len(body), _SENT_AT_ONCE):
            await send({"type": "http.response.body", "body": body[start : start + _SENT_AT_ONCE], "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


async def large_response(make: Callable[[], Any], status: int = 200) -> JsonResponse:
    """Build and encode a value of any size in a thread, so that it does not hold the event loop."""
    return await asyncio.to_thread(lambda: _LargeResponse(make(), status))


def _in_pieces(value: Any, levels: int, render: Callable[[Any], bytes]) -> bytes:
    if levels and isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return b"{%b}" % b",".join(render(name) + b":" + _in_pieces(item, levels - 1, render) for name, item in members)
    if levels and isinstance(value, list):
        return b"[%b]" % b",".join(_in_pieces(item, levels - 1, render) for item in cast("list[Any]", value))
    if isinstance(value, str):
        with contextlib.suppress(orjson.JSONEncodeError):  # a lone surrogate
            return orjson.dumps(value)  # encodes a long text five times as fast
    return render(value)


def _encode(content: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(content, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"), default=in_json)


def tool_value_text(value: Mapping[str, Any]) -> str:
    """Return a tool's arguments or result as JSON text, as other protocols carry it."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):  # a value that only Python can hold
        return json.dumps(without_nan(to_plain_values(value)))


def in_json(value: Any) -> Any:
    """Return a JSON value for a value of another type."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


def without_nan(value: Any) -> Any:
    """Return a value with `None` in the place of NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in cast("list[Any]", value)]
    return value


class JsonRequest(Request):
    """A request whose JSON is read within the bounds of `lango.json_input`."""

    @override
    async def json(self) -> Any:
        try:
            return read_counted(await self.body())
        except TooManyValues as error:
            raise HTTPException(413, str(error)) from error
        except json.JSONDecodeError:  # includes those of orjson
            raise
        except (ValueError, RecursionError) as error:  # a lone surrogate, too many levels
            raise json.JSONDecodeError("not JSON", "", 0) from error
