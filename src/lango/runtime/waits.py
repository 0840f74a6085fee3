"""List what waits for a person across a user's sessions, end waits when their time has come, and send events to them.

`runtime.answer` answers each of them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import shuffle
from typing import Any

from lango.errors import LangoError, SessionNotFound, Stopping, StoreError, UsageError, WaitNotOpen
from lango.events import to_plain_values
from lango.pauses import check_event_name
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sent_events import EVENTS_KEPT_S as EVENTS_KEPT_S
from lango.store.sessions.sent_events import SentEvent, send_event
from lango.store.sessions.sessions import find_session
from lango.store.waits import waits
from lango.store.waits.due import DueWait, read_due_waits
from lango.store.waits.inbox import read_inbox
from lango.waits import InboxItem

_PAGE = 200
_MAX_WAIT_S = 1.0
"""Waits of other processes end, too, and those processes may be gone by then."""
_MIN_WAIT_S = 0.05
_MAX_KEY_CHARACTERS = 512
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


EndWait = Callable[[DueWait], Awaitable[object]]
"""Submits the end of a wait whose time has come, or that an event has answered."""


class WaitExpiry:
    """Expires requests, and ends timers and waits for events: a task per process; the database lets one of them do it.

    One indexed query finds when the next of them is due, at most once per second while nothing is.
    """

    def __init__(self, store: Store, app_name: str, *, every_session: bool) -> None:
        """Timers are ended in `every_session`, or only in those that this process was sent something for."""
        self._store = store
        self._app_name = app_name
        self._sessions: set[SessionId] | None = None if every_session else set()
        self._wake = asyncio.Event()

    def note_session(self, name: SessionId) -> None:
        """Note that this process was sent something for a session."""
        if self._sessions is not None:
            self._sessions.add(name)

    async def send_event(
        self, name: str, data: Any, user_id: str | None, session_id: str | None, key: str | None, keep_s: float
    ) -> SentEvent:
        """Store an event, and end the open waits that it fits."""
        check_event_name(name)
        if key is not None and not 0 < len(key) <= _MAX_KEY_CHARACTERS:
            raise UsageError(f"an idempotency key has 1 to {_MAX_KEY_CHARACTERS} characters")
        place = self._app_name, name, to_plain_values(data), key, user_id or "", session_id or "", keep_s
        sent = await self._store.write(send_event, *place)
        if sent.answered:
            self.check_soon()
        return sent

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

    async def run(self, end_wait: EndWait) -> None:
        """Expire requests and end other waits when they are due, until cancelled."""
        while True:
            self._wake.clear()
            wait_s = _MAX_WAIT_S
            try:
                wait_s = await self._end_due(end_wait)
            except StoreError as error:
                self._store.outages.warn(f"expired waits could not be closed yet: {error}")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def _end_due(self, end_wait: EndWait) -> float:
        """End the due waits; return in how many seconds to check again."""
        left_s = await self._store.read(waits.read_next_expiry_s, self._app_name)
        if left_s is None or left_s > 0:
            return max(_MIN_WAIT_S, min(_MAX_WAIT_S, _MAX_WAIT_S if left_s is None else left_s))
        found = await self._store.read(read_due_waits, self._app_name)
        due = [wait for wait in found if self._sessions is None or wait.name in self._sessions]
        shuffle(due)  # the other replicas have the same list, and each wait is ended by one of them
        ended = await asyncio.gather(*(self._end(wait, end_wait) for wait in due))
        expired = await self._expire_due()
        return _MIN_WAIT_S if all(expired) and (any(ended) or expired) else _MAX_WAIT_S

    async def _expire_due(self) -> list[bool]:
        """Expire the due requests of some sessions; return which sessions had none left, and no running turn."""
        session_keys = await self._store.read(waits.find_expired_sessions)
        return [await self._store.write(waits.expire, key, time.time()) for key in session_keys]

    async def _end(self, wait: DueWait, end_wait: EndWait) -> bool:
        """End a due wait; return False if it is still there to be ended."""
        try:
            await end_wait(wait)
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
