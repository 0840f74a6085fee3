"""List and delete the credentials of users, and find the waits for them."""

import time
from collections.abc import Sequence

from lango.sessions import SessionId
from lango.store import Store
from lango.store.credentials import credentials
from lango.store.credentials.credentials import StoredCredential
from lango.store.sessions.sessions import find_session
from lango.store.waits.waits import decline, find_wait_of_state


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

    async def decline(self, session_id: str, wait_id: str, *, user_id: str = "user") -> bool:
        """Close a wait without a credential; return False if it is not open. The next message tells the agent."""
        session = await self._store.read(find_session, SessionId(self._app_name, user_id, session_id))
        if session is None:
            return False
        return await self._store.write(decline, session.key, time.time(), wait_id)
