"""Traces through OpenTelemetry: off unless an OTLP endpoint is set, or the program has a tracer of its own.

ADK tells its steps to the global tracer provider; what is told here goes the same way, so that a turn is one trace:
the request, the turn, and below it ADK's agents, model calls and tools. What was said in them stays out of it unless
`telemetry.capture_content` asks for it. The SDK and its exporter are imported only where traces are wanted.
"""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from lango.config import TelemetrySettings
from lango.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
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
    """Return where traces go: as the settings say, else as OpenTelemetry's own variables do; empty: nowhere."""
    if settings.otlp_endpoint:
        return _with_path(settings.otlp_endpoint)
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp" or _flag_is_set("OTEL_SDK_DISABLED"):
        return ""
    whole = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return whole or (f"{base.rstrip('/')}/{_TRACES}" if base else "")


def _with_path(address: str) -> str:
    return address if address.endswith(_TRACES) else f"{address.rstrip('/')}/{_TRACES}"


def _flag_is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true")


def is_tracing() -> bool:
    """Whether anybody takes spans."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def tracer() -> "Tracer":
    """Return our tracer."""
    from opentelemetry import trace

    return trace.get_tracer("lango")


def current_trace_ids() -> dict[str, str]:
    """Return the ids of the trace and span that this code runs in, as a log shows them."""
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace else None
    if context is None or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def run_in_span(
    name: str, attributes: Attributes, work: Coroutine[Any, Any, T], final_attributes: Callable[[], Attributes]
) -> tuple[Coroutine[Any, Any, T], str]:
    """Return work that runs in a span of its own, and the id of its trace. The span is a child of the caller's.

    `ended` says what is known at the end; `error.type` among it marks a span that failed.
    """
    if not is_tracing():
        return work, ""
    span = tracer().start_span(name, attributes=dict(attributes))
    return _run_in_span(span, work, final_attributes), f"{span.get_span_context().trace_id:032x}"


async def _run_in_span(span: "Span", work: Coroutine[Any, Any, T], ended: Callable[[], Attributes]) -> T:
    from opentelemetry import trace

    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return await work
    finally:
        end_span(span, ended())


def end_span(span: "Span", attributes: Attributes) -> None:
    """End a span with what is known now."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attributes(dict(attributes))
    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


@asynccontextmanager
async def export_spans(settings: TelemetrySettings) -> AsyncGenerator[None, None]:
    """Export spans while the context is open, if an endpoint is set; what is left is sent at the end, for a moment.

    Raises `ConfigError` for what cannot work, or `MissingDependency`.
    """
    where = traces_endpoint(settings)
    if not where:
        yield
        return
    switch = _span_router(settings)
    if switch is None:
        yield
        return
    stop = switch.add(where, settings)
    try:
        yield
    finally:
        await _stop_within_limit(stop)


def _span_router(settings: TelemetrySettings) -> "SpanRouter | None":
    """Return what takes the spans of this process; None: it cannot, or somebody else does."""
    global _router  # a process has one tracer provider, and it cannot be set twice
    if _router is not None:
        return _router
    try:
        from lango.telemetry.export import SpanRouter
    except ImportError as error:
        needed = 'traces need a package that is not installed: pip install "lango-adk[otel]"'
        if settings.otlp_endpoint:
            raise MissingDependency(needed) from error
        _log.warning("%s", needed)  # a variable of the machine may be meant for others
        return None
    if is_tracing():
        _log.info("this program traces already: telemetry.otlp_endpoint is not used")
        return None
    _check_protocol()
    _router = SpanRouter(settings.service_name)
    return _router


def _check_protocol() -> None:
    named = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", _PROTOCOL)
    named = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", named)
    if named != _PROTOCOL:
        raise ConfigError(
            f"traces are sent by {_PROTOCOL}, and OTEL_EXPORTER_OTLP_PROTOCOL says {named}: set "
            f"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL={_PROTOCOL} and the collector's HTTP port, usually 4318"
        )


async def _stop_within_limit(stop: Callable[[], None]) -> None:
    """Do what may block, and leave it behind where it takes long: a collector that is away must not hold us up."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        try:
            stop()
        finally:
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=work, name="lango-telemetry-stop", daemon=True).start()
    try:
        async with asyncio.timeout(_STOP_S):
            await done.wait()
    except TimeoutError:
        _log.warning("the last spans were not taken within %g s and are lost", _STOP_S)
