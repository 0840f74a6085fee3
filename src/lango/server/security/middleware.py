"""Refuse wrong hosts, foreign origins and oversized or slow bodies before a route runs.

A page of another site can make a browser send requests to this server. It cannot choose their Host, hide their Origin,
or send JSON without a preflight request.
"""

import asyncio
import re
import time
import uuid
from collections import Counter

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lango.config import ServerLimits, ServerSettings
from lango.json_values import TooManyValues, ValueCounter
from lango.server.errors import (
    REQUEST_ID,
    ApiError,
    MakeBody,
    bad_request,
    current_request_id,
    log_server_fault,
    to_response,
)
from lango.server.security.connections import FOR_HEALTH_CHECKS, HEALTH_PATHS
from lango.server.security.hosts import host_and_port_of_origin, host_of, is_loopback

_MAX_FORM_BYTES = 10_000
"""The most bytes of a form around its file."""
_ANTHROPIC_PATHS = frozenset({"/v1/messages", "/v1/messages/count_tokens"})
_OPENAI_PATHS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/responses/compact", "/v1/embeddings"})
_ANY_KIND = "*/*"
_JSON = "application/json"
_MIN_BYTES_PER_S = 10_000
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})  # no route has others: they get 405
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SHARES = 4
"""A user may have a quarter of the bytes of all bodies that are not complete."""
_RETRY_AFTER_S = 5
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


def max_message_bytes(limits: ServerLimits) -> int:
    """Return the size limit of a message with files, which are in base64."""
    return limits.max_body_bytes + limits.max_attachment_bytes * 4 // 3


class RequestGuard:
    """The outermost ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        max_artifact_bytes: int,
        max_trigger_bytes: int,
        make_error_body: MakeBody,
    ) -> None:
        self._app = app
        self._make_error_body = make_error_body
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        named = {host.lower() for host in settings.allowed_hosts}
        # such a server requires a key, so the host name grants nothing
        self._any_host = not is_loopback(settings.host) and not named
        self._hosts = named | {settings.host.lower()}
        # a load balancer's health checks name the replica's address; other machines do not reach a loopback server
        self._checked_by_address = frozenset[str]() if is_loopback(settings.host) else HEALTH_PATHS
        self._body_limits = _body_limits(settings.limits, max_artifact_bytes, max_trigger_bytes)
        self._body_timeout_s = settings.limits.body_timeout_s
        largest = max(limit.max_bytes for _, limit in self._body_limits)
        self._unfinished = _UnfinishedBodies(settings.limits.max_unfinished_bytes, largest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then call the app."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"  # of this server alone: a client's may be made to confuse a log
        current_request_id.set(request_id)
        response = _HeadersSend(send, _request_id_headers(scope["path"], request_id))
        try:
            self._check(scope, Headers(scope=scope))
        except ApiError as refused:
            if scope["type"] == "websocket":
                await receive()
                reason = str(refused)[:120]
                await send({"type": "websocket.close", "code": 1008, "reason": reason})  # before accept: HTTP 403
            else:
                await to_response(refused, scope["path"], self._make_error_body)(scope, receive, response)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            limit = self._body_limit(scope)
            bounded = _BoundedReceive(receive, scope, limit, self._body_timeout_s, self._unfinished)
            try:
                await self._app(scope, bounded, response)
            except Exception as error:  # here, as Starlette raises it again: the connection would be closed
                log_server_fault(Request(scope), error)
                if response.has_started:
                    raise
                await to_response(error, scope["path"], self._make_error_body)(scope, receive, response)
            finally:
                bounded.release()

    def _check(self, scope: Scope, headers: Headers) -> None:
        if scope.get("state", {}).get(FOR_HEALTH_CHECKS) and scope["path"] not in HEALTH_PATHS:
            message = "too many open connections: try again later"
            raise ApiError(503, "TooManyConnections", message, retry_after_s=5, headers={"Connection": "close"})
        hosts = headers.getlist("host")
        if len(hosts) > 1:  # a proxy may check another one than this server does
            raise bad_request("send exactly one Host header")
        if "content-length" in headers and "transfer-encoding" in headers:  # a proxy may end the body elsewhere
            message = "send Content-Length or Transfer-Encoding, not both"
            raise ApiError(400, "BadRequest", message, headers={"Connection": "close"})
        host = hosts[0] if hosts else ""
        known = self._any_host or is_loopback(host_of(host)) or host_of(host) in self._hosts
        if not known and scope["path"] not in self._checked_by_address:
            raise ApiError(403, "WrongHost", "this server does not serve that host name (setting server.allowed_hosts)")
        unsafe = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if unsafe and not self._is_allowed_origin(headers.getlist("origin"), host):
            message = "pages of that origin may not call this server (setting server.allowed_origins)"
            raise ApiError(403, "ForeignOrigin", message)
        if scope["type"] == "http" and scope["method"] in _METHODS_WITH_BODY:
            _check_body(headers, self._body_limit(scope))

    def _body_limit(self, scope: Scope) -> "_BodyLimit":
        return next(limit for paths, limit in self._body_limits if paths.fullmatch(scope["path"]))

    def _is_allowed_origin(self, origins: list[str], host: str) -> bool:
        """Whether the request has no Origin, the server's own, or an allowed one."""
        return all(
            "*" in self._origins or origin.lower() in self._origins or host_and_port_of_origin(origin) == host.lower()
            for origin in origins
        )


class _BodyLimit(Struct, frozen=True):
    """The content type and size limit of a body."""

    kind: str
    max_bytes: int
    setting: str

    def too_large(self) -> ApiError:
        return ApiError(413, "TooLarge", f"the body is larger than {self.max_bytes} bytes (setting {self.setting})")


def _body_limits(
    limits: ServerLimits, max_artifact_bytes: int, max_trigger_bytes: int
) -> list[tuple[re.Pattern[str], _BodyLimit]]:
    """Return the limits by patterns of paths, the first of which counts.

    Any type is accepted of artifacts, which come by PUT, as no page of another site sends them, and of triggers, whose
    secret no browser has. Their limit is the same for all: it must not say whether a trigger exists.
    """
    artifact, body = "store.max_artifact_bytes", "server.limits.max_body_bytes"
    most = max(limits.max_body_bytes, limits.max_conversation_bytes)
    resent = "|".join((*_ANTHROPIC_PATHS, *_OPENAI_PATHS, "/agui", "/v1/conversations(/[^/]+/items)?"))
    with_files = "/v1/sessions/[^/]+/messages|/run|/run_sse|/apps/[^/]+/users/[^/]+/sessions/[^/]+/artifacts"
    by_path = {
        "/v1/sessions/import": _BodyLimit(
            "application/x-ndjson", limits.max_import_bytes, "server.limits.max_import_bytes"
        ),
        "/v1/(sessions/[^/]+/)?artifacts/.+": _BodyLimit(_ANY_KIND, max_artifact_bytes, artifact),
        "/v1/files": _BodyLimit("multipart/form-data", max_artifact_bytes + _MAX_FORM_BYTES, artifact),
        "/v1/triggers/.*": _BodyLimit(_ANY_KIND, max_trigger_bytes, "triggers.<name>.max_bytes"),
        resent: _BodyLimit(_JSON, most, "server.limits.max_conversation_bytes"),
        with_files: _BodyLimit(_JSON, max_message_bytes(limits), body),
        ".*": _BodyLimit(_JSON, limits.max_body_bytes, body),
    }
    return [(re.compile(paths, re.DOTALL), limit) for paths, limit in by_path.items()]


def _check_body(headers: Headers, body: _BodyLimit) -> None:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > body.max_bytes:
        raise body.too_large()
    has_body = length != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (has_body or kind) and kind != body.kind and body.kind != _ANY_KIND:
        raise ApiError(415, "NotJson", f"send Content-Type: {body.kind}")


class _UnfinishedBodies:
    """Counts the bytes of bodies that are not complete. A user may have a quarter of all, or one largest body."""

    def __init__(self, max_bytes: int, largest_body: int) -> None:
        self._max_bytes = max_bytes
        self._max_of_user = max(max_bytes // _SHARES, min(largest_body, max_bytes))
        self._by_user: Counter[str] = Counter()

    def add(self, user_id: str, size: int) -> None:
        """Count a piece of a body. Raise `HTTPException` if it is too much: 429 for its user, 503 for the server."""
        if self._by_user[user_id] + size > self._max_of_user:
            self._refuse(429, f"your unfinished requests hold more than {self._max_of_user} bytes")
        if self._by_user.total() + size > self._max_bytes:
            self._refuse(503, f"unfinished requests hold more than {self._max_bytes} bytes")
        self._by_user[user_id] += size

    def release(self, user_id: str, size: int) -> None:
        """Stop counting a body that is complete, or whose request has ended."""
        self._by_user[user_id] -= size
        if not self._by_user[user_id]:
            del self._by_user[user_id]

    def _refuse(self, status: int, problem: str) -> None:
        message = f"{problem}: try again later (setting server.limits.max_unfinished_bytes)"
        raise HTTPException(status, message, {"Connection": "close", "Retry-After": str(_RETRY_AFTER_S)})


class _BoundedReceive:
    """Reads a body within its size, time and number of JSON values: parsing too many would hold the event loop."""

    def __init__(
        self, receive: Receive, scope: Scope, body: _BodyLimit, timeout_s: float, unfinished: _UnfinishedBodies
    ) -> None:
        self._receive = receive
        self._scope = scope
        self._unfinished = unfinished
        self._counted: tuple[str, int] = "", 0
        self._limit = body
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._received_bytes = 0
        self._value_counter = ValueCounter() if body.kind == _JSON else None
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # only the disconnect follows
            return await self._receive()
        left_s = self._began + self._timeout_s + self._received_bytes / _MIN_BYTES_PER_S - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(left_s, self._timeout_s))):
                message = await self._receive()
        except TimeoutError as error:
            too_slow = "the body arrived too slowly (setting server.limits.body_timeout_s)"
            raise HTTPException(408, too_slow, {"Connection": "close"}) from error
        piece: bytes = message.get("body", b"")
        self._received_bytes += len(piece)
        self._complete = not message.get("more_body", False)
        if self._received_bytes > self._limit.max_bytes:
            refused = self._limit.too_large()
            raise HTTPException(refused.status, str(refused))  # FastAPI passes on no other exception from here
        if self._value_counter is not None:
            try:
                self._value_counter.feed(piece)
            except TooManyValues as error:
                raise HTTPException(413, str(error)) from error
        if self._complete:
            self.release()
        else:
            self._count(len(piece))
        return message

    def _count(self, size: int) -> None:
        """Count a piece for the caller, who is authenticated before the body is read."""
        caller = self._scope.get("state", {}).get("caller")
        user_id = caller.user_id if caller is not None else ""
        self._unfinished.add(user_id, size)
        self._counted = user_id, self._counted[1] + size

    def release(self) -> None:
        """Stop counting the body: it is complete, or its request has ended."""
        self._unfinished.release(*self._counted)
        self._counted = self._counted[0], 0


class _HeadersSend:
    """Adds security headers and the id of the request to every response."""

    def __init__(self, send: Send, request_id_headers: dict[str, str]) -> None:
        self._send = send
        self._headers = _SECURITY_HEADERS | request_id_headers
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)


def _request_id_headers(path: str, request_id: str) -> dict[str, str]:
    """Return the headers that name a request; Anthropic's clients read another one."""
    names = (REQUEST_ID, "Request-Id") if path in _ANTHROPIC_PATHS else (REQUEST_ID,)
    return dict.fromkeys(names, request_id)
