"""`WS /v1/ws`: the same events both ways, for any of the caller's sessions at once.

A client sends JSON: `{"type": "message", "session", "text", "attachments"?, "idempotency_key"?}`,
`{"type": "cancel", "session"}`, `{"type": "approval", "session", "call_id", "approved"}` or
`{"type": "resume", "session", "after"?}`. It is sent the events of those turns, each with its `session`. What it asked
wrongly is answered by an `error` that has no `id`, is not `fatal`, and names the `session` it is about, if any. So is
what there is nothing to do for: `NothingRuns` where no turn runs that could be cancelled, `NothingToResume` where
nothing comes after that event and nothing runs, `EventsGone` where what comes after it is not kept any more.
"""

import asyncio
import functools
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import Field, TypeAdapter, ValidationError

from lango.errors import LangoError
from lango.json_input import TooManyValues, read_json
from lango.server.context import Here, Served
from lango.server.errors import Refused, problem_of, told
from lango.server.schemas import SESSION_ID, Body, NewMessage
from lango.server.security.auth import Caller, authorization_of
from lango.server.streaming.sse import refused_later
from lango.store import SessionRecord
from lango.store.turns.event_log import ToldEvent

_log = logging.getLogger("lango.server")

router = APIRouter()

_MOST_STREAMS = 32
_MAX_PROBLEMS = 10
_PROTOCOL = "lango"
_GONE = (TimeoutError, RuntimeError, WebSocketDisconnect)
"""What sending raises where a client does not read, or is gone."""

SessionName = Annotated[str, Field(pattern=SESSION_ID)]


class SendMessage(NewMessage):
    """Send a message."""

    type: Literal["message"]
    session: SessionName
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")] | None = None


class Cancel(Body):
    """Stop a turn."""

    type: Literal["cancel"]
    session: SessionName


class Approval(Body):
    """Answer a tool that asked."""

    type: Literal["approval"]
    session: SessionName
    call_id: Annotated[str, Field(max_length=512)]
    approved: bool


class Resume(Body):
    """Go on after an event."""

    type: Literal["resume"]
    session: SessionName
    after: Annotated[int, Field(ge=0, lt=2**62)] | None = None


Asked = Annotated[SendMessage | Cancel | Approval | Resume, Field(discriminator="type")]
_ASKED: TypeAdapter[Asked] = TypeAdapter(Asked)


@router.websocket("/v1/ws")
async def talk(socket: WebSocket, here: Here) -> None:
    """Hear what the client asks and tell it what happens, until it goes."""
    try:
        authorization = authorization_of(socket)
        await here.door.enter(authorization)
    except (Refused, LangoError) as refused:
        await socket.close(1008, str(refused)[:120])
        return
    await socket.accept(_PROTOCOL if _PROTOCOL in socket.scope["subprotocols"] else None)
    conversation = _Conversation(socket, here, authorization)
    try:
        await conversation.last()
    finally:
        await conversation.leave()


def _read(text: str) -> Asked:
    """Return what a client asks for; raise `Refused` where it asks wrongly."""
    try:
        return _ASKED.validate_python(read_json(text))
    except TooManyValues as error:
        raise Refused(413, "TooLarge", str(error)) from error
    except ValidationError as error:
        raise Refused(400, "BadRequest", "; ".join(_problem(one) for one in error.errors()[:_MAX_PROBLEMS])) from error
    except (ValueError, RecursionError) as error:
        raise Refused(400, "BadRequest", "send JSON as text") from error


def _problem(problem: Mapping[str, object]) -> str:
    """Say what is wrong with what a client sent."""
    if not problem["loc"]:
        return "send an object with a type: message, cancel, approval or resume"
    return problem_of(problem)


class _Conversation:
    """One socket. Every stream waits for the socket, and the socket for its client: nothing is kept in between."""

    def __init__(self, socket: WebSocket, here: Served, authorization: str | None) -> None:
        self._socket = socket
        self._here = here
        self._authorization = authorization
        self._telling: set[asyncio.Task[None]] = set()
        self._hearing = asyncio.create_task(self._hear())

    async def last(self) -> None:
        """Wait until the client goes, is cut off, or may read no more."""
        check = functools.partial(self._here.door.check, self._authorization)
        checking = asyncio.create_task(refused_later(check))
        await asyncio.wait([self._hearing, checking], return_when=asyncio.FIRST_COMPLETED)
        checking.cancel()
        if checking.done() and not self._hearing.done():
            await self._socket.close(1008, str(checking.result())[:120])
        elif not self._hearing.cancelled():
            self._hearing.result()

    async def _hear(self) -> None:
        while (heard := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                asked = _read(heard.get("text") or "")
            except Refused as refused:
                await self._refuse(refused)
                continue
            try:
                await self._answer(asked)
            except (LangoError, Refused) as error:
                await self._refuse(error, asked.session)

    async def _answer(self, asked: Asked) -> None:
        caller = await self._here.door.enter(self._authorization)  # again: the key may be revoked by now
        if len(self._telling) >= _MOST_STREAMS:
            raise Refused(429, "TooManyStreams", f"at most {_MOST_STREAMS} streams on one socket")
        match asked:
            case SendMessage():
                await self._here.may_write(caller, asked.session)
                turn = await self._here.turns.submit(
                    caller, asked.session, asked.text, asked.idempotency_key, asked.files
                )
                self._tell(asked.session, self._here.turns.follow(turn))
            case Approval():
                await self._approve(caller, asked)
            case Resume():
                session = await self._here.session(caller, asked.session)
                self._tell(asked.session, self._resumed(session, asked.after))
            case Cancel():
                await self._here.session(caller, asked.session)
                if not await self._here.runtime.cancel(asked.session, user_id=caller.user_id):
                    raise Refused(409, "NothingRuns", f"no turn runs in session {asked.session!r}: nothing to cancel")

    async def _approve(self, caller: Caller, asked: Approval) -> None:
        await self._here.door.check_tokens(caller)
        await self._here.session(caller, asked.session)
        turn = await self._here.turns.approve(caller, asked.session, asked.call_id, approved=asked.approved)
        self._tell(asked.session, self._here.turns.follow(turn))

    async def _resumed(self, session: SessionRecord, after: int | None) -> AsyncGenerator[ToldEvent | None, None]:
        """Tell what a session told after an event; where that is nothing, say so."""
        told = False
        async with aclosing(self._here.turns.follow_session(session, after)) as events:
            async for event in events:
                told = told or event is not None
                yield event
        if not told:
            what = "there was no turn" if after is None else f"nothing comes after event {after}"
            raise Refused(409, "NothingToResume", f"{what} in session {session.name.id!r}, and nothing runs")

    def _tell(self, session_id: str, events: AsyncGenerator[ToldEvent | None, None]) -> None:
        task = asyncio.create_task(self._tell_all(session_id, events))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_all(self, session_id: str, events: AsyncGenerator[ToldEvent | None, None]) -> None:
        named = f',"session":{json.dumps(session_id)}}}'
        try:
            async with aclosing(events):
                async for event in events:
                    if event:  # the protocol has pings of its own
                        await self._send(event.data.removesuffix("}") + named)
        except (LangoError, Refused) as error:
            await self._refuse(error, session_id)
        except _GONE:
            self._cut_off()

    async def _refuse(self, error: Exception, session_id: str | None = None) -> None:
        refused = told(error)
        said = {"type": "error", "error": refused.error, "message": str(refused), "fatal": False}
        try:
            await self._send(json.dumps(said if session_id is None else said | {"session": session_id}))
        except _GONE:
            self._cut_off()

    def _cut_off(self) -> None:
        _log.warning("a client that does not read, or is gone, was cut off")
        self._hearing.cancel()

    async def _send(self, text: str) -> None:
        async with asyncio.timeout(self._here.settings.server.write_timeout_s):
            await self._socket.send_text(text)

    async def leave(self) -> None:
        """Stop telling; the turns go on."""
        tasks = [self._hearing, *self._telling]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
