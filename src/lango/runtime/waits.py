"""List what waits in a session, or for a user in all sessions, and end waits when their time has come.

`runtime.answer` answers each of them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from random import shuffle

from lango.errors import LangoError, SessionNotFound, Stopping, StoreError, UsageError, WaitNotOpen
from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.waits import waits
from lango.store.waits.due import DueWait, read_due_waits
from lango.store.waits.inbox import read_inbox
from lango.waits import InboxItem, Wait

_PAGE = 200
_log = logging.getLogger("lango.runtime")


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

    async def of_session(self, session_id: str, *, user_id: str = "user") -> Sequence[Wait]:
        """Return what the turns of a session wait for, and can still be answered."""
        session = await self.expire(session_id, user_id=user_id)
        return await self._store.read(waits.read_waits, session.key, session.name) if session else []

    async def expire(self, session_id: str, *, user_id: str = "user") -> SessionInfo | None:
        """Close the waits of a session whose time is over, or soon if a turn is still running in it.

        Return the session as it was, or None if there is none.
        """
        session = await self._store.read(find_session, SessionId(self._app_name, user_id, session_id))
        is_due = session is not None and await self._store.read(waits.has_expired, session.key)
        if session and is_due and not await self._store.write(waits.expire, session.key, time.time()):
            self._store.notify_due()
        return session


EndWait = Callable[[DueWait], Awaitable[object]]
"""Submits the end of a wait whose time has come, or that an event has answered."""


class DueWaits:
    """Expires requests, and ends timers and waits for events; the database lets one process do it."""

    def __init__(self, store: Store, app_name: str, end_wait: EndWait, *, every_session: bool) -> None:
        """Timers are ended in `every_session`, or only in those that this process was sent something for."""
        self._store = store
        self._app_name = app_name
        self._end_wait = end_wait
        self._sessions: set[SessionId] | None = None if every_session else set()

    def note_session(self, name: SessionId) -> None:
        """Note that this process was sent something for a session."""
        if self._sessions is not None:
            self._sessions.add(name)

    async def run_due(self) -> bool:
        """End the waits that are due; return whether more of them may be due now."""
        found = await self._store.read(read_due_waits, self._app_name)
        due = [wait for wait in found if self._sessions is None or wait.name in self._sessions]
        shuffle(due)  # the other replicas have the same list, and each wait is ended by one of them
        ended = await asyncio.gather(*(self._end(wait) for wait in due))
        # of each session, whether it had no running turn and none is left
        expired = [
            await self._store.write(waits.expire, key, time.time())
            for key in await self._store.read(waits.find_expired_sessions)
        ]
        return all(expired) and (any(ended) or bool(expired))

    async def _end(self, wait: DueWait) -> bool:
        """End a due wait; return False if it is still there to be ended."""
        try:
            await self._end_wait(wait)
        except (WaitNotOpen, SessionNotFound):
            pass  # another process has ended it, or a person has
        except StoreError:
            raise
        except Stopping:
            return False
        except LangoError as error:
            _log.error("the wait %s of session %s could not be ended: %s", wait.wait_id, wait.name.id, error)
            return False
        return True
