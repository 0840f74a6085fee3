"""JSON responses that can hold every value that the store can: a value that one client stored must not break another.

JSON and UTF-8 cannot hold some values that Python can. Half a character is written as its escape, NaN and infinities as
`null`, and bytes in base64.
"""

import asyncio
import base64
import json
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, cast

import orjson
from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from lango.json_input import TooManyValues, read_counted
from lango.json_pieces import PIECE

_LEVELS = 6
_SENT_AT_ONCE = 1_000_000


class JsonResponse(JSONResponse):
    """Says any value that was stored."""

    @override
    def render(self, content: Any) -> bytes:
        """Return the body."""
        return _rendered(content)


class LargeResponse(Response):
    """Writes and sends the first levels of a value piece by piece, so that other threads and requests run in between.

    The pieces are never one: to join or to copy tens of megabytes is one long call.
    """

    media_type = "application/json"

    def __init__(self, content: Any, status: int) -> None:
        self.pieces = _gathered(_in_pieces(content, _LEVELS))
        super().__init__(status_code=status, headers={"Content-Length": str(sum(map(len, self.pieces)))})

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


async def large_response(make: Callable[[], Any], status: int = 200) -> LargeResponse:
    """Make and write a value of any size in a thread, so that it does not hold the event loop."""
    return await asyncio.to_thread(lambda: LargeResponse(make(), status))


def _gathered(pieces: Iterable[bytes]) -> list[bytes]:
    """Join small pieces, a megabyte at a time."""
    gathered: list[bytes] = []
    some = bytearray()
    for piece in pieces:
        some += piece
        if len(some) >= _SENT_AT_ONCE:
            gathered.append(bytes(some))
            some.clear()
    return [*gathered, bytes(some)]


def _in_pieces(value: Any, levels: int) -> Iterator[bytes]:
    if levels and value and isinstance(value, dict):
        for number, (name, one) in enumerate(cast("dict[str, Any]", value).items()):
            yield b"," if number else b"{"
            yield from _text(name)
            yield b":"
            yield from _in_pieces(one, levels - 1)
        yield b"}"
    elif levels and value and isinstance(value, list):
        for number, one in enumerate(cast("list[Any]", value)):
            yield b"," if number else b"["
            yield from _in_pieces(one, levels - 1)
        yield b"]"
    elif isinstance(value, str):
        yield from _text(value)
    else:
        yield _rendered(value)


def _text(text: str) -> Iterator[bytes]:
    if len(text) <= PIECE:
        yield _quoted(text)
        return
    yield b'"'
    for start in range(0, len(text), PIECE):
        yield _quoted(text[start : start + PIECE])[1:-1]
    yield b'"'


def _quoted(text: str) -> bytes:
    try:
        return orjson.dumps(text)  # a long text at a fifth of the time
    except orjson.JSONEncodeError:  # half a character
        return _rendered(text)


def _rendered(content: Any) -> bytes:
    try:
        return _encode(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _encode(content, ensure_ascii=True).encode()
    except ValueError:
        return _encode(without_nan(content), ensure_ascii=True).encode()


def _encode(content: Any, *, ensure_ascii: bool) -> str:
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


class JsonRequest(Request):
    """A request whose JSON is read with the bounds of `lango.json_input`."""

    @override
    async def json(self) -> Any:
        try:
            return read_counted(await self.body())
        except TooManyValues as error:
            raise HTTPException(413, str(error)) from error
        except json.JSONDecodeError:  # orjson's errors are such ones, too
            raise
        except (ValueError, RecursionError) as error:  # half a character in UTF-8, too many levels
            raise json.JSONDecodeError("not JSON", "", 0) from error


class JsonRoute(APIRoute):
    """A route that reads its body so."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_with_bounded_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_with_bounded_json
