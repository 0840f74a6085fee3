"""Read JSON bodies within bounds, and write any stored value as JSON.

A value that one client stored must not break the responses to another: what JSON cannot hold is written as
`lango.json_values.to_client_json` converts it.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from fastapi import HTTPException, Request
from starlette.responses import JSONResponse, StreamingResponse
from typing_extensions import override

from lango.events import to_plain_values
from lango.json_values import TooManyValues, read_counted, to_client_json
from lango.threads import run_in_thread

_LEVELS = 6
_SEPARATORS = (",", ":")
_SENT_AT_ONCE = 1_000_000
_READ_AT_ONCE = 100_000
"""In bytes: a larger body is read in a thread. The worst one of this size takes 10 ms, the worst one allowed 200 ms."""
_IN_MEMORY = 1_000_000
"""How much of an unfinished body is held in memory."""


class JsonResponse(JSONResponse):
    """A JSON response with any stored value."""

    @override
    def render(self, content: Any) -> bytes:
        """Encode the body."""
        return _encode_any(content)


async def large_response(make: Callable[[], Any], status: int = 200) -> StreamingResponse:
    """Build and encode a value of any size in a thread, and send it in pieces, so that other requests can run.

    The pieces are never joined: joining or copying tens of megabytes would be one long call.
    """
    pieces = await run_in_thread(lambda: _join_small(_in_pieces(make(), _LEVELS)))
    headers = {"Content-Length": str(sum(map(len, pieces)))}
    return StreamingResponse(_with_pauses(pieces), status, headers, "application/json")


async def _with_pauses(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def _join_small(pieces: Iterable[bytes]) -> list[bytes]:
    """Join small pieces into pieces of a megabyte."""
    joined: list[bytes] = []
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= _SENT_AT_ONCE:
            joined.append(bytes(buffer))
            buffer.clear()
    return [*joined, bytes(buffer)]


def _in_pieces(value: Any, levels: int) -> Iterator[bytes]:
    if levels and value and isinstance(value, dict):
        for number, (name, item) in enumerate(cast("dict[str, Any]", value).items()):
            yield b"," if number else b"{"
            yield _encode_any(name) + b":"
            yield from _in_pieces(item, levels - 1)
        yield b"}"
    elif levels and value and isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield b"," if number else b"["
            yield from _in_pieces(item, levels - 1)
        yield b"]"
    else:
        yield _encode_any(value)


def _encode_any(content: Any) -> bytes:
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=_SEPARATORS).encode()
    except (TypeError, ValueError):  # a value that only Python can hold
        return json.dumps(to_client_json(content), separators=_SEPARATORS, default=str).encode()


def tool_value_text(value: Mapping[str, Any]) -> str:
    """Return a tool's arguments or result as JSON text, as other protocols carry it."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(to_client_json(to_plain_values(value)))


class JsonRequest(Request):
    """A request whose JSON is read within the bounds of `lango.json_values`; its body waits for its end on disk."""

    @override
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
                size = 0
                async for piece in self.stream():
                    size += file.write(piece)
                file.seek(0)
                self._body = file.read() if size <= _IN_MEMORY else await asyncio.to_thread(file.read)
        return self._body

    @override
    async def json(self) -> Any:
        try:
            body = await self.body()
            if len(body) <= _READ_AT_ONCE:
                return read_counted(body)
            return await run_in_thread(read_counted, body)
        except TooManyValues as error:
            raise HTTPException(413, str(error)) from error
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:  # a lone surrogate, too many levels
            raise json.JSONDecodeError("not JSON", "", 0) from error
