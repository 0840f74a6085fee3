"""Who waits for something to happen in a user's sessions: told at once of what happens here, and soon of the rest.

What other processes do is seen by one short read a second for each user who is watching, however many pages are open.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from lango.errors import StoreError
from lango.store import SessionRecord, Store
from lango.turns.notifier import News

_log = logging.getLogger("lango.server")

_LOOK_S = 1.0
_SHOWN = 25
"""As many of the newest sessions are compared with what they were."""


class Watched:
    """The sessions of one user. Counts grow when something happens: whoever reads remembers what it has seen."""

    def __init__(self, store: Store, app_name: str, user_id: str) -> None:
        self.news = News()
        self.lists = 0
        """How often the list of sessions changed: their titles, or their order."""
        self.moves: Counter[int] = Counter()
        """How often something happened in a session, by its key."""
        self.queues: Counter[int] = Counter()
        """How often the messages changed that wait in a session, by its key."""
        self.rewound: Counter[int] = Counter()
        """How often messages of a session may have been taken back, by its key."""
        self.readers = 0
        self.looking: asyncio.Task[None] | None = None
        self._store = store
        self._place = app_name, user_id
        self._shown: list[tuple[int, str]] | None = None
        self._known: dict[int, SessionRecord] = {}

    async def look(self) -> None:
        """Look again and again for what other processes did."""
        while True:
            try:
                self._compare(await self._store.sessions_page(*self._place, limit=_SHOWN))
            except StoreError as error:
                _log.warning("sessions could not be looked at: %s", error)
            await asyncio.sleep(_LOOK_S)

    def _compare(self, page: Sequence[SessionRecord]) -> None:
        shown = [(one.key, one.shown_title) for one in page]
        before, known = self._shown, self._known
        self._shown, self._known = shown, {one.key: one for one in page}
        if before is None:
            return
        moved = [one for one in page if one.key not in known or known[one.key].revision != one.revision]
        self.moves.update(one.key for one in moved)
        self.rewound.update(one.key for one in moved if one.rewinds and one.rewinds != _rewinds(known.get(one.key)))
        self.lists += shown != before
        if moved or shown != before:
            self.news.tell()


def _rewinds(known: SessionRecord | None) -> tuple[tuple[int, int], ...]:
    return known.rewinds if known else ()


class Watching:
    """The users whose sessions somebody watches."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name
        self._users: dict[str, Watched] = {}

    @asynccontextmanager
    async def over(self, user_id: str) -> AsyncGenerator[Watched]:
        """Watch a user's sessions until the block ends."""
        watched = self._users.setdefault(user_id, Watched(self._store, self._app_name, user_id))
        watched.readers += 1
        if watched.looking is None:
            watched.looking = asyncio.create_task(watched.look())
        try:
            yield watched
        finally:
            watched.readers -= 1
            if not watched.readers:
                del self._users[user_id]
                watched.looking.cancel()
                await asyncio.wait([watched.looking])

    def happened(self, session: SessionRecord, *, queued: bool = False) -> None:
        """Say that something happened in a session; `queued`: to the messages that wait there."""
        if watched := self._users.get(session.name.user_id):
            watched.moves[session.key] += 1
            watched.queues[session.key] += queued
            watched.news.tell()

    def wake(self) -> None:
        """Wake every reader: the server stops."""
        for watched in self._users.values():
            watched.news.tell()
