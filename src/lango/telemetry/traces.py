"""Trace turns with OpenTelemetry, if an OTLP endpoint is set or the program has its own tracer provider.

ADK sends its spans to the global tracer provider. Ours go the same way, so that a turn is a single trace: the request,
the turn, and below it ADK's agents, model calls and tools. Message content is left out unless
`telemetry.capture_content` is set. The SDK and its exporter are imported only if traces are exported.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from lango.config import TelemetrySettings
from lango.errors import ConfigError, MissingDependency
from lango.threads import run_in_own_thread

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from lango.telemetry.export import SpanRouter

_log = logging.getLogger("lango.telemetry")

T = TypeVar("T")
Attributes = Mapping[str, str | int | float | bool]

_TRACES = "v1/traces"
_STOP_S = 3.0
_PROTOCOL = "http/protobuf"

_router: "SpanRouter | None" = None


def traces_endpoint(settings: TelemetrySettings) -> str:
    """Return the endpoint for traces, from the settings or OpenTelemetry's variables, or "" if traces are off."""
    if address := settings.otlp_endpoint:
        return address if address.endswith(_TRACES) else f"{address.rstrip('/')}/{_TRACES}"
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() in ("1", "true")
    if is_disabled or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return ""
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return endpoint or (f"{base.rstrip('/')}/{_TRACES}" if base else "")


def is_tracing() -> bool:
    """Whether a tracer provider is installed."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def tracer() -> "Tracer":
    """Return Lango's tracer."""
    from opentelemetry import trace

    return trace.get_tracer("lango")


def current_trace_ids() -> dict[str, str]:
    """Return the ids of the current trace and span for log lines; empty without tracing."""
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace else None
    if context is None or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def run_in_span(
    name: str,
    attributes: Attributes,
    work: Coroutine[Any, Any, T],
    final_attributes: Callable[[], Attributes],
    parent: Mapping[str, str] | None = None,
) -> tuple[Coroutine[Any, Any, T], str]:
    """Return work that runs in its own span, and the id of its trace. The span is a child of the caller's.

    With `parent`, the ids that `current_trace_ids` returned in another process, it is a child of that span instead.

    `final_attributes` is called at the end; the attribute `error.type` marks the span as failed.
    """
    if not is_tracing():
        return work, ""
    context = _remote_context(parent) if parent else None
    span = tracer().start_span(name, context, attributes=dict(attributes))
    return _run_in_span(span, work, final_attributes), f"{span.get_span_context().trace_id:032x}"


def _remote_context(ids: Mapping[str, str]) -> "Context":
    from opentelemetry import trace

    trace_id, span_id = int(ids["trace_id"], 16), int(ids["span_id"], 16)
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    parent = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=sampled)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


async def _run_in_span(span: "Span", work: Coroutine[Any, Any, T], ended: Callable[[], Attributes]) -> T:
    from opentelemetry import trace

    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return await work
    finally:
        end_span(span, ended())


def end_span(span: "Span", attributes: Attributes) -> None:
    """End a span with its last attributes."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attributes(dict(attributes))
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


@asynccontextmanager
async def export_spans(settings: TelemetrySettings) -> AsyncGenerator[None, None]:
    """Export spans while the context is open, if an endpoint is set. Remaining spans are sent at the end.

    Raise `ConfigError` for an unsupported protocol, or `MissingDependency`.
    """
    endpoint = traces_endpoint(settings)
    router = _span_router(settings) if endpoint else None
    if router is None:
        yield
        return
    stop = router.add(endpoint, settings)
    try:
        yield
    finally:
        await _stop_within_limit(stop)


def _span_router(settings: TelemetrySettings) -> "SpanRouter | None":
    """Return the span router of this process, or None if a package is missing, or the program has its own tracing."""
    global _router  # a process has one tracer provider, and it cannot be set twice
    if _router is not None:
        return _router
    try:
        from lango.telemetry.export import SpanRouter
    except ImportError as error:
        needed = 'traces need a package that is not installed: pip install "lango-adk[otel]"'
        if settings.otlp_endpoint:
            raise MissingDependency(needed) from error
        _log.warning("%s", needed)  # the environment variable may be meant for other programs
        return None
    if is_tracing():
        _log.info("this program already has a tracer provider: telemetry.otlp_endpoint is not used")
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", _PROTOCOL)
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    if protocol != _PROTOCOL:
        raise ConfigError(
            f"traces can only be sent over {_PROTOCOL}, but OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}: set "
            f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL={_PROTOCOL} and the collector's HTTP port, usually 4318"
        )
    _router = SpanRouter()
    return _router


async def _stop_within_limit(stop: Callable[[], None]) -> None:
    """Stop an exporter in a thread, and do not wait for a collector that does not answer."""
    try:
        async with asyncio.timeout(_STOP_S):
            await run_in_own_thread(stop)
    except TimeoutError:
        _log.warning("the last spans could not be sent within %g s and are lost", _STOP_S)
