"""Send spans to OTLP collectors, without message content unless the settings allow it.

Importing this module imports OpenTelemetry's SDK and its exporter.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status
from typing_extensions import override

from lango.config import TelemetrySettings

_TIMEOUT_S = 5.0
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
# attributes with messages, arguments or results, as ADK and OpenTelemetry's conventions name them
_CONTENT_ATTRIBUTES = frozenset(
    {
        "exception.message",
        "exception.stacktrace",
        "gcp.vertex.agent.data",
        "gcp.vertex.agent.llm_request",
        "gcp.vertex.agent.llm_response",
        "gcp.vertex.agent.tool_call_args",
        "gcp.vertex.agent.tool_response",
        "gen_ai.completion",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.prompt",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    }
)


class SpanRouter(SpanProcessor):
    """Passes the spans of this process to the exporters of its open runtimes."""

    def __init__(self) -> None:
        """Install a tracer provider for the process, with this as its only processor."""
        self._processors: tuple[SpanProcessor, ...] = ()
        named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        known = {"service.version": version("lango-adk")} | ({} if named else {"service.name": "lango"})
        provider = TracerProvider(resource=Resource.create(known), shutdown_on_exit=False)
        provider.add_span_processor(self)
        trace.set_tracer_provider(provider)

    def add(self, endpoint: str, settings: TelemetrySettings) -> Callable[[], None]:
        """Send spans to an endpoint from now on; return a function that sends the remaining ones and stops."""
        timeout_s = None if any(name in os.environ for name in _TIMEOUTS) else _TIMEOUT_S
        exporter: SpanExporter = OTLPSpanExporter(endpoint, timeout=timeout_s)
        if not settings.capture_content:
            exporter = RedactingExporter(exporter)
        processor = BatchSpanProcessor(exporter)
        self._processors = (*self._processors, processor)

        def stop() -> None:
            self._processors = tuple(other for other in self._processors if other is not processor)
            processor.shutdown()

        return stop

    @override
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        for processor in self._processors:
            processor.on_start(span, parent_context)

    @override
    def on_end(self, span: ReadableSpan) -> None:
        for processor in self._processors:
            processor.on_end(span)


class RedactingExporter(SpanExporter):
    """Removes messages, arguments and results from spans before another exporter gets them."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_without_content(span) for span in spans])

    @override
    def shutdown(self) -> None:
        self._exporter.shutdown()


def _without_content(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_without_content_attributes(span.attributes),
        events=[
            Event(event.name, _without_content_attributes(event.attributes), event.timestamp) for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),  # its description is the error's message
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _without_content_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (attributes or {}).items() if name not in _CONTENT_ATTRIBUTES}
