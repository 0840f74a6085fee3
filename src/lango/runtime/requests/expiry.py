"""Expire waits when their time is over."""

import asyncio
import time
from contextlib import suppress

from lango.errors import StoreError
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.waits import waits

_MAX_WAIT_S = 60.0
"""Waits of other processes expire, too, and those processes may be gone by then."""
_MIN_WAIT_S = 0.05
_BUSY_SESSION_WAIT_S = 2.0
"""When to try again in a session in which a turn runs."""


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
