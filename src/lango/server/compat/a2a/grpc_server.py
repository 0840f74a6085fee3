"""Serve A2A over gRPC, at a port of its own: the same operations, keys and tasks as over HTTP. Imports `a2a`, `grpc`.

There is no TLS here: a proxy has it, as for HTTP. Browsers cannot speak plain gRPC, so a page of another site cannot
reach a server without keys.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.types import ListTasksRequest
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server  # pyright: ignore[reportUnknownVariableType]
from a2a.utils.errors import A2AError, InternalError
from a2a.utils.grpc_status import GRPC_STATUS_DETAILS_BIN_KEY
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import (
    HandlerCallDetails,
    RpcMethodHandler,
    StatusCode,
    aio,
    stream_stream_rpc_method_handler,
    unary_stream_rpc_method_handler,
    unary_unary_rpc_method_handler,
)
from typing_extensions import override

from lango.config import ServerSettings
from lango.errors import ConfigError, LangoError
from lango.server.compat.a2a.task_handler import Call, TaskHandler
from lango.server.context import AgentUser, ServedAgents
from lango.server.errors import ApiError, to_api_error
from lango.server.security.auth import Authenticator, Caller
from lango.server.security.connections import ConnectionLimits
from lango.server.streaming.sse import RECHECK_CALLER_S, wait_until_refused, with_heartbeats
from lango.telemetry.traces import end_span, is_tracing, tracer
from lango.threads import use_share_of

_RpcHandler: TypeAlias = "RpcMethodHandler[Any, Any] | None"
_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
_RETRYABLE = {429: StatusCode.RESOURCE_EXHAUSTED, 503: StatusCode.UNAVAILABLE}
_STATUS_CODES = _RETRYABLE | {401: StatusCode.UNAUTHENTICATED, 403: StatusCode.PERMISSION_DENIED}
_FAULTS = (StatusCode.INTERNAL, StatusCode.UNAVAILABLE)
_IDLE_CONNECTION_S = 60
_caller: ContextVar[Caller] = ContextVar("lango_grpc_caller")
"""Who called: the interceptor runs in the task of the call, before its message is read."""
_span_attributes: ContextVar[dict[str, str]] = ContextVar("lango_grpc_span_attributes")
"""What the span of the call gets at its end."""


class GrpcServer:
    """The server of A2A over gRPC, for all agents: the tenant of a request names one, else the first answers."""

    def __init__(self, server: aio.Server) -> None:
        self._server = server

    @classmethod
    async def start(cls, agents: ServedAgents, address: str) -> "GrpcServer":
        """Listen beside the HTTP server, whose address is given. Raise `ConfigError` if the port is taken."""
        settings = agents.default.settings.server
        limits = ConnectionLimits.from_settings(settings)
        admission = _Admission(agents.authenticator, limits)
        server = aio.server(
            interceptors=[*([_Tracing()] if is_tracing() else []), admission],
            options=_options(settings, limits),
            maximum_concurrent_rpcs=limits.max_connections,
        )

        def open_call(context: ServerCallContext) -> Call:
            chosen = agents.named(context.tenant) if context.tenant else agents.default
            return Call(AgentUser(chosen, _caller.get()), address, _given_status)

        add_A2AServiceServicer_to_server(_Handler(TaskHandler(open_call)), server)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        where = f"{host}:{settings.a2a.grpc_port}"
        try:
            agents.grpc_port = server.add_insecure_port(where)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {where} for gRPC: choose another port with server.a2a.grpc_port"
            ) from error
        await server.start()
        return cls(server)

    async def stop(self, limit_s: float) -> None:
        """Refuse new calls at once, and wait until those under way have ended, with their turns."""
        await self._server.stop(limit_s)


def _options(settings: ServerSettings, limits: ConnectionLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", int(limits.head_timeout_s * 1000)),
        ("grpc.max_connection_idle_ms", _IDLE_CONNECTION_S * 1000),
        ("grpc.max_receive_message_length", settings.limits.max_body_bytes),
        ("grpc.keepalive_time_ms", int(settings.heartbeat_s * 1000)),  # finds clients that are gone without a word
        ("grpc.keepalive_timeout_ms", int(settings.write_timeout_s * 1000)),
        ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ]


async def _given_status(request: ListTasksRequest) -> int:
    return request.status  # protobuf keeps an unknown number


class _Handler(GrpcHandler):
    """Ends a call that may succeed later with gRPC's status for that: the SDK, without such an error, says INTERNAL."""

    @override
    async def abort_context(self, error: A2AError, context: _Context) -> None:
        """End a call with an error, as the SDK does, or as one that the client may repeat."""
        cause = error.__cause__
        if isinstance(error, InternalError) and isinstance(cause, Exception):
            refused = to_api_error(cause)
            if refused.status in _RETRYABLE:
                await _abort(context, refused)
        try:
            await super().abort_context(error, context)  # pyright: ignore[reportUnknownMemberType]
        finally:
            _note_status(context)


class _Tracing(aio.ServerInterceptor):
    """Creates a span per call, as `TracingMiddleware` does per request."""

    @override
    async def intercept_service(
        self,
        continuation: Callable[[HandlerCallDetails], Awaitable[_RpcHandler]],
        handler_call_details: HandlerCallDetails,
    ) -> _RpcHandler:
        """Begin the span of a call, which ends with the task of the call."""
        from opentelemetry import context, propagate, trace

        method = str(handler_call_details.method).lstrip("/")
        parent = propagate.extract(dict[str, Any](handler_call_details.invocation_metadata))
        known = {"rpc.system.name": "grpc", "rpc.method": method}
        span = tracer().start_span(method, parent, trace.SpanKind.SERVER, known)
        context.attach(trace.set_span_in_context(span))
        attributes = {"rpc.response.status_code": "OK"}
        _span_attributes.set(attributes)
        task = asyncio.current_task()
        assert task, "each call has a task"
        left = {"rpc.response.status_code": "CANCELLED"}
        task.add_done_callback(lambda ended: end_span(span, left if ended.cancelled() else attributes))
        return await continuation(handler_call_details)


class _Admission(aio.ServerInterceptor):
    """Authenticates each call by its metadata alone, limits the open calls of an address, and rechecks streams.

    gRPC itself limits connections, of all addresses together: no interceptor sees one that calls nothing.
    """

    def __init__(self, authenticator: Authenticator, limits: ConnectionLimits) -> None:
        self._authenticator = authenticator
        self._limits = limits
        self._clients: list[str] = []
        """The address of each open call."""

    @override
    async def intercept_service(
        self,
        continuation: Callable[[HandlerCallDetails], Awaitable[_RpcHandler]],
        handler_call_details: HandlerCallDetails,
    ) -> _RpcHandler:
        """Return the handler of a call, or one that refuses it."""
        metadata: dict[str, Any] = dict(handler_call_details.invocation_metadata)
        authorization = metadata.get("authorization")
        try:
            caller = await self._authenticator.authenticate(authorization)
        except (ApiError, LangoError) as error:
            return _refusal(to_api_error(error))
        _caller.set(caller)
        use_share_of(caller.user_id)
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        parse, serialize = handler.request_deserializer, handler.response_serializer
        answer: Callable[..., Any] | None = handler.unary_unary
        if answer is not None:

            async def limited_answer(data: bytes, context: _Context) -> Any:
                async with self._place(context):
                    return await answer(await _parsed(parse, data, context), context)

            return unary_unary_rpc_method_handler(limited_answer, None, serialize)
        assert handler.unary_stream, "A2A has no other calls"
        stream = _while_allowed(handler.unary_stream, lambda: self._authenticator.verify(authorization))

        async def limited_stream(data: bytes, context: _Context) -> AsyncGenerator[Any]:
            async with self._place(context), aclosing(stream(await _parsed(parse, data, context), context)) as items:
                async for item in items:
                    yield item

        return unary_stream_rpc_method_handler(limited_stream, None, serialize)

    @asynccontextmanager
    async def _place(self, context: _Context) -> AsyncGenerator[None]:
        """Count a call until it ends. Refuse it if its address has too many."""
        client = _client_of(context)
        if not self._limits.allows(client, self._clients):
            message = "too many open calls from this address: try again later"
            await _abort(context, ApiError(429, "TooManyConnections", message, retry_after_s=5))
        self._clients.append(client)
        try:
            yield
        finally:
            self._clients.remove(client)


async def _parsed(parse: Callable[[bytes], Any] | None, data: bytes, context: _Context) -> Any:
    """Parse a message; gRPC itself would log a broken one as a fault of the server, and answer UNKNOWN."""
    assert parse, "each call of A2A has a message"
    try:
        return parse(data)
    except DecodeError:
        await context.abort(StatusCode.INVALID_ARGUMENT, "the message is not one of A2A in protobuf's wire format")


def _client_of(context: _Context) -> str:
    """Return the address of a caller, of a peer such as `ipv4:192.0.2.1:5000` or `ipv6:%5B2001:db8::1%5D:5000`."""
    return unquote(str(context.peer())).partition(":")[2].rpartition(":")[0].strip("[]")


def _refusal(refused: ApiError) -> _RpcHandler:
    async def refuse(_messages: Any, context: _Context) -> None:
        await _abort(context, refused)

    return stream_stream_rpc_method_handler(refuse)  # of all kinds, this one does not read the message first


def _while_allowed(stream: Callable[..., Any], verify: Callable[[], Awaitable[object]]) -> Callable[..., Any]:
    """Return a stream that ends with an error when its caller loses access."""

    async def checked_stream(request: Any, context: _Context) -> AsyncGenerator[Any]:
        recheck = asyncio.create_task(wait_until_refused(verify))
        try:
            async with aclosing(with_heartbeats(aiter(stream(request, context)), RECHECK_CALLER_S)) as items:
                async for item in items:
                    if recheck.done():
                        await _abort(context, recheck.result())
                    if item is not None:
                        yield item
        finally:
            recheck.cancel()

    return checked_stream


async def _abort(context: _Context, refused: ApiError) -> None:
    """End a call with an error, and tell when it may be repeated."""
    code = _STATUS_CODES.get(refused.status, StatusCode.UNAVAILABLE)
    status = Status(code=code.value[0], message=str(refused))
    status.details.add().Pack(ErrorInfo(reason=refused.type, domain="lango"))
    if wait_s := refused.headers.get("Retry-After"):
        retry = RetryInfo()
        retry.retry_delay.FromSeconds(int(wait_s))
        status.details.add().Pack(retry)
    try:
        await context.abort(code, str(refused), ((GRPC_STATUS_DETAILS_BIN_KEY, status.SerializeToString()),))
    finally:
        _note_status(context)


def _note_status(context: _Context) -> None:
    """Note the status of a call for its span, if it has one."""
    attributes, code = _span_attributes.get({}), cast("StatusCode | None", context.code())
    if code is not None:
        attributes["rpc.response.status_code"] = code.name
    if code in _FAULTS:
        attributes["error.type"] = code.name
