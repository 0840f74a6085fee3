"""A span for each request, a child of the caller's own where it sends `traceparent`."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lango.telemetry.traces import end, tracer

# asked every few seconds by machines
_UNTOLD = frozenset({"/healthz", "/readyz", "/metrics"})


class Traced:
    """ASGI middleware inside the guards. A websocket has no span: its messages are turns, each a trace of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in its span."""
        if scope["type"] != "http" or scope["path"] in _UNTOLD:
            await self._app(scope, receive, send)
            return
        from opentelemetry import propagate, trace

        method: str = scope["method"]
        parent = propagate.extract(dict(Headers(scope=scope)))
        about = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope["scheme"]}
        span = tracer().start_span(method, parent, trace.SpanKind.SERVER, about)
        found: dict[str, str | int] = {}

        async def heard(message: Message) -> None:
            if message["type"] == "http.response.start":
                found["http.response.status_code"] = message["status"]
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, heard)
        finally:
            if route := getattr(scope.get("route"), "path", ""):
                found["http.route"] = route
                span.update_name(f"{method} {route}")
            if int(found.get("http.response.status_code", 500)) >= 500:
                found["error.type"] = str(found.get("http.response.status_code", "cut off"))
            end(span, found)
