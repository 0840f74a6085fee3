"""`GET /v1/live`: one stream for as long as somebody looks at a page.

It tells the turns of one session as they come, whoever began them, with the ids that they have everywhere; and, as
`changed` without an id, that something should be read again: the list of sessions, the messages that wait, or those of
the session, where some may have been taken back (`rewound`) or where a process that is no server runs a turn and tells
nobody (`messages`).
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Literal, TypeVar

from lango.server.streaming.session_watch import UserWatch
from lango.server.streaming.turn_streams import TurnRef, TurnStreams, cut
from lango.store import SessionRecord
from lango.store.codec.event_ids import turn_of_event
from lango.store.sessions.sessions import find_session
from lango.store.turns import queue
from lango.store.turns.event_log import LoggedEvent
from lango.store.turns.queue import find_next_turn

_SILENT_TURN_S = 0.5
"""A turn of which nothing is told for so long may be one that nobody tells before its end."""

T = TypeVar("T")
LiveEvents = AsyncGenerator[LoggedEvent | None, None]


class _Reader:
    """Where one reader is: what it watches, and whether a turn runs there of which nothing was told yet."""

    def __init__(self, watched: UserWatch, session: SessionRecord | None) -> None:
        self.watch = watched
        self.session = session
        self.key = -1 if session is None else session.key
        self.is_turn_silent = False


async def live_events(
    streams: TurnStreams, user_id: str, session: SessionRecord | None, after_id: int | None
) -> LiveEvents:
    """Yield the events of a session's turns and hints about changes, until the session or the server ends."""
    async with streams.session_watch.watch(user_id) as watched:
        reader = _Reader(watched, session)
        both = _merge(_turn_events(streams, reader, after_id), _change_hints(reader))
        async with aclosing(both) as events:
            async for item in events:
                yield item


async def _turn_events(streams: TurnStreams, reader: _Reader, after_id: int | None) -> LiveEvents:
    """Tell turn after turn; None where nothing came for a while."""
    session, watch, key = reader.session, reader.watch, reader.key
    turn = None
    last = 0 if after_id is None else turn_of_event(after_id) - 1
    if session is not None and after_id is None:
        turn = await streams.store.read(queue.find_current_turn, session)
    while True:
        seen = watch.activity[key]
        if turn is None and session is not None:
            turn = await streams.store.read(find_next_turn, session, last)
        if turn is not None and session is not None:
            reader.is_turn_silent = turn_of_event(after_id or 0) != turn
            async with aclosing(streams.follow(TurnRef(session, turn), after_id or 0)) as events:
                async for logged in events:
                    reader.is_turn_silent = reader.is_turn_silent and logged is None
                    yield logged
            last, turn, reader.is_turn_silent = turn, None, False
            continue
        if session is not None and await streams.store.read(find_session, session.name) is None:
            yield cut("SessionNotFound", "the session was deleted")
            return
        if streams.is_closing:
            yield cut("Stopping", "the server stops: come back with Last-Event-ID")
            return
        if watch.activity[key] == seen and not await watch.changed.wait(streams.heartbeat_s):
            yield None


async def _change_hints(reader: _Reader) -> LiveEvents:
    """Tell that something should be read again; once at the beginning: what was read before may be old."""
    watch, key = reader.watch, reader.key
    lists, queue, rewound, activity = watch.list_changes, watch.queue_changes[key], watch.rewinds[key], 0
    yield _changed("sessions")
    if reader.session is not None:
        yield _changed("waiting")
        yield _changed("rewound")
    while True:
        woken = await watch.changed.wait(_SILENT_TURN_S)
        if lists != watch.list_changes:
            lists = watch.list_changes
            yield _changed("sessions")
        if queue != watch.queue_changes[key]:
            queue = watch.queue_changes[key]
            yield _changed("waiting")
        if rewound != watch.rewinds[key]:
            rewound = watch.rewinds[key]
            yield _changed("rewound")
        if reader.is_turn_silent and not woken and activity != watch.activity[key]:
            activity = watch.activity[key]
            yield _changed("messages")


def _changed(what: Literal["sessions", "waiting", "rewound", "messages"]) -> LoggedEvent:
    return LoggedEvent(0, 0, "changed", json.dumps({"type": "changed", "what": what}))


async def _merge(*sources: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Tell what comes from any of them, as it comes, until one ends."""
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
