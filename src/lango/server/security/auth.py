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
from lango.server.errors import Refused
from lango.store import Store
from lango.store.api_keys import until_tomorrow_s

if TYPE_CHECKING:
    from lango.server.security.oidc import Issuer

USER = "user"
_BEARER = "bearer."
_MINUTE_S = 60.0
_MOST_COUNTED = 10_000
"""So many are counted before those who asked long ago are forgotten."""


class Allowance(Struct, frozen=True):
    """How much a key, or a user who signed in, may ask for. None: as much as they like."""

    id: str
    """What the store counts tokens under: the key's id, or `user:` and the user, which is no id of a key."""
    holder: str
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


class Caller(Struct, frozen=True):
    """Whoever sent a request."""

    user_id: str = USER
    allowance: Allowance | None = None


class Door:
    """Lets in whoever has a key, as often as the key allows, or, where an issuer is set, its token."""

    def __init__(self, settings: ServerSettings, store: Store) -> None:
        self._open = settings.auth == "none"
        self._store = store
        self._issuer = _issuer(settings)
        self._oidc = settings.oidc
        self._asked: dict[str, deque[float]] = {}

    @property
    def one_user(self) -> bool:
        """There is one user only, and nobody to hide anything from."""
        return self._open

    async def enter(self, authorization: str | None) -> Caller:
        """Return the caller; raise `Refused` for a key or token that is missing, wrong, or used too often."""
        caller = await self.check(authorization)
        return self._counted(caller.user_id, caller.allowance)

    async def check(self, authorization: str | None) -> Caller:
        """Return the caller, without counting a request; raise `Refused` for a key or token that is no good (now)."""
        if self._open:
            return Caller()
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
        if self._issuer and secret.count(".") == 2:  # a token; keys have no dots
            user_id = await self._issuer.user_of(secret)
            return Caller(user_id, self._of_user(user_id))
        key = await self._store.keys.find(secret) if secret else None
        if key is None:
            needed = "a valid API key or token" if self._issuer else "a valid API key"
            message = f"{needed} is needed: Authorization: Bearer <key>"
            raise Refused(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
        return Caller(key.user_id, Allowance(key.id, "key", key.requests_per_minute, key.tokens_per_day))

    def _of_user(self, user_id: str) -> Allowance | None:
        """Return how much a user of the issuer may ask for: by whatever token they come."""
        if self._oidc is None:
            return None
        return Allowance(f"user:{user_id}", "user", self._oidc.requests_per_minute, self._oidc.tokens_per_day)

    def _counted(self, user_id: str, allowance: Allowance | None) -> Caller:
        """Refuse more requests than are allowed in a minute, counted by this process."""
        if allowance is None or allowance.requests_per_minute is None:
            return Caller(user_id, allowance)
        now = time.monotonic()
        if len(self._asked) > _MOST_COUNTED:
            self._asked = {id_: asked for id_, asked in self._asked.items() if asked and asked[-1] > now - _MINUTE_S}
        asked = self._asked.setdefault(allowance.id, deque())
        while asked and asked[0] <= now - _MINUTE_S:
            asked.popleft()
        if len(asked) >= allowance.requests_per_minute:
            wait_s = math.ceil(asked[0] + _MINUTE_S - now) if asked else _MINUTE_S
            limit = f"{allowance.requests_per_minute} requests a minute"
            raise Refused(429, "RateLimited", f"this {allowance.holder} may make {limit}", retry_after_s=wait_s)
        asked.append(now)
        return Caller(user_id, allowance)

    async def check_tokens(self, caller: Caller) -> None:
        """Refuse a message of a key, or of a user, that has used up the tokens of the day."""
        allowed = caller.allowance
        if allowed is None or allowed.tokens_per_day is None:
            return
        if await self._store.keys.spent_tokens(allowed.id) >= allowed.tokens_per_day:
            wait_s = until_tomorrow_s(time.time())
            limit = f"{allowed.tokens_per_day} tokens a day"
            raise Refused(429, "TokensUsedUp", f"this {allowed.holder} may use {limit}", retry_after_s=wait_s)


def _issuer(settings: ServerSettings) -> "Issuer | None":
    if settings.auth != "oidc" or settings.oidc is None:
        return None
    from lango.server.security import oidc

    return oidc.Issuer(settings.oidc)


def authorization_of(connection: HTTPConnection) -> str | None:
    """Return the key: as a header, or, since a browser's WebSocket sends none, as the subprotocol `bearer.<key>`."""
    offered = [name for name in connection.scope.get("subprotocols", ()) if name.startswith(_BEARER)]
    return f"Bearer {offered[0].removeprefix(_BEARER)}" if offered else connection.headers.get("authorization")


async def authenticate(request: Request) -> None:
    """Find out who sent a request, from its head alone. Raise `Refused`: then its body is not read."""
    door: Door = request.app.state.served.door
    try:
        request.state.caller = await door.enter(authorization_of(request))
    except Refused as refused:
        if _has_body(request):
            refused.headers["Connection"] = "close"
        raise


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


async def current_caller(request: Request) -> Caller:
    """Return who sent a request; an `AuthenticatedRoute` has authenticated it before it read the body."""
    if not hasattr(request.state, "caller"):
        await authenticate(request)
    return request.state.caller


User = Annotated[Caller, Depends(current_caller)]
