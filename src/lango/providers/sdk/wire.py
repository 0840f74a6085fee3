"""Note what the HTTP clients of the vendors' SDKs send and receive.

The hooks do nothing unless the current model call keeps its requests. Headers are not kept: they hold the keys.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lango.providers.call_log import Exchange, current_exchange

Hook = Callable[[Any], Coroutine[Any, Any, None]]


def http_hooks() -> dict[str, list[Hook]]:
    """Return the event hooks for an HTTP client of httpx."""
    return {"request": [note_request], "response": [note_response]}


async def note_request(request: Any) -> None:
    """Note the body of a request before it is sent."""
    exchange = current_exchange.get()
    if exchange is None:
        return
    exchange.url = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}{request.url.path}"
    exchange.request = request.content
    request.headers["accept-encoding"] = "identity"  # the bytes of the response are kept as they come


async def note_response(response: Any) -> None:
    """Note the status of a response, and its body while the SDK reads it."""
    exchange = current_exchange.get()
    if exchange is None:
        return
    exchange.status = response.status_code
    exchange.response_type = response.headers.get("content-type", "")
    response.stream = _copying_stream(response.stream, exchange)


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
