"""Conversations as a whole: find, read, name, fork, take back, export, import, delete. `runtime.sessions` in Python.

One app's sessions; each belongs to a user, and what is another user's is not there.
"""

import asyncio
import functools
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lango.errors import SessionNotFound, TurnRunning, Unstorable
from lango.history import WindowRules
from lango.liveness import Watch
from lango.running import interrupt_gone
from lango.store import SessionId, SessionRecord, Store, Stored, deletes, forks, rewinds, titles
from lango.store.checks import Problem
from lango.store.database import Operation
from lango.store.search import Hit
from lango.store.sessions import get
from lango.usage import DEFAULT_TURNS, SessionUsage, SpentTurns, session_usage

if TYPE_CHECKING:
    from lango.store.imports import Lines

_IN_MEMORY = 1_000_000


class Sessions:
    """The sessions of one app."""

    def __init__(self, store: Store, app_name: str, rules: Callable[[], WindowRules] = WindowRules) -> None:
        """`rules` says what bounds the next request of an agent here."""
        self._store = store
        self._app_name = app_name
        self._rules = rules
        self._watch = Watch(back_at=lambda: store.outages.back_at)
        self._spent = SpentTurns()

    async def list(
        self, *, user_id: str = "user", after: SessionRecord | None = None, limit: int = 50
    ) -> Sequence[SessionRecord]:
        """Read some sessions without their state, the newest first, after one."""
        place = (after.updated_at, after.key) if after else None
        return await self._store.sessions_page(self._app_name, user_id, after=place, limit=limit)

    async def read(self, session_id: str, *, user_id: str = "user") -> SessionRecord:
        """Read a session with its state and what it is called. Raise `SessionNotFound`."""
        name = self._name(session_id, user_id)
        record = await self._store.read(lambda: _titled(name))
        if record is None:
            raise _not_there(session_id)
        return record

    async def messages(
        self, session_id: str, *, user_id: str = "user", before: int | None = None, limit: int = 50
    ) -> Sequence[Stored]:
        """Read the newest messages, or the newest before a sequence number, in order."""
        session = await self.read(session_id, user_id=user_id)
        return await self._store.messages_page(session, before=before, limit=limit)

    async def usage(
        self, session_id: str, *, user_id: str = "user", before: int | None = None, limit: int = DEFAULT_TURNS
    ) -> SessionUsage:
        """Read what the newest turns took, or the newest before a turn, and what the next request would keep."""
        usage = await session_usage(
            self._store,
            self._name(session_id, user_id),
            self._rules(),
            before=before,
            limit=limit,
            spent=self._spent,
        )
        if usage is None:
            raise _not_there(session_id)
        return usage

    async def create(
        self,
        session_id: str | None = None,
        *,
        user_id: str = "user",
        state: Mapping[str, Any] | None = None,
        title: str | None = None,
    ) -> SessionRecord:
        """Make a session. Raise `SessionExists` where there is one of that id."""
        name = self._new(session_id, user_id)
        kept = titles.cleaned(title)
        record = await self._store.create_session(name, state)
        return await self.rename(record.name.id, kept, user_id=user_id) if kept else record

    async def rename(self, session_id: str, title: str | None, *, user_id: str = "user") -> SessionRecord:
        """Name a session; without a title it is called by its first words again."""
        name = self._name(session_id, user_id)
        await self._store.write(lambda: titles.rename(name, title))
        return await self.read(session_id, user_id=user_id)

    async def fork(
        self,
        session_id: str,
        *,
        user_id: str = "user",
        at: int | None = None,
        new_id: str | None = None,
        title: str | None = None,
    ) -> SessionRecord:
        """Make a session with the same past up to message `at`, and the state as it was then.

        None is all of it, 0 only the first state. It takes as long for 100,000 messages as for ten: the past is shared.
        """
        name, new, now = self._name(session_id, user_id), self._new(new_id, user_id), time.time()
        return await self._store.write(
            lambda: forks.fork(name, new, at, title, now), long=True
        )  # its state may be large

    async def rewind(self, session_id: str, *, before: int, user_id: str = "user") -> SessionRecord:
        """Take back the turn that holds message `before`, and all after it; the state is as it was before that turn.

        Nothing is deleted, as with ADK's own rewind. Raise `TurnRunning` while a turn runs or waits.
        """
        name, now = self._name(session_id, user_id), time.time()
        try:
            return await self._store.write(lambda: rewinds.rewind(name, before, now), long=True)
        except TurnRunning:
            if not await self._interrupt_gone(name):
                raise
        return await self._store.write(lambda: rewinds.rewind(name, before, now), long=True)

    async def delete(self, session_id: str, *, user_id: str = "user") -> bool:
        """Delete a session and all that belongs to it; False: there is none. Forks of it keep what they share."""
        return await self._store.delete_session(SessionId(self._app_name, user_id, session_id))

    async def check(self, session_id: str, *, user_id: str = "user") -> Sequence[Problem]:
        """Say what is wrong with a session as it is stored, if anything is: see `lango.store.checks`."""
        return await self._store.check(self._name(session_id, user_id))

    async def search(self, words: str, *, user_id: str = "user", limit: int = 20) -> Sequence[Hit]:
        """Find messages and titles that hold every word, the best first; the last word may be the beginning of one."""
        return await self._store.search(self._app_name, user_id, words, limit=limit)

    async def export_lines(self, session_id: str, *, user_id: str = "user") -> AsyncGenerator[str, None]:
        """Read a session as lines of JSON, with all that belongs to it; see `lango.store.exchange`.

        A fork comes with its past. What is written meanwhile is not in it, and neither is a turn that runs.
        """
        name = self._name(session_id, user_id)
        from lango.store import exports  # few need it, and it takes long to import

        export = await self._store.read(lambda: exports.begin(name))
        for line in exports.head(export):
            yield line
        for first in range(1, max(export.session.last_seq, 1) + 1, exports.PAGE):
            read = functools.partial(exports.events, export, first)
            for line in await self._store.read(read):
                yield line
        for line in exports.turns(export):
            yield line
        call_ids = sorted(export.open_calls)
        for first in range(0, len(call_ids), exports.PAGE):
            read = functools.partial(exports.effects, export, call_ids[first : first + exports.PAGE])
            for line in await self._store.read(read):
                yield line
        for line in await self._store.read(lambda: exports.observations(export)):
            yield line
        yield exports.end(export)

    async def import_lines(
        self, lines: "Lines | AsyncIterable[str | bytes]", *, user_id: str = "user", session_id: str | None = None
    ) -> SessionRecord:
        """Make a session of the lines of an export, of the same id or another one. All of it, or nothing.

        The state of users and apps is not a session's to bring: what it changed of them stays in its journal. Raise
        `InvalidExport` that names the line, or `SessionExists`.
        """
        return await import_session(self._store, lines, self._app_name, user_id, session_id)

    async def _interrupt_gone(self, name: SessionId) -> bool:
        """Mark the turns whose process is gone; False: one of them lives."""
        session, ahead = await self._store.read(lambda: rewinds.busy(name))
        if session is None:
            return False
        return await interrupt_gone(self._store, session, ahead, self._watch.is_gone) == len(ahead)

    def _name(self, session_id: str, user_id: str) -> SessionId:
        name = SessionId(self._app_name, user_id, session_id)
        try:
            name.check()
        except Unstorable as error:
            raise _not_there(session_id) from error
        return name

    def _new(self, session_id: str | None, user_id: str) -> SessionId:
        return SessionId(self._app_name, user_id, (session_id or "").strip() or uuid.uuid4().hex)


async def import_session(
    store: Store,
    lines: "Lines | AsyncIterable[str | bytes]",
    app_name: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> SessionRecord:
    """Make a session of the lines of an export; where no app, user or id is named, those of the export.

    `progress` is told, from any thread, which share of the work is done: from 0 to 1, once the lines are read.
    """
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        if isinstance(lines, AsyncIterable):
            async for line in lines:
                file.write(line.encode() if isinstance(line, str) else line)
        else:
            file.writelines(line.encode() if isinstance(line, str) else line for line in lines)
        size = file.tell()

        def again(before: float) -> "Lines":
            file.seek(0)
            return file if progress is None else _told(file, progress, before, 0.5 / max(1, size))

        from lango.store import imports  # few need it, and it takes long to import

        checked = await asyncio.to_thread(lambda: imports.check(again(0.0), _must_be_an_event()))
        told = checked.session
        assert told
        name = SessionId(app_name or told.app, user_id or told.user, session_id or told.id)
        staged = await store.write(lambda: imports.stage(time.time()), long=True)
        try:
            batches = imports.batches(staged, checked, again(0.5))
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                await store.write(functools.partial(imports.add, batch), long=True)
            return await store.write(lambda: imports.publish(name, staged, checked), long=True)
        except BaseException:
            await asyncio.shield(store.write(lambda: deletes.delete(staged.name), long=True))
            raise


def _told(lines: Iterable[bytes], tell: Callable[[float], None], done: float, a_byte: float) -> Iterator[bytes]:
    """Say of each line how much is done with it, once it is."""
    for line in lines:
        yield line
        done += len(line) * a_byte
        tell(done)


def _must_be_an_event() -> Callable[[Stored], None]:
    """Return what refuses a stored event that ADK could not be given."""
    from lango.adk.convert import DEFAULT_AGENT_NAME  # takes seconds: only when it is needed
    from lango.adk.reading import stored_to_events

    def must_be_an_event(stored: Stored) -> None:
        stored_to_events([stored], DEFAULT_AGENT_NAME)

    return must_be_an_event


def _titled(name: SessionId) -> Operation[SessionRecord | None]:
    record = yield from get(name)
    return None if record is None else (yield from titles.with_first_words(record))


def _not_there(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"there is no session {session_id!r}")
