"""Notify readers when a user's sessions change, in this process or another one.

Changes of this process notify at once. Those of other processes, and of the inbox, are found by two short queries a
second for each user with an open page, however many pages are open.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context

from lango.errors import StoreError
from lango.sessions import SessionInfo
from lango.store import Store
from lango.store.sessions.sessions import list_session_page
from lango.store.waits.inbox import Place, read_inbox_places
from lango.turns.synchronization import Notifier

_POLL_S = 1.0
_COMPARED_SESSIONS = 25
"""How many of the newest sessions are compared with their last state."""
_COMPARED_ITEMS = 100
"""How many of the newest items of the inbox are compared."""


class UserWatch:
    """Counters of changes to one user's sessions; a reader compares them with the values it last saw."""

    def __init__(self, store: Store, app_name: str, user_id: str) -> None:
        self.changed = Notifier()
        self.list_changes = 0
        """Changes to the list of sessions: titles or order."""
        self.inbox_changes = 0
        """Something started or stopped waiting for the user."""
        self.activity: Counter[int] = Counter()
        """Changes in a session, by its key."""
        self.queue_changes: Counter[int] = Counter()
        """Changes to the queued messages of a session, by its key."""
        self.rewinds: Counter[int] = Counter()
        """Possible rewinds of a session, by its key."""
        self.readers = 0
        self.poll_task: asyncio.Task[None] | None = None
        self._store = store
        self._owner = app_name, user_id
        self._listed: list[tuple[int, str]] | None = None
        self._known: dict[int, SessionInfo] = {}
        self._inbox: tuple[Place, ...] | None = None
        self.may_have_missed = False
        """A wait may have opened and closed between two polls: a reader may have read the inbox while it was open."""

    async def poll(self) -> None:
        """Poll the store for changes of other processes.

        The first poll counts as a change of everything: what readers read before it may be older.
        """
        while True:
            try:
                await self.poll_once()
            except StoreError as error:
                self._store.outages.warn(f"sessions could not be polled: {error}")
            await asyncio.sleep(_POLL_S)

    async def poll_once(self) -> None:
        """Compare the sessions and the inbox with the last poll, and notify readers of what differs."""
        self._compare(await self._store.read(list_session_page, *self._owner, limit=_COMPARED_SESSIONS))
        self._compare_inbox(await self._store.read(read_inbox_places, *self._owner, _COMPARED_ITEMS))

    def _compare(self, page: Sequence[SessionInfo]) -> None:
        listed = [(session.key, session.display_title) for session in page]
        before, known = self._listed, self._known
        self._listed, self._known = listed, {session.key: session for session in page}
        active = [
            session for session in page if session.key not in known or known[session.key].revision != session.revision
        ]
        self.activity.update(session.key for session in active)
        rewinds = {session.key: session.rewinds for session in known.values()}
        self.rewinds.update(session.key for session in active if session.rewinds != rewinds.get(session.key, ()))
        self.may_have_missed |= bool(active)
        self.list_changes += listed != before
        if active or listed != before:
            self.changed.notify()

    def _compare_inbox(self, places: tuple[Place, ...]) -> None:
        before, self._inbox = self._inbox, places
        missed, self.may_have_missed = self.may_have_missed, False
        if before != places or missed:
            self.inbox_changes += 1
            self.changed.notify()


class SessionWatch:
    """The users whose sessions are watched."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name
        self._users: dict[str, UserWatch] = {}

    @asynccontextmanager
    async def watch(self, user_id: str) -> AsyncGenerator[UserWatch]:
        """Watch a user's sessions until the block ends."""
        user_watch = self._users.setdefault(user_id, UserWatch(self._store, self._app_name, user_id))
        user_watch.readers += 1
        if user_watch.poll_task is None:
            # in its own context: the first request may end before the others, and its reads would end with it
            user_watch.poll_task = asyncio.create_task(user_watch.poll(), context=Context())
        try:
            yield user_watch
        finally:
            user_watch.readers -= 1
            if not user_watch.readers:
                del self._users[user_id]
                user_watch.poll_task.cancel()
                await asyncio.wait([user_watch.poll_task])

    def notify(self, session: SessionInfo, *, queued: bool = False) -> None:
        """Notify readers of a change in a session; with `queued`, of its queued messages."""
        if user_watch := self._users.get(session.name.user_id):
            user_watch.activity[session.key] += 1
            user_watch.may_have_missed = True
            user_watch.queue_changes[session.key] += queued
            user_watch.changed.notify()

    def notify_all(self) -> None:
        """Wake every reader: the server stops."""
        for user_watch in self._users.values():
            user_watch.changed.notify()
