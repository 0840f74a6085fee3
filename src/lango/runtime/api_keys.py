"""Add, list and revoke the API keys of a store's users."""

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

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key; return False if there is no valid key of that id."""
        return await self._store.write(api_keys.revoke_key, key_id, time.time())
