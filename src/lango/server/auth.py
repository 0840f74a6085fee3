"""Who calls: the user of an API key, or, without keys, the one user of this machine.

A user is only ever the key's: what a request says about users is not read. Tokens of other issuers (OIDC) would be
another way to make a `Caller`, in `Door.enter`.
"""

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from lango.config import ServerSettings
from lango.server.errors import Refused
from lango.store import Store
from lango.store.keys import ApiKey, until_tomorrow_s

USER = "user"
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request."""

    user_id: str = USER
    key: ApiKey | None = None


class Door:
    """Lets in whoever has a key, as often as the key allows."""

    def __init__(self, settings: ServerSettings, store: Store) -> None:
        self._open = settings.auth == "none"
        self._store = store
        self._asked: dict[str, deque[float]] = {}

    @property
    def one_user(self) -> bool:
        """There is one user only, and nobody to hide anything from."""
        return self._open

    async def enter(self, authorization: str | None) -> Caller:
        """Return the caller; raise `Refused` for a key that is missing, wrong, revoked or used too often."""
        if self._open:
            return Caller()
        scheme, _, secret = (authorization or "").partition(" ")
        key = await self._store.find_key(secret.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Refused(
                401,
                "Unauthorized",
                "a valid API key is needed: Authorization: Bearer <key>",
                headers={"WWW-Authenticate": "Bearer"},
            )
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


async def entered(request: Request) -> Caller:
    """Return who sent a request."""
    door: Door = request.app.state.served.door
    return await door.enter(request.headers.get("authorization"))


User = Annotated[Caller, Depends(entered)]
