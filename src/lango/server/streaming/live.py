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

from lango.server.streaming.session_watch import Watched
from lango.server.streaming.turn_streams import TurnOf, TurnStreams, cut
from lango.store import SessionRecord
from lango.store.codec.event_ids import turn_of
from lango.store.turns import queue
from lango.store.turns.event_log import ToldEvent

_SILENT_S = 0.5
"""A turn of which nothing is told for so long may be one that nobody tells before its end."""

T = TypeVar("T")
Told = AsyncGenerator[ToldEvent | None, None]


class _Place:
    """Where one reader is: what it watches, and whether a turn runs there of which nothing was told yet."""

    def __init__(self, watched: Watched, session: SessionRecord | None) -> None:
        self.watched = watched
        self.session = session
        self.key = -1 if session is None else session.key
        self.silent = False


async def live_events(streams: TurnStreams, user_id: str, session: SessionRecord | None, after_id: int | None) -> Told:
    """Yield the events of a session's turns and hints about changes, until the session or the server ends."""
    async with streams.watching.over(user_id) as watched:
        place = _Place(watched, session)
        both = _merged(_turns(streams, place, after_id), _hints(place))
        async with aclosing(both) as events:
            async for told in events:
                yield told


async def _turns(streams: TurnStreams, place: _Place, after_id: int | None) -> Told:
    """Tell turn after turn; None where nothing came for a while."""
    session, watched, key = place.session, place.watched, place.key
    turn = None
    last = 0 if after_id is None else turn_of(after_id) - 1
    if session is not None and after_id is None:
        turn = await streams.store.read(lambda: queue.current_turn(session))
    while True:
        seen = watched.moves[key]
        if turn is None and session is not None:
            turn = await streams.store.next_turn(session, last)
        if turn is not None and session is not None:
            place.silent = turn_of(after_id or 0) != turn
            async with aclosing(streams.follow(TurnOf(session, turn), after_id or 0)) as events:
                async for told in events:
                    place.silent = place.silent and told is None
                    yield told
            last, turn, place.silent = turn, None, False
            continue
        if session is not None and await streams.store.session(session.name) is None:
            yield cut("SessionNotFound", "the session was deleted")
            return
        if streams.closing:
            yield cut("Stopping", "the server stops: come back with Last-Event-ID")
            return
        if watched.moves[key] == seen and not await watched.news.wait(streams.heartbeat_s):
            yield None


async def _hints(place: _Place) -> Told:
    """Tell that something should be read again; once at the beginning: what was read before may be old."""
    watched, key = place.watched, place.key
    lists, queue, rewound, moves = watched.lists, watched.queues[key], watched.rewound[key], 0
    yield _changed("sessions")
    if place.session is not None:
        yield _changed("waiting")
        yield _changed("rewound")
    while True:
        woken = await watched.news.wait(_SILENT_S)
        if lists != watched.lists:
            lists = watched.lists
            yield _changed("sessions")
        if queue != watched.queues[key]:
            queue = watched.queues[key]
            yield _changed("waiting")
        if rewound != watched.rewound[key]:
            rewound = watched.rewound[key]
            yield _changed("rewound")
        if place.silent and not woken and moves != watched.moves[key]:
            moves = watched.moves[key]
            yield _changed("messages")


def _changed(what: Literal["sessions", "waiting", "rewound", "messages"]) -> ToldEvent:
    return ToldEvent(0, 0, "changed", json.dumps({"type": "changed", "what": what}))


async def _merged(*sources: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Tell what comes from any of them, as it comes, until one ends."""
    next_of = {asyncio.ensure_future(anext(one)): one for one in sources}
    try:
        while True:
            done, _ = await asyncio.wait(next_of, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                source = next_of.pop(task)
                try:
                    told = task.result()
                except StopAsyncIteration:
                    return
                yield told
                next_of[asyncio.ensure_future(anext(source))] = source
    finally:
        for task in next_of:
            task.cancel()
        if next_of:
            await asyncio.wait(next_of)
        for source in sources:
            with suppress(Exception):
                await source.aclose()
