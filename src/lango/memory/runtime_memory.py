"""Show and delete memory, and run observers in the background: `runtime.memory`."""

import asyncio
import time

from lango.memory.observer import Observer
from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.memory.note_edits import delete_note, edit_note
from lango.store.memory.observations import (
    Batch,
    ListedNote,
    Observation,
    SessionMemory,
    read_all_batches,
    read_memory,
)
from lango.store.memory.user_facts import Fact, delete_fact, edit_fact, read_facts
from lango.store.sessions.sessions import get_session

__all__ = ["Fact", "ListedNote", "Memory"]


class Memory:
    """Observations and facts, to show and to delete, and the tasks that observe sessions."""

    def __init__(self, store: Store, app_name: str, observer: Observer | None, close_wait_s: float = 0.0) -> None:
        """Without an `observer` (memory is off), nothing is observed."""
        self._store = store
        self._app_name = app_name
        self._observer = observer
        self._close_wait_s = close_wait_s
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._observe_again: set[SessionId] = set()

    async def show(self, session_id: str, *, user_id: str = "user", every: bool = False) -> SessionMemory:
        """Return the current observations of a session, or every one, including condensed and rewound ones.

        Raise `SessionNotFound`.
        """
        if every:
            return SessionMemory(tuple(await self.history(session_id, user_id=user_id)))
        return await self._store.read(read_memory, await self._session(session_id, user_id))

    async def history(self, session_id: str, *, user_id: str = "user") -> list[Batch]:
        """Return every batch of observations, including condensed and rewound ones."""
        return await self._store.read(read_all_batches, await self._session(session_id, user_id))

    async def facts(self, *, user_id: str = "user", replaced: bool = False) -> list[Fact]:
        """Return the facts of a user across sessions, with `replaced` also those that newer facts replaced."""
        return await self._store.read(read_facts, self._app_name, user_id, replaced=replaced)

    async def forget(self, fact_id: int, *, user_id: str = "user") -> bool:
        """Delete a fact and those that it replaced; return False if there is no such fact."""
        forgotten = await self._store.write(delete_fact, self._app_name, user_id, fact_id)
        if forgotten:
            await self._store.purge()
        return forgotten

    async def edit_fact(
        self, fact_id: int, *, text: str | None = None, pinned: bool | None = None, user_id: str = "user"
    ) -> Fact | None:
        """Correct a fact, pin it, or unpin it; return None if there is no such fact."""
        return await self._store.write(
            edit_fact, self._app_name, user_id, fact_id, time.time(), text=text, pinned=pinned
        )

    async def edit_note(
        self,
        session_id: str,
        note_id: str,
        *,
        text: str | None = None,
        pinned: bool | None = None,
        user_id: str = "user",
    ) -> Observation | None:
        """Correct a note, pin it, or unpin it; return None if there is no such note. A corrected note is pinned."""
        session = await self._session(session_id, user_id)
        return await self._store.write(edit_note, session, note_id, text=text, pinned=pinned)

    async def forget_note(self, session_id: str, note_id: str, *, user_id: str = "user") -> bool:
        """Delete a note, and recall its messages no more; return False if there is no such note."""
        forgotten = await self._store.write(delete_note, await self._session(session_id, user_id), note_id)
        if forgotten:
            await self._store.purge()
        return forgotten

    async def change(
        self,
        item_id: str,
        session_id: str | None = None,
        *,
        text: str | None = None,
        pinned: bool | None = None,
        forget: bool = False,
        user_id: str = "user",
    ) -> bool:
        """Correct, pin, unpin or forget a note of a session, or a fact; return False if there is none of this id."""
        if session_id is not None and forget:
            return await self.forget_note(session_id, item_id, user_id=user_id)
        if session_id is not None:
            return bool(await self.edit_note(session_id, item_id, text=text, pinned=pinned, user_id=user_id))
        fact_id = int(item_id) if item_id.isdecimal() and len(item_id) < 19 else 0  # no fact has the number 0
        if forget:
            return await self.forget(fact_id, user_id=user_id)
        return bool(await self.edit_fact(fact_id, text=text, pinned=pinned, user_id=user_id))

    async def settle(self) -> None:
        """Wait until no session is being observed by this process."""
        while self._tasks:
            await asyncio.wait([*self._tasks.values()])

    def observe_in_background(self, name: SessionId) -> None:
        """Start observing a session in the background, if it exceeds a threshold."""
        if self._observer is None:
            return
        if name in self._tasks:
            self._observe_again.add(name)
            return
        self._tasks[name] = asyncio.create_task(self._observe(self._observer, name))

    async def _observe(self, observer: Observer, name: SessionId) -> None:
        try:
            await observer.observe(name)
            while name in self._observe_again:
                self._observe_again.discard(name)
                await observer.observe(name)
        finally:
            self._observe_again.discard(name)
            del self._tasks[name]

    async def close(self) -> None:
        """Wait for running observers up to the time limit, then cancel them. No partial batch is stored."""
        if self._tasks:
            await asyncio.wait([*self._tasks.values()], timeout=self._close_wait_s)
        for task in self._tasks.values():
            task.cancel()
        await self.settle()

    async def _session(self, session_id: str, user_id: str) -> SessionInfo:
        return await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))
