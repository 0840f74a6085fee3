"""Who calls: the user of an API key or of an issuer's token, or, without keys, the one user of this machine.

A user is only ever the key's or the token's: what a request says about users is not read.
"""

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from msgspec import Struct

from lango.config import ServerSettings
from lango.server.errors import Refused
from lango.store import Store
from lango.store.keys import ApiKey, until_tomorrow_s

if TYPE_CHECKING:
    from lango.server.oidc import Issuer

USER = "user"
_MINUTE_S = 60.0


class Caller(Struct, frozen=True):
    """Whoever sent a request."""

    user_id: str = USER
    key: ApiKey | None = None


class Door:
    """Lets in whoever has a key, as often as the key allows, or, where an issuer is set, its token."""

    def __init__(self, settings: ServerSettings, store: Store) -> None:
        self._open = settings.auth == "none"
        self._store = store
        self._issuer = _issuer(settings)
        self._asked: dict[str, deque[float]] = {}

    @property
    def one_user(self) -> bool:
        """There is one user only, and nobody to hide anything from."""
        return self._open

    async def enter(self, authorization: str | None) -> Caller:
        """Return the caller; raise `Refused` for a key or token that is missing, wrong, or used too often."""
        if self._open:
            return Caller()
        scheme, _, secret = (authorization or "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
        if self._issuer and secret.count(".") == 2:  # a token; keys have no dots
            return Caller(await self._issuer.user_of(secret))
        key = await self._store.find_key(secret) if secret else None
        if key is None:
            needed = "a valid API key or token" if self._issuer else "a valid API key"
            message = f"{needed} is needed: Authorization: Bearer <key>"
            raise Refused(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})
        self._count(key)
        return Caller(key.user_id, key)

    def _count(self, key: ApiKey) -> None:
        """Refuse more requests than the key may make in a minute, counted by this process."""
        if key.requests_per_minute is None:
            return
        now = time.monotonic()
        asked = self._asked.setdefault(key.id, deque())
        while asked and asked[0] <= now - _MINUTE_S:
            asked.popleft()
        if len(asked) >= key.requests_per_minute:
            wait_s = math.ceil(asked[0] + _MINUTE_S - now) if asked else _MINUTE_S
            limit = f"{key.requests_per_minute} requests a minute"
            raise Refused(429, "RateLimited", f"this key may make {limit}", retry_after_s=wait_s)
        asked.append(now)

    async def check_tokens(self, caller: Caller) -> None:
        """Refuse a message of a key that has used up its tokens of the day."""
        key = caller.key
        if key is None or key.tokens_per_day is None:
            return
        if await self._store.spent_tokens(key.id) >= key.tokens_per_day:
            wait_s = until_tomorrow_s(time.time())
            limit = f"{key.tokens_per_day} tokens a day"
            raise Refused(429, "TokensUsedUp", f"this key may use {limit}", retry_after_s=wait_s)


def _issuer(settings: ServerSettings) -> "Issuer | None":
    if settings.auth != "oidc" or settings.oidc is None:
        return None
    from lango.server import oidc

    return oidc.Issuer(settings.oidc)


async def entered(request: Request) -> Caller:
    """Return who sent a request."""
    door: Door = request.app.state.served.door
    return await door.enter(request.headers.get("authorization"))


User = Annotated[Caller, Depends(entered)]
