"""Record a trace span for each request to a provider."""

from collections.abc import AsyncGenerator
from typing import Any

from lango.providers.protocol import Closable, Delta, Finish, Provider, Request, UsageDelta, closing_stream
from lango.telemetry.traces import end_span, tracer


class TracedProvider:
    """Wraps a provider, and has its name."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self._provider.name

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
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

    async def aclose(self) -> None:
        """Close the connections of the wrapped provider."""
        if isinstance(self._provider, Closable):
            await self._provider.aclose()


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
