"""List what waits for a person across a user's sessions, and expire waits when their time is over.

`runtime.answer` answers each of them.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from lango.errors import StoreError, UsageError
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.waits import waits
from lango.store.waits.inbox import read_inbox
from lango.waits import InboxItem

_PAGE = 200
_MAX_WAIT_S = 60.0
"""Waits of other processes expire, too, and those processes may be gone by then."""
_MIN_WAIT_S = 0.05
_BUSY_SESSION_WAIT_S = 2.0
"""When to try again in a session in which a turn runs."""


class Inbox:
    """What waits for the users of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def list(
        self, *, user_id: str = "user", after: tuple[float, int, str] | None = None, limit: int = 50
    ) -> Sequence[InboxItem]:
        """Read what waits for a user, the newest first, or what follows a `place`; not what has expired."""
        return await self._store.read(read_inbox, self._app_name, user_id, after=after, limit=limit)

    async def every(self, *, user_id: str = "user") -> Sequence[InboxItem]:
        """Read everything that waits for a user, the newest first."""
        found: list[InboxItem] = []
        page = await self.list(user_id=user_id, limit=_PAGE)
        while page:
            found += page
            page = await self.list(user_id=user_id, after=page[-1].place, limit=_PAGE)
        return found

    async def find(self, item_id: str, *, user_id: str = "user") -> InboxItem:
        """Find an item by its id, or by its first characters. Raise `UsageError` if none or several have it."""
        every = await self.every(user_id=user_id)
        found = [item for item in every if item_id and item.id.startswith(item_id)]
        if len(found) != 1:
            several = f"{len(found)} items begin with" if found else "nothing waits with the id"
            raise UsageError(f"{several} {item_id!r}: see `lango inbox`")
        return found[0]


class WaitExpiry:
    """Expires waits: one task per process, and the database lets only one of them do it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake = asyncio.Event()

    def check_soon(self) -> None:
        """Check for due waits soon, because a new one may have been stored."""
        self._wake.set()

    async def expire_session(self, name: SessionId) -> None:
        """Expire the due waits of a session now, or soon if a turn is still running in it."""
        session = await self._store.read(find_session, name)
        if session is None or not await self._store.read(waits.has_expired, session.key):
            return
        if not await self._store.write(waits.expire, session.key, time.time()):
            self.check_soon()

    async def run(self) -> None:
        """Expire waits when they are due, until cancelled."""
        while True:
            self._wake.clear()
            wait_s = _MAX_WAIT_S
            try:
                wait_s = await self._expire_due()
            except StoreError as error:
                self._store.outages.warn(f"expired waits could not be closed yet: {error}")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def _expire_due(self) -> float:
        """Expire the due waits; return in how many seconds to check again."""
        left_s = await self._store.read(waits.read_next_expiry_s)
        if left_s is None or left_s > 0:
            return max(_MIN_WAIT_S, min(_MAX_WAIT_S, _MAX_WAIT_S if left_s is None else left_s))
        session_keys = await self._store.read(waits.find_expired_sessions)
        expired = [await self._store.write(waits.expire, key, time.time()) for key in session_keys]
        return _MIN_WAIT_S if all(expired) else _BUSY_SESSION_WAIT_S
