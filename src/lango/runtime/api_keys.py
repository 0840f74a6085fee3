"""Add, find, list and revoke the API keys of a store's users, and count the tokens that they use."""

import time
from collections.abc import Sequence

from lango.store import Store, api_keys
from lango.store.api_keys import ApiKey


class ApiKeys:
    """The API keys of all users. The store has only their hashes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(
        self, user_id: str, *, requests_per_minute: int | None = None, tokens_per_day: int | None = None
    ) -> str:
        """Create a key of a user and return it: it cannot be read again."""
        secret = api_keys.new_secret()
        limits = {"requests_per_minute": requests_per_minute, "tokens_per_day": tokens_per_day}
        await self._store.write(api_keys.add_key, user_id, secret, time.time(), **limits)
        return secret

    async def list(self) -> Sequence[ApiKey]:
        """List all keys, the oldest first, including revoked ones."""
        return await self._store.read(api_keys.list_keys)

    async def find(self, secret: str) -> ApiKey | None:
        """Find a valid key."""
        return await self._store.read(api_keys.find_key, secret)

    async def wait_for_tokens_s(self, quota_id: str, tokens_per_day: int) -> int:
        """Return in how many seconds a key or user may use more tokens; 0 if some of this day are left."""
        now = time.time()
        spent = await self._store.read(api_keys.spent_tokens, quota_id, now)
        return api_keys.seconds_until_tomorrow(now) if spent >= tokens_per_day else 0

    async def spend(self, quota_id: str, tokens: int) -> None:
        """Count tokens that a key or user has used besides those of turns."""
        await self._store.write(api_keys.spend_tokens, quota_id, tokens, time.time())

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key; return False if there is no valid key of that id."""
        return await self._store.write(api_keys.revoke_key, key_id, time.time())
