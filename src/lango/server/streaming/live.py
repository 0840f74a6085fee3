"""Merge the events of a session's turns with hints about other changes, for `GET /v1/live`.

A page holds one such stream for as long as it is open. It carries the turns of one session as they run, whichever
client started them, with the event ids that they have everywhere. A `Changed` has no id and names what to read again.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Literal, TypeVar

from msgspec import Struct

from lango.errors import SessionNotFound, Stopping
from lango.events import turn_of_event
from lango.runtime.sessions.session_watch import SessionWatch, UserWatch
from lango.runtime.turns import LoggedEvent
from lango.server.streaming.turn_streams import TurnRef, TurnStreams
from lango.sessions import SessionInfo

T = TypeVar("T")
What = Literal["sessions", "inbox", "waiting", "rewound"]


class Changed(Struct, frozen=True, tag_field="type", tag="changed"):
    """A hint that a client should read something again.

    `sessions`: the list of sessions; `inbox`: what waits for the user in any session, of any agent; `waiting`: the
    queued messages; `rewound`: the messages, some of which may have been rewound.
    """

    what: What


LiveEvents = AsyncGenerator[LoggedEvent | Changed | None, None]


class _Reader:
    """What one reader watches."""

    def __init__(self, watched: UserWatch, session: SessionInfo | None) -> None:
        self.watch = watched
        self.session = session
        self.key = -1 if session is None else session.key  # no session has the key -1

    def changes(self) -> dict[What, int]:
        """Return how often each thing that this reader watches has changed."""
        watch = self.watch
        changes: dict[What, int] = {"sessions": watch.list_changes, "inbox": watch.inbox_changes}
        if self.session is not None:
            changes |= {"waiting": watch.queue_changes[self.key], "rewound": watch.rewinds[self.key]}
        return changes


async def live_events(
    streams: TurnStreams,
    user_id: str,
    session: SessionInfo | None,
    after_id: int | None,
    others: Iterable[SessionWatch] = (),
) -> LiveEvents:
    """Yield the events of a session's turns and hints about changes, until the session or the server ends.

    `others` are the sessions of other agents, whose waits are in the inbox of the user, too.
    """
    async with AsyncExitStack() as watches:
        reader = _Reader(await watches.enter_async_context(streams.session_watch.watch(user_id)), session)
        elsewhere = [await watches.enter_async_context(other.watch(user_id)) for other in others]
        sources = _turn_events(streams, reader, after_id), _change_hints(reader), *map(_inbox_hints, elsewhere)
        async with aclosing(_merge(*sources)) as events:
            async for item in events:
                yield item


async def _turn_events(streams: TurnStreams, reader: _Reader, after_id: int | None) -> LiveEvents:
    """Yield the events of turn after turn; None whenever no event came for a heartbeat."""
    session, watch, key = reader.session, reader.watch, reader.key
    turn = None
    last = 0 if after_id is None else turn_of_event(after_id) - 1
    if session is not None and after_id is None:
        turn = await streams.runtime.turns.current(session)
    while True:
        seen = watch.activity[key]
        if turn is None and session is not None:
            turn = await streams.runtime.turns.next(session, last)
        if turn is not None and session is not None:
            async with aclosing(streams.follow(TurnRef(session, turn), after_id or 0)) as events:
                async for logged in events:
                    yield logged
            last, turn = turn, None
            continue
        if session is not None:
            name = session.name
            if await streams.runtime.sessions.find(name.id, user_id=name.user_id) is None:
                raise SessionNotFound("the session was deleted")
        if streams.is_closing:
            raise Stopping("the server is shutting down")
        if watch.activity[key] == seen and not await watch.changed.wait(streams.heartbeat_s):
            yield None


async def _change_hints(reader: _Reader) -> LiveEvents:
    """Yield what should be read again; everything once at the start, since an earlier read may be old."""
    seen: dict[What, int] = {}
    while True:
        changes = reader.changes()
        if changes == seen:  # compared right before waiting: a change while a hint is sent wakes no one
            await reader.watch.changed.wait()
            continue
        before, seen = seen, changes
        for what, count in changes.items():
            if before.get(what) != count:
                yield Changed(what)


async def _inbox_hints(watch: UserWatch) -> LiveEvents:
    """Yield a hint whenever the inbox of another agent changes."""
    seen = watch.inbox_changes  # the reader reads all inboxes at the start
    while True:
        if watch.inbox_changes == seen:
            await watch.changed.wait()
            continue
        seen = watch.inbox_changes
        yield Changed("inbox")


async def _merge(*sources: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of all sources as they arrive, until one source ends or raises."""
    next_of = {asyncio.ensure_future(anext(generator)): generator for generator in sources}
    try:
        while True:
            done, _ = await asyncio.wait(next_of, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                source = next_of.pop(task)
                try:
                    item = task.result()
                except StopAsyncIteration:
                    return
                yield item
                next_of[asyncio.ensure_future(anext(source))] = source
    finally:
        for task in next_of:
            task.cancel()
        if next_of:
            await asyncio.wait(next_of)
        for source in sources:
            with suppress(Exception):
                await source.aclose()
