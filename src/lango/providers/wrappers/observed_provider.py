"""Observe a provider: a span for each request, and its requests and responses for the trace of a session."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec import json, to_builtins

from lango.providers.call_log import Exchange, current_call_log, describe_error
from lango.providers.protocol import Closable, Delta, Finish, Provider, Request, UsageDelta, closing_stream
from lango.telemetry.traces import end_span, tracer

Observer = Callable[[str, Request], AbstractContextManager[Callable[[Delta], None]]]
"""Observes one request to a provider of a name; each delta of its answer is passed to what it yields."""


class ObservedProvider:
    """Wraps a provider, and has its name."""

    def __init__(self, provider: Provider, observe: Observer) -> None:
        self.name = provider.name
        self.records_requests = records_requests(provider)
        self._provider = provider
        self._observe = observe

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        with self._observe(self.name, request) as note:
            async with closing_stream(self._provider.stream(request)) as deltas:
                async for delta in deltas:
                    note(delta)
                    yield delta

    async def aclose(self) -> None:
        """Close the connections of the wrapped provider."""
        if isinstance(self._provider, Closable):
            await self._provider.aclose()


def records_requests(provider: Provider) -> bool:
    """Whether a provider keeps its requests for the trace, so that its caller does not."""
    return getattr(provider, "records_requests", False)


@contextmanager
def trace_request(provider: str, request: Request) -> Generator[Callable[[Delta], None]]:
    """Create a span for a request."""
    from opentelemetry.trace import SpanKind

    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request.model,
    }
    # not the current span: a generator may be closed in another context
    span = tracer().start_span(f"chat {request.model}", kind=SpanKind.CLIENT, attributes=attributes)
    results: dict[str, Any] = {}

    def note(delta: Delta) -> None:
        if isinstance(delta, UsageDelta):
            counts = {"input_tokens": delta.input_tokens, "output_tokens": delta.output_tokens}
            results.update({f"gen_ai.usage.{name}": count for name, count in counts.items() if count is not None})
        elif isinstance(delta, Finish):
            results["gen_ai.response.finish_reasons"] = [delta.reason]
            results.update({"gen_ai.response.model": delta.model} if delta.model else {})

    try:
        yield note
    except Exception as error:
        results["error.type"] = type(error).__name__
        raise
    finally:
        end_span(span, results)


@contextmanager
def record_request(provider: str, request: Request) -> Generator[Callable[[Delta], None]]:
    """Keep a request and its response, if the current call log does; an SDK's HTTP client notes what it sends."""
    log = current_call_log.get()
    if log is None or log.exchanges is None:
        yield lambda _: None
        return
    exchange, seen = Exchange(provider, request.model), list[Delta]()
    log.exchanges.append(exchange)

    def note(delta: Delta) -> None:
        exchange.answer.add(delta)
        if not exchange.url:
            seen.append(delta)

    try:
        yield note
    except Exception as error:
        exchange.end(describe_error(error))
        raise
    finally:
        exchange.end()
        if not exchange.url:  # a provider without HTTP: Lango's own request, and the deltas
            exchange.request = _encode(request)
            exchange.response_type = "application/json"
            exchange.add_response(_encode([{"type": type(delta).__name__, **to_builtins(delta)} for delta in seen]))


def _encode(value: Any) -> bytes:
    try:
        return json.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError) as error:  # half a surrogate pair, in a model's own text
        return json.encode(f"not JSON: {error}")
