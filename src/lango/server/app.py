"""Build the ASGI app: routes, middleware, the error bodies of each protocol, and the runtime behind them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from lango import __version__
from lango.config import Settings
from lango.runtime.opening import OpenedAgents
from lango.runtime.runtime import Runtime
from lango.server import errors
from lango.server.api import agent_routes, health_routes, schedule_routes
from lango.server.api.sessions import (
    artifact_routes,
    memory_routes,
    message_routes,
    option_routes,
    playground_routes,
    session_routes,
    state_routes,
    trace_routes,
    usage_routes,
)
from lango.server.api.turns import (
    background_routes,
    credential_routes,
    event_routes,
    trigger_routes,
    turn_routes,
    wait_routes,
    webhook_routes,
    websocket,
)
from lango.server.api.turns.wait_schemas import answer_component
from lango.server.compat.a2a import a2a_routes
from lango.server.compat.a2a.a2a_routes import rest_error_body, rpc_error_body
from lango.server.compat.adk import adk_routes
from lango.server.compat.adk import artifact_routes as adk_artifact_routes
from lango.server.compat.agui import agui_routes
from lango.server.compat.anthropic import anthropic_routes
from lango.server.compat.anthropic.message_view import AnthropicErrorBody, anthropic_error_body
from lango.server.compat.mcp import mcp_routes
from lango.server.compat.openai import embedding_routes, openai_routes
from lango.server.compat.openai.completion import OpenAiErrorBody, openai_error_body
from lango.server.compat.openai.conversations import conversation_routes
from lango.server.compat.openai.files import file_routes
from lango.server.compat.openai.responses import response_routes, response_socket
from lango.server.compat.openai.responses.response_view import response_error_body
from lango.server.context import ServedAgents
from lango.server.errors import ApiError, error_body, path_without_secret
from lango.server.openapi import complete_openapi, struct_components
from lango.server.schemas import ErrorBody
from lango.server.security.middleware import RequestGuard
from lango.server.web import eval_routes, model_routes, page_routes
from lango.telemetry.traces import end_span, is_tracing, tracer, traces_endpoint


def _adk_error_body(error: ApiError) -> Mapping[str, Any]:
    return {"detail": str(error)} | error_body(error)


_BY_PATH: tuple[tuple[re.Pattern[str], Callable[[ApiError], Mapping[str, Any]]], ...] = (
    (re.compile(r"/v1/(chat|models|embeddings|files)(/.*)?", re.DOTALL), openai_error_body),
    (re.compile(r"/v1/(responses|conversations)(/.*)?", re.DOTALL), response_error_body),
    (re.compile(r"/v1/messages(/.*)?", re.DOTALL), anthropic_error_body),
    (re.compile(r"/a2a/[^/]+|/mcp"), rpc_error_body),
    (re.compile(r"/a2a/[^/]+/v1/.*", re.DOTALL), rest_error_body),
    (re.compile(r"/(run|run_sse|list-apps|version|(apps|dev|agent-identity)/.*)", re.DOTALL), _adk_error_body),
)


def error_body_for(path: str, error: ApiError) -> Mapping[str, Any]:
    """Return the body of an error response to a request for a path."""
    for pattern, make_body in _BY_PATH:
        if pattern.fullmatch(path):
            return make_body(error)
    return error_body(error)


_DESCRIPTION = """\
A durable agent over HTTP. A message is stored before it is answered. Its turn continues when the client leaves, and its
events can be read again from any process on the same store: those of a session's newest 50 turns from any point,
exactly as they were sent. Of an older turn, each text is one event; resuming in the middle of such a text is answered
with 410.

A server may have several agents: `GET /v1/agents` lists them, and a session belongs to one of them. `?agent=NAME` in
any request names the agent; without it, that of the session, else the first one answers.
"""

_ROUTERS = (
    eval_routes.router,
    model_routes.router,
    page_routes.router,
    health_routes.router,
    agent_routes.router,
    schedule_routes.router,
    session_routes.router,
    turn_routes.router,
    background_routes.router,
    wait_routes.router,
    trigger_routes.router,
    event_routes.router,
    webhook_routes.router,
    message_routes.router,
    artifact_routes.router,
    credential_routes.router,
    credential_routes.callback_router,
    option_routes.router,
    playground_routes.router,
    usage_routes.router,
    usage_routes.all_sessions_router,
    trace_routes.router,
    state_routes.router,
    memory_routes.router,
    websocket.router,
    openai_routes.router,
    embedding_routes.router,
    conversation_routes.router,
    file_routes.router,
    response_routes.router,
    response_socket.router,
    anthropic_routes.router,
    agui_routes.router,
    a2a_routes.router,
    mcp_routes.router,
    adk_routes.router,
    adk_artifact_routes.router,
)

# requested every few seconds by monitoring
_UNTRACED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class _App(FastAPI):
    """Declares errors as the server sends them, where FastAPI would declare others."""

    @override
    def openapi(self) -> dict[str, Any]:
        is_first_call = self.openapi_schema is None
        schema = super().openapi()
        if is_first_call:
            bodies = [ErrorBody, OpenAiErrorBody, AnthropicErrorBody]
            complete_openapi(schema, bodies, struct_components() | answer_component())
        return schema


def create_app(settings: Settings, runtime: Runtime | OpenedAgents | None = None) -> FastAPI:
    """Build the app of one runtime or several. Without any, it only has routes that are described, and answers none."""
    app = _App(
        title="Lango",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # its page loads scripts from other hosts
        redoc_url=None,
        # `TracingMiddleware` creates the spans: without query strings, and none for a WebSocket
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    match runtime:
        case None:
            pass
        case OpenedAgents():
            app.state.context = ServedAgents(settings, runtime.runtimes, runtime).default
        case Runtime():
            app.state.context = ServedAgents(settings, [runtime]).default
    for router in _ROUTERS:  # as they are: FastAPI would build each route again when the first request comes
        app.router.routes.extend(router.routes)
    if settings.server.adk_ui:
        from lango.server.compat.adk import dev_ui_routes

        dev_ui_routes.add_dev_ui(app)
    errors.install_error_handlers(app, error_body_for)
    if settings.server.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.allowed_origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=[
                *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Session-Id"),
                *("X-Api-Key", "Anthropic-Version", "Anthropic-Beta"),
                *("Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"),
            ],
            expose_headers=["Retry-After", "X-Session-Id", "Mcp-Session-Id", errors.REQUEST_ID],
        )
    if is_tracing() or traces_endpoint(settings.telemetry):
        app.add_middleware(TracingMiddleware)
    app.add_middleware(
        RequestGuard,
        settings=settings.server,
        max_artifact_bytes=settings.store.max_artifact_bytes,
        max_trigger_bytes=max(
            (trigger.max_bytes for trigger in settings.triggers.values()), default=settings.server.limits.max_body_bytes
        ),
        make_error_body=error_body_for,
    )
    return app


class TracingMiddleware:
    """ASGI middleware that creates a span per request. A WebSocket has none: each of its turns is a trace."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request in a span."""
        if scope["type"] != "http" or scope["path"] in _UNTRACED_PATHS:
            await self._app(scope, receive, send)
            return
        from opentelemetry import propagate, trace

        method: str = scope["method"]
        parent = propagate.extract(dict(Headers(scope=scope)))
        initial_attributes = {
            "http.request.method": method,
            "url.path": path_without_secret(scope["path"]),
            "url.scheme": scope["scheme"],
        }
        span = tracer().start_span(method, parent, trace.SpanKind.SERVER, initial_attributes)
        attributes: dict[str, str | int] = {}

        async def send_and_note_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                attributes["http.response.status_code"] = message["status"]
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._app(scope, receive, send_and_note_status)
        finally:
            if route := getattr(scope.get("route"), "path", ""):
                attributes["http.route"] = route
                span.update_name(f"{method} {route}")
            if int(attributes.get("http.response.status_code", 500)) >= 500:
                attributes["error.type"] = str(attributes.get("http.response.status_code", "cut off"))
            end_span(span, attributes)
