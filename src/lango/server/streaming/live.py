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
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from lango.server.api.session_routes import BUSY, ERRORS, GONE, Id, LastId, read_last_id
from lango.server.context import Here
from lango.server.errors import Refused
from lango.server.schemas import SESSION_ID, Attachment, files_of
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.session_watch import Watched
from lango.server.streaming.sse import EventStream
from lango.server.streaming.turn_streams import TurnOf, TurnStreams, cut
from lango.store import SessionRecord, Turn, waiting
from lango.store.codec.records import as_datetime
from lango.store.turns.event_log import ToldEvent, turn_of

router = APIRouter(prefix="/v1", tags=["sessions"], responses=ERRORS, route_class=AuthenticatedRoute)

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events of the session's turns, one turn after the other, and `changed` with "
        '`{"what": "sessions"}`, `"waiting"`, `"rewound"` or `"messages"`. It ends only with the server, or with the '
        "session.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

_SILENT_S = 0.5
"""A turn of which nothing is told for so long may be one that nobody tells before its end."""

T = TypeVar("T")
Told = AsyncGenerator[ToldEvent | None, None]


class WaitingMessage(BaseModel):
    """A message that waits for its turn: another one of the session is not over."""

    turn: int
    content: str
    attachments: list[Attachment] = []
    created_at: datetime
    invocation_id: str
    is_answer: bool
    """It is no message but the answer to a question for approval."""

    @classmethod
    def of(cls, one: waiting.Waiting) -> Self:
        """Show a message that waits."""
        message = one.stored.message
        return cls(
            turn=one.turn,
            content=message.content if message else "",
            attachments=files_of(one.stored),
            created_at=as_datetime(one.stored.created_at),
            invocation_id=one.stored.invocation_id,
            is_answer=message is None or message.role != "user",
        )


class WaitingMessages(BaseModel):
    """The messages of a session that wait, in order."""

    waiting: list[WaitingMessage]


@router.get("/live", response_class=EventStream, responses=_STREAM | GONE)
async def live(
    user: User, here: Here, session: Annotated[str | None, Query(pattern=SESSION_ID)] = None, last_id: LastId = None
) -> Response:
    """Stay and be told what happens: in the session after Last-Event-ID, or from its current turn on; and around it."""
    after_id = read_last_id(last_id)
    record = None if session is None else await here.session(user, session)
    if record is not None and after_id is not None:
        await here.turns.has_more(record, after_id)  # raises where the events after that id are gone
    return here.stream(_told(here.turns, user.user_id, record, after_id))


@router.get("/sessions/{session_id}/waiting")
async def read_waiting(session_id: Id, user: User, here: Here) -> WaitingMessages:
    """Read the messages that wait for their turn, in order."""
    session = await here.session(user, session_id)
    found = await here.store.read(lambda: waiting.read(session.key))
    return WaitingMessages(waiting=[WaitingMessage.of(one) for one in found])


@router.delete("/sessions/{session_id}/waiting/{turn}", status_code=204, responses=BUSY)
async def take_back(
    session_id: Id, turn: Annotated[int, Path(ge=1, le=2**40, examples=[2])], user: User, here: Here
) -> None:
    """Take back a message that waits. One whose turn has begun is not taken back (409): stop it."""
    session = await here.session(user, session_id)
    if await here.runtime.take_back(session_id, turn, user_id=user.user_id):
        here.turns.watching.happened(session, queued=True)
        return
    record = await here.store.turn(Turn(session.key, turn))
    if record is None:
        raise Refused(404, "TurnNotFound", f"session {session_id!r} has no turn {turn}")
    if record.status != "cancelled":
        raise Refused(409, "TurnRunning", f"turn {turn} has begun already: stop it, or let it finish")


class _Place:
    """Where one reader is: what it watches, and whether a turn runs there of which nothing was told yet."""

    def __init__(self, watched: Watched, session: SessionRecord | None) -> None:
        self.watched = watched
        self.session = session
        self.key = -1 if session is None else session.key
        self.silent = False


async def _told(streams: TurnStreams, user_id: str, session: SessionRecord | None, after_id: int | None) -> Told:
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
        turn = await streams.store.read(lambda: waiting.current_turn(session))
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
