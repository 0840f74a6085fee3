"""Identify the caller by API key or token, and enforce rate limits and token quotas.

The user is always that of the key or token, never one that a request names. Without keys, there is one user.

FastAPI reads a body before it resolves the caller: then any client could make the server parse megabytes. An
`AuthenticatedRoute` authenticates first. A stream may be open for hours, so it repeats the check every few seconds: a
revoked key or an expired token ends it.
"""

import asyncio
import functools
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive
from typing_extensions import override

from lango.config import ServerSettings
from lango.runtime.access import ApiKeys
from lango.server.errors import ApiError
from lango.server.json_body import JsonRequest, JsonResponse, large_response
from lango.server.openapi import reference_to, shown
from lango.threads import use_share_of

if TYPE_CHECKING:
    from lango.server.security.oidc import Issuer

DEFAULT_USER_ID = "user"
_SHORT_BODY_DIGITS = 4  # up to 9,999 bytes
_BEARER_SUBPROTOCOL = "bearer."
_MINUTE_S = 60.0
CLIENT_CLOSED_REQUEST = 499
"""The status of a request whose client left before its response, in logs and metrics."""
_MAX_TRACKED_HOLDERS = 10_000
"""Beyond this number, holders without a recent request are dropped."""


class Quota(Struct, frozen=True):
    """The limits of a key, or of a user of the token issuer; None is no limit."""

    id: str | None = None
    """Under which the store counts tokens: the key's id, or `user:` and the user. None: nothing is counted."""
    holder: str = "key"
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


class Caller(Struct, frozen=True):
    """The user who sent a request, and their quota."""

    user_id: str = DEFAULT_USER_ID
    quota: Quota = Quota()


class Authenticator:
    """Verifies API keys and tokens, and counts requests and tokens against their quotas."""

    def __init__(self, settings: ServerSettings, keys: ApiKeys) -> None:
        self._without_keys = settings.auth == "none"
        self._keys = keys
        self._issuer = _make_issuer(settings)
        self._operators = frozenset(settings.operators)
        self._request_times: dict[str, deque[float]] = {}

    @property
    def is_single_user(self) -> bool:
        """Whether there is only one user, who needs no key."""
        return self._without_keys

    def is_operator(self, caller: Caller) -> bool:
        """Whether the caller may read and change what all users share."""
        return self._without_keys or caller.user_id in self._operators

    async def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller; raise `ApiError` for a key or token that is missing, invalid or over its rate limit."""
        caller = await self.verify(authorization)
        self._count_request(caller.quota)
        return caller

    async def verify(self, authorization: str | None) -> Caller:
        """Return the caller without counting a request; raise `ApiError` for a missing or invalid key or token."""
        if self._without_keys:
            return Caller()
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
        if self._issuer and secret.count(".") == 2:  # a token: keys have no dots
            user_id = await self._issuer.verify_user(secret)
            limits = self._issuer.settings
            quota = Quota(f"user:{user_id}", "user", limits.requests_per_minute, limits.tokens_per_day)
            return Caller(user_id, quota)  # all tokens of a user share it
        key = await self._keys.find(secret) if secret else None
        if key is None:
            needed = "a valid API key or token" if self._issuer else "a valid API key"
            message = f"{needed} is required: Authorization: Bearer <key>"
            raise ApiError(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
        return Caller(key.user_id, Quota(key.id, "key", key.requests_per_minute, key.tokens_per_day))

    def _count_request(self, quota: Quota) -> None:
        """Count a request of this process; raise `ApiError` above the rate limit."""
        if quota.id is None or quota.requests_per_minute is None:
            return
        now = time.monotonic()
        if len(self._request_times) > _MAX_TRACKED_HOLDERS:
            self._request_times = {
                id_: times for id_, times in self._request_times.items() if times and times[-1] > now - _MINUTE_S
            }
        times = self._request_times.setdefault(quota.id, deque())
        while times and times[0] <= now - _MINUTE_S:
            times.popleft()
        if len(times) >= quota.requests_per_minute:
            wait_s = math.ceil(times[0] + _MINUTE_S - now) if times else _MINUTE_S
            limit = f"{quota.requests_per_minute} requests a minute"
            raise ApiError(429, "RateLimited", f"this {quota.holder} may make at most {limit}", retry_after_s=wait_s)
        times.append(now)

    async def check_token_quota(self, caller: Caller) -> None:
        """Raise `ApiError` if the caller has used up the tokens of the day."""
        quota = caller.quota
        if quota.id is None or quota.tokens_per_day is None:
            return
        if wait_s := await self._keys.wait_for_tokens_s(quota.id, quota.tokens_per_day):
            limit = f"{quota.tokens_per_day} tokens a day"
            raise ApiError(429, "TokensUsedUp", f"this {quota.holder} may use at most {limit}", retry_after_s=wait_s)


def _make_issuer(settings: ServerSettings) -> "Issuer | None":
    if settings.auth != "oidc" or settings.oidc is None:
        return None
    from lango.server.security import oidc

    return oidc.Issuer(settings.oidc)


def read_authorization(connection: HTTPConnection) -> str | None:
    """Return the Authorization header, or the same of a browser's WebSocket or of a client of Anthropic's API.

    A browser's WebSocket offers the subprotocol `bearer.<key>`; such a client sends its key in `X-Api-Key`.
    """
    offered = [name for name in connection.scope.get("subprotocols", ()) if name.startswith(_BEARER_SUBPROTOCOL)]
    if offered:
        return f"Bearer {offered[0].removeprefix(_BEARER_SUBPROTOCOL)}"
    authorization, key = connection.headers.get("authorization"), connection.headers.get("x-api-key")
    return f"Bearer {key}" if authorization is None and key else authorization


async def authenticate_request(request: Request) -> None:
    """Authenticate a request by its head alone, before its body is read. Raise `ApiError` to refuse it."""
    authenticator: Authenticator = request.app.state.context.authenticator
    authorization = read_authorization(request)
    request.state.verify_caller = functools.partial(authenticator.verify, authorization)  # an open stream repeats it
    try:
        request.state.caller = await authenticator.authenticate(authorization)
    except ApiError as refused:
        if not await discard_short_body(request):
            refused.headers["Connection"] = "close"
        raise


async def discard_short_body(request: Request) -> bool:
    """Read a short body to its end, and return whether there is no more to read.

    A connection that is closed with unread bytes is reset, and the client may lose the response.
    """
    length = request.headers.get("content-length", "0")
    if "transfer-encoding" in request.headers or len(length) > _SHORT_BODY_DIGITS:
        return False
    if length != "0":
        async for _ in request.stream():
            pass
    return True


async def current_caller(request: Request) -> Caller:
    """Return the caller of a request, whom an `AuthenticatedRoute` has authenticated before."""
    if not hasattr(request.state, "caller"):
        await authenticate_request(request)
    return request.state.caller


CurrentCaller = Annotated[Caller, Depends(current_caller)]


_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class AuthenticatedRoute(APIRoute):
    """A route that authenticates its caller, where it has one, before it reads the body as a `JsonRequest`."""

    @override
    def get_route_handler(self) -> _Handler:
        handle = super().get_route_handler()
        has_caller = _depends_on_caller(self.dependant)

        async def handle_authenticated(request: Request) -> Response:
            if has_caller:
                await authenticate_request(request)
                use_share_of(request.state.caller.user_id)
            handling = handle(JsonRequest(request.scope, request.receive))
            only_reads = has_caller and request.method == "GET"
            return await (_until_disconnected(request, handling) if only_reads else handling)

        return handle_authenticated


async def _until_disconnected(request: Request, handling: Coroutine[Any, Any, Response]) -> Response:
    """Return the response to a request that only reads, or stop working on it when its client has left."""
    task, _ = await run_until_first_ends(handling, wait_disconnected(request.receive))
    return Response(status_code=CLIENT_CLOSED_REQUEST) if task.cancelled() else task.result()


async def run_until_first_ends(*works: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Run coroutines until one of them ends, and cancel the others; return their tasks, which have all ended."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return tasks


async def wait_disconnected(receive: Receive) -> None:
    """Wait until the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


class AuthenticatedRouter(APIRouter):
    """Routes that authenticate their callers and answer with JSON of any stored value, or of the struct they return."""

    def __init__(self, prefix: str = "", **options: Any) -> None:
        super().__init__(prefix=prefix, route_class=AuthenticatedRoute, default_response_class=JsonResponse, **options)

    @override
    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route. FastAPI knows no structs: one that an endpoint returns becomes a response here."""
        returned = endpoint.__annotations__.get("return")
        if isinstance(returned, type) and issubclass(returned, Struct):
            status = options.get("status_code") or 200
            declared: dict[int | str, dict[str, Any]] = options.get("responses") or {}
            options |= {"response_model": None, "responses": reference_to(returned, status) | declared}
            endpoint = _showing(endpoint, status)
        super().add_api_route(path, endpoint, **options)


def _showing(
    endpoint: Callable[..., Coroutine[Any, Any, Struct]], status: int
) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Return an endpoint that answers with the struct that another one returns, as clients read it."""

    @functools.wraps(endpoint)
    async def show(**parameters: Any) -> Response:
        struct = await endpoint(**parameters)
        return await large_response(lambda: shown(struct), status)

    return show


def _depends_on_caller(dependant: Dependant) -> bool:
    return dependant.call is current_caller or any(map(_depends_on_caller, dependant.dependencies))
