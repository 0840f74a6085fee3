"""Who calls: the user of an API key or of an issuer's token, or, without keys, the one user of this machine.

A user is only ever the key's or the token's: what a request says about users is not read.
"""

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from msgspec import Struct
from starlette.requests import HTTPConnection

from lango.config import ServerSettings
from lango.server.errors import ApiError
from lango.store import Store
from lango.store.api_keys import find_key, seconds_until_tomorrow, spent_tokens

if TYPE_CHECKING:
    from lango.server.security.oidc import Issuer

DEFAULT_USER_ID = "user"
_BEARER_SUBPROTOCOL = "bearer."
_MINUTE_S = 60.0
_MAX_TRACKED_HOLDERS = 10_000
"""So many are counted before those who asked long ago are forgotten."""


class Quota(Struct, frozen=True):
    """How much a key, or a user who signed in, may ask for. None: as much as they like."""

    id: str
    """What the store counts tokens under: the key's id, or `user:` and the user, which is no id of a key."""
    holder: str
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


class Caller(Struct, frozen=True):
    """Whoever sent a request."""

    user_id: str = DEFAULT_USER_ID
    quota: Quota | None = None


class Principal:
    """Lets in whoever has a key, as often as the key allows, or, where an issuer is set, its token."""

    def __init__(self, settings: ServerSettings, store: Store) -> None:
        self._without_keys = settings.auth == "none"
        self._store = store
        self._issuer = _make_issuer(settings)
        self._oidc = settings.oidc
        self._request_times: dict[str, deque[float]] = {}

    @property
    def is_single_user(self) -> bool:
        """There is one user only, and nobody to hide anything from."""
        return self._without_keys

    async def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller; raise `ApiError` for a key or token that is missing, wrong, or used too often."""
        caller = await self.verify(authorization)
        return self._count_request(caller.user_id, caller.quota)

    async def verify(self, authorization: str | None) -> Caller:
        """Return the caller, without counting a request; raise `ApiError` for a key or token that is no good (now)."""
        if self._without_keys:
            return Caller()
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
        if self._issuer and secret.count(".") == 2:  # a token; keys have no dots
            user_id = await self._issuer.verify_user(secret)
            return Caller(user_id, self._user_quota(user_id))
        key = await self._store.read(find_key, secret) if secret else None
        if key is None:
            needed = "a valid API key or token" if self._issuer else "a valid API key"
            message = f"{needed} is needed: Authorization: Bearer <key>"
            raise ApiError(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
        return Caller(key.user_id, Quota(key.id, "key", key.requests_per_minute, key.tokens_per_day))

    def _user_quota(self, user_id: str) -> Quota | None:
        """Return how much a user of the issuer may ask for: by whatever token they come."""
        if self._oidc is None:
            return None
        return Quota(f"user:{user_id}", "user", self._oidc.requests_per_minute, self._oidc.tokens_per_day)

    def _count_request(self, user_id: str, allowance: Quota | None) -> Caller:
        """Refuse more requests than are allowed in a minute, counted by this process."""
        if allowance is None or allowance.requests_per_minute is None:
            return Caller(user_id, allowance)
        now = time.monotonic()
        if len(self._request_times) > _MAX_TRACKED_HOLDERS:
            self._request_times = {
                id_: times for id_, times in self._request_times.items() if times and times[-1] > now - _MINUTE_S
            }
        times = self._request_times.setdefault(allowance.id, deque())
        while times and times[0] <= now - _MINUTE_S:
            times.popleft()
        if len(times) >= allowance.requests_per_minute:
            wait_s = math.ceil(times[0] + _MINUTE_S - now) if times else _MINUTE_S
            limit = f"{allowance.requests_per_minute} requests a minute"
            raise ApiError(429, "RateLimited", f"this {allowance.holder} may make {limit}", retry_after_s=wait_s)
        times.append(now)
        return Caller(user_id, allowance)

    async def check_token_quota(self, caller: Caller) -> None:
        """Refuse a message of a key, or of a user, that has used up the tokens of the day."""
        quota = caller.quota
        if quota is None or quota.tokens_per_day is None:
            return
        if await self._store.read(spent_tokens, quota.id, time.time()) >= quota.tokens_per_day:
            wait_s = seconds_until_tomorrow(time.time())
            limit = f"{quota.tokens_per_day} tokens a day"
            raise ApiError(429, "TokensUsedUp", f"this {quota.holder} may use {limit}", retry_after_s=wait_s)


def _make_issuer(settings: ServerSettings) -> "Issuer | None":
    if settings.auth != "oidc" or settings.oidc is None:
        return None
    from lango.server.security import oidc

    return oidc.Issuer(settings.oidc)


def read_authorization(connection: HTTPConnection) -> str | None:
    """Return the key: as a header, or, since a browser's WebSocket sends none, as the subprotocol `bearer.<key>`."""
    offered = [name for name in connection.scope.get("subprotocols", ()) if name.startswith(_BEARER_SUBPROTOCOL)]
    return (
        f"Bearer {offered[0].removeprefix(_BEARER_SUBPROTOCOL)}" if offered else connection.headers.get("authorization")
    )


async def authenticate_request(request: Request) -> None:
    """Find out who sent a request, from its head alone. Raise `ApiError`: then its body is not read."""
    principal: Principal = request.app.state.served.principal
    try:
        request.state.caller = await principal.authenticate(read_authorization(request))
    except ApiError as refused:
        if _has_body(request):
            refused.headers["Connection"] = "close"
        raise


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


async def current_caller(request: Request) -> Caller:
    """Return who sent a request; an `AuthenticatedRoute` has authenticated it before it read the body."""
    if not hasattr(request.state, "caller"):
        await authenticate_request(request)
    return request.state.caller


CurrentCaller = Annotated[Caller, Depends(current_caller)]
