"""A real OTLP collector on this machine: it takes spans by HTTP and reads them with OpenTelemetry's own types."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.support.servers.thread_server import serving

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace_id: str
    id: str
    parent_id: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    bodies: list[bytes] = field(default_factory=list[bytes])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        assert path == "/v1/traces"
        with self.changed:
            self.bodies.append(body)
            self.headers.append(headers)
            for group in request.resource_spans:
                resource = {one.key: value_of(one.value) for one in group.resource.attributes}
                for scope in group.scope_spans:
                    self.spans += [to_span(span, resource) for span in scope.spans]
            self.changed.notify_all()

    def wait_for(self, there: Callable[[list[ReceivedSpan]], bool]) -> list[ReceivedSpan]:
        """Wait until the spans that a test needs have come; return all."""
        with self.changed:
            assert self.changed.wait_for(lambda: there(self.spans), TIMEOUT_S), [span.name for span in self.spans]
            return list(self.spans)

    def wait_for_trace(self, root: str, count: int = 1) -> list[ReceivedSpan]:
        """Wait until spans of that name have ended: those below them have, too."""
        return self.wait_for(lambda spans: sum(span.name == root for span in spans) >= count)


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    found: Any = getattr(value, kind) if kind else None
    return [value_of(one) for one in found.values] if kind == "array_value" else found


def to_span(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.status.code == 2,
        {one.key: value_of(one.value) for one in span.attributes},
        resource,
    )


@contextmanager
def collecting() -> Generator[Collector]:
    """Run a collector until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, dict(self.headers), body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Handler) as collector.url:
        yield collector
