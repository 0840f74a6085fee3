"""Observe a provider: a span for each request, and its requests and responses for the trace of a session."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import json, to_builtins
from typing_extensions import override

from lango.providers.call_log import Exchange, current_call_log, current_exchange, describe_error
from lango.providers.protocol import Closable, Delta, Finish, Provider, Request, UsageDelta, closing_stream
from lango.telemetry.traces import end_span, tracer


class _ObservedProvider(ABC):
    """Wraps a provider, and has its name."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self._provider.name

    @abstractmethod
    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""

    async def aclose(self) -> None:
        """Close the connections of the wrapped provider."""
        if isinstance(self._provider, Closable):
            await self._provider.aclose()


class TracedProvider(_ObservedProvider):
    """Creates a span for each request."""

    @override
    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        from opentelemetry.trace import SpanKind

        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self.name,
            "gen_ai.request.model": request.model,
        }
        # not the current span: a generator may be closed in another context
        span = tracer().start_span(f"chat {request.model}", kind=SpanKind.CLIENT, attributes=attributes)
        results: dict[str, Any] = {}
        try:
            async with closing_stream(self._provider.stream(request)) as deltas:
                async for delta in deltas:
                    _record(delta, results)
                    yield delta
        except Exception as error:
            results["error.type"] = type(error).__name__
            raise
        finally:
            end_span(span, results)


class RecordedProvider(_ObservedProvider):
    """Keeps requests and responses. An SDK's HTTP client notes what it sends; see `lango.providers.sdk.wire`."""

    @override
    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
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


def _record(delta: Delta, found: dict[str, Any]) -> None:
    match delta:
        case UsageDelta():
            if delta.input_tokens is not None:
                found["gen_ai.usage.input_tokens"] = delta.input_tokens
            if delta.output_tokens is not None:
                found["gen_ai.usage.output_tokens"] = delta.output_tokens
        case Finish():
            found["gen_ai.response.finish_reasons"] = [delta.reason]
            if delta.model:
                found["gen_ai.response.model"] = delta.model
        case _:
            pass


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
