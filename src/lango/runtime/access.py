"""Manage who has access to what: API keys of users, their credentials for tools, and grants of tool calls."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from lango.config import ToolSettings
from lango.errors import GrantNotFound
from lango.sessions import SessionId
from lango.store import Store, api_keys
from lango.store.api_keys import ApiKey
from lango.store.credentials import credentials
from lango.store.credentials.credentials import StoredCredential
from lango.store.sessions.sessions import get_session
from lango.store.tool_calls.grants import Grant, read_grants, revoke_grant
from lango.store.waits.waits import find_wait_of_state
from lango.waits import NewGrant


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
        """Count tokens that a key or user has used outside of turns."""
        await self._store.write(api_keys.spend_tokens, quota_id, tokens, time.time())

    async def revoke(self, key_id: str) -> bool:
        """Revoke a key; return False if there is no valid key of that id."""
        return await self._store.write(api_keys.revoke_key, key_id, time.time())


class Credentials:
    """The credentials that users gave to the tools of this agent. Their secrets cannot be read here."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def list(self, *, user_id: str = "user") -> Sequence[StoredCredential]:
        """List the credentials of a user, the oldest first."""
        return await self._store.read(credentials.list_credentials, self._app_name, user_id)

    async def delete(self, key: str, *, user_id: str = "user") -> bool:
        """Delete a credential; return False if there is none. The next use of its tool asks the user again."""
        deleted = await self._store.write(credentials.delete_credential, self._app_name, user_id, key)
        if deleted:
            await self._store.purge()
        return deleted

    async def delete_all(self, *, user_id: str = "user") -> int:
        """Delete every credential of a user; return how many there were."""
        deleted = await self._store.write(credentials.delete_all_credentials, self._app_name, user_id)
        if deleted:
            await self._store.purge()
        return deleted

    async def find_wait(self, state: str) -> tuple[SessionId, str] | None:
        """Return the session and the id of the open wait whose address carries this OAuth state, if any."""
        return await self._store.read(find_wait_of_state, self._app_name, state)


def limit_grant(grant: NewGrant, settings: ToolSettings) -> NewGrant:
    """Return a grant that expires within `tools.grant_expires_s`."""
    longest = settings.grant_expires_s
    if not longest or (grant.expires_in_s is not None and grant.expires_in_s <= longest):
        return grant
    return replace(grant, expires_in_s=longest)


class Grants:
    """The grants of the sessions of one app, which answers make: `runtime.answer(..., Approve(NewGrant()))`."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def list(self, session_id: str, *, user_id: str = "user") -> Sequence[Grant]:
        """Read the grants of a session, the newest first, with those that have ended. Raise `SessionNotFound`."""
        session = await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))
        return await self._store.read(read_grants, session.key)

    async def revoke(self, session_id: str, grant_id: int, *, user_id: str = "user") -> None:
        """Revoke a grant: later calls ask again. Raise `GrantNotFound` if it has ended, or there is none."""
        session = await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))
        if not await self._store.write(revoke_grant, session.key, grant_id, user_id):
            raise GrantNotFound(f"session {session_id!r} has no grant {grant_id}, or it has ended")
