"""List and revoke the grants of sessions.

A grant is made with the answer to a wait for approval: `runtime.answer(session_id, wait_id, Approve(NewGrant()))`.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from lango.config import ToolSettings
from lango.errors import GrantNotFound
from lango.grants import NewGrant
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import get_session
from lango.store.tool_calls.grants import Grant, read_grants, revoke_grant


def limit_grant(grant: NewGrant, settings: ToolSettings) -> NewGrant:
    """Return a grant that expires within `tools.grant_expires_s`."""
    longest = settings.grant_expires_s
    if not longest or (grant.expires_in_s is not None and grant.expires_in_s <= longest):
        return grant
    return replace(grant, expires_in_s=longest)


class Grants:
    """The grants of the sessions of one app."""

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
