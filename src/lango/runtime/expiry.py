"""Questions for approval end in time, whether or not anybody comes back to them."""

import asyncio
import logging
import time
from contextlib import suppress

from lango.errors import StoreError
from lango.store import SessionId, Store
from lango.store.sessions.sessions import find_session
from lango.store.turns import approvals
from lango.store.turns.approvals import expire_approvals

_log = logging.getLogger("lango.runtime")

_MAX_WAIT_S = 60.0
"""Other processes ask questions too, and may be gone when these expire."""
_MIN_WAIT_S = 0.05
_BUSY_SESSION_WAIT_S = 2.0
"""How long to leave a session alone in which a turn runs."""


class ApprovalExpiry:
    """Closes questions when their time is over: one task per process, and the database lets one of them do it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake = asyncio.Event()

    def check_soon(self) -> None:
        """Something may have been asked just now: see when it expires."""
        self._wake.set()

    async def expire_session(self, name: SessionId) -> None:
        """Close what has expired in a session, for whoever looks at it now."""
        session = await self._store.read(find_session, name)
        if session is not None and await self._store.read(approvals.has_expired_approvals, session.key):
            await self._store.write(expire_approvals, session.key, time.time())

    async def run(self) -> None:
        """Close what is due, now and whenever something is."""
        while True:
            self._wake.clear()
            wait_s = _MAX_WAIT_S
            try:
                wait_s = await self._expire_due()
            except StoreError as error:
                _log.warning("questions for approval could not be looked at: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def _expire_due(self) -> float:
        """Close what is due; return when to look again."""
        left_s = await self._store.read(approvals.read_next_expiry_s)
        if left_s is None or left_s > 0:
            return max(_MIN_WAIT_S, min(_MAX_WAIT_S, _MAX_WAIT_S if left_s is None else left_s))
        closed = [
            await self._store.write(expire_approvals, key, time.time())
            for key in await self._store.read(approvals.find_expired_sessions)
        ]
        return _MIN_WAIT_S if all(closed) else _BUSY_SESSION_WAIT_S
