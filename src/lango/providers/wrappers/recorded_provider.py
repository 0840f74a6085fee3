"""Keep the requests to a provider and its responses, for the trace of a session."""

import time
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import json, to_builtins

from lango.providers.call_log import Exchange, current_call_log, current_exchange, describe_error
from lango.providers.protocol import Closable, Delta, Provider, Request, closing_stream


class RecordedProvider:
    """Wraps a provider, and has its name. An SDK's HTTP client notes what it sends; see `lango.providers.sdk.wire`."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self._provider.name

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        log = current_call_log.get()
        if log is None or log.exchanges is None:
            async with closing_stream(self._provider.stream(request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        exchange, started, seen = Exchange(self.name, request.model), time.monotonic(), list[Delta]()
        current_exchange.set(exchange)
        log.exchanges.append(exchange)
        try:
            async with closing_stream(self._provider.stream(request)) as deltas:
                async for delta in deltas:
                    if not exchange.url:
                        seen.append(delta)
                    yield delta
        except Exception as error:
            exchange.error = describe_error(error)
            raise
        finally:
            exchange.duration_s = time.monotonic() - started
            current_exchange.set(None)
            if not exchange.url:
                _note_local(exchange, request, seen)

    async def aclose(self) -> None:
        """Close the connections of the wrapped provider."""
        if isinstance(self._provider, Closable):
            await self._provider.aclose()


def _note_local(exchange: Exchange, request: Request, deltas: list[Delta]) -> None:
    """Note what a provider without HTTP was asked and answered: Lango's own request, and the deltas."""
    exchange.request = _encode(request)
    exchange.response_type = "application/json"
    exchange.add_response(_encode([{"type": type(delta).__name__, **to_builtins(delta)} for delta in deltas]))


def _encode(value: Any) -> bytes:
    try:
        return json.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError) as error:  # half a surrogate pair, in a model's own text
        return json.encode(f"not JSON: {error}")
