"""List and delete the credentials of users, and look at the open requests for them."""

import time
from collections.abc import Sequence

from lango.runtime.requests.expiry import ApprovalExpiry
from lango.sessions import SessionId
from lango.store import Store
from lango.store.codec.ids import call_key
from lango.store.credentials import credentials
from lango.store.credentials.credentials import Credential
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import decline_request
from lango.store.tool_calls.credential_requests import (
    CredentialRequest,
    find_request_of_state,
    read_credential_requests,
)


class Credentials:
    """The credentials that users gave to the tools of this agent. Their secrets cannot be read here."""

    def __init__(self, store: Store, app_name: str, expiry: ApprovalExpiry) -> None:
        self._store = store
        self._app_name = app_name
        self._expiry = expiry

    async def list(self, *, user_id: str = "user") -> Sequence[Credential]:
        """List the credentials of a user, the oldest first."""
        return await self._store.read(credentials.list_credentials, self._app_name, user_id)

    async def delete(self, key: str, *, user_id: str = "user") -> bool:
        """Delete a credential; False: there is none. The next use of its tool asks the user again."""
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

    async def requests(self, session_id: str, *, user_id: str = "user") -> Sequence[CredentialRequest]:
        """Return the credential requests of a session that can still be answered, in order."""
        name = SessionId(self._app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        session = await self._store.read(find_session, name)
        return await self._store.read(read_credential_requests, session) if session else []

    async def find_request(self, state: str) -> tuple[SessionId, str] | None:
        """Return the session and the call of the open request whose address carries this OAuth state, if any."""
        found = await self._store.read(find_request_of_state, self._app_name, state)
        if found is None:
            return None
        name, stored_id = found
        for request in await self.requests(name.id, user_id=name.user_id):
            if call_key(request.stored_id) == stored_id:
                return name, request.call_id
        return None

    async def decline(self, session_id: str, call_id: str, *, user_id: str = "user") -> bool:
        """Close a request without a credential; False: it is not open. The agent learns it with the next message."""
        session = await self._store.read(find_session, SessionId(self._app_name, user_id, session_id))
        if session is None:
            return False
        return await self._store.write(decline_request, session.key, time.time(), call_id)
