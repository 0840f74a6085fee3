"""A turn under way, as its readers see it."""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from msgspec import Struct, field

from lango import errors
from lango.config import AgentSettings, ServerSettings
from lango.errors import (
    AttachmentRefused,
    CallNotWaiting,
    EventsGone,
    FencedWrite,
    LangoError,
    SessionExists,
    StaleSession,
    StoreError,
    TurnCancelled,
    TurnFailed,
)
from lango.events import TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnDone, TurnError, TurnEvent, from_json
from lango.messages import MIME_TYPE, Attachment
from lango.store import Ahead, SessionId, SessionRecord, Store, Turn
from lango.store.codec.json_text import loads
from lango.store.turns import event_log, rebuilt_events, turns
from lango.telemetry.traces import in_span
from lango.turns.notifier import News

_log = logging.getLogger("lango.runtime")

BEAT_S = 2.0
POLL_S = 0.5
_LATE_S = 2.0
"""How long after a turn's end its own process has to store the events of the end."""
_TOOL_GRACE_S = 10.0
_SELDOM_S = 1.0  # pieces of text come often: their timer is set anew this seldom

T = TypeVar("T")
IsGone = Callable[[int, int, str, int], bool]
"""Whether the process of a turn is gone: the session's key, the turn, its owner, its beat."""


class RunningTurn(Struct, eq=False):
    """A turn that was accepted: what it has told so far, and the task that runs it. Any number of readers follow it."""

    session: SessionRecord
    turn: Turn
    events: list[TurnEvent] = field(default_factory=list[TurnEvent])
    task: "asyncio.Task[None] | None" = None
    finished: bool = False
    error: LangoError | None = None
    answer: str | None = None
    """The whole text: parallel agents are told mixed, and each is whole here."""
    stopped: LangoError | None = None
    """Why it was stopped."""
    superseded: bool = False
    """A newer message came before its turn did: it ends where it would begin."""
    begun: bool = False
    """The task runs: one that is cancelled before would end without a word."""
    readers: int = 0
    """How many must leave before the turn is stopped."""
    kept: bool = False
    """Somebody submitted it to run on, whoever reads."""
    trace_id: str = ""
    """The trace that it is told in, where somebody takes traces."""
    news: News = field(default_factory=News)
    urgent: News = field(default_factory=News)
    """News that are more than a piece of text."""
    _count: int = 0
    _last_urgent: int = 0

    def next_id(self) -> int:
        """Return an id larger than every one before it in this session."""
        self._count += 1
        return self.turn.turn * event_log.IDS_PER_TURN + self._count

    def tell(self, event: TurnEvent) -> None:
        """Add an event for every reader."""
        self.events.append(event)
        if not isinstance(event, TextDelta | ThoughtDelta):
            self._last_urgent = len(self.events)
            self.urgent.tell()
        self.news.tell()

    def is_urgent(self, read: int) -> bool:
        """Whether more than pieces of text were told after the first `read` events."""
        return self.finished or self._last_urgent > read

    def finish(self) -> None:
        """Say that nothing comes any more."""
        self.finished = True
        self.urgent.tell()
        self.news.tell()

    def fail(self, error: BaseException) -> None:
        """Tell the error that the turn ends with."""
        self.error = as_error(error)
        self.tell(TurnError(self.next_id(), type(self.error).__name__, str(self.error)))

    def stop(self, why: LangoError) -> None:
        """Stop the turn, once: another cancel would break off what the first one tidies up."""
        if self.stopped is None:
            self.stopped = why
            if self.task is not None and self.begun:
                self.task.cancel()

    async def follow(self, after_id: int = 0) -> AsyncGenerator[TurnEvent, None]:
        """Read what was told after an id, and what is told from now on, to the end.

        Raises `EventsGone` where a turn that was run before is rebuilt from its messages, and its own events are gone.
        """
        read = 0
        while True:
            while read < len(self.events):
                event = self.events[read]
                read += 1
                if rebuilt_events.is_rebuilt(event.id) and rebuilt_events.is_between(self.turn.turn, after_id):
                    raise EventsGone(event_log.gone(after_id))
                if event.id > after_id:
                    yield event
            if self.finished:
                return
            await self.news.wait()

    async def wait(self) -> None:
        """Wait for the end."""
        while not self.finished:
            await self.news.wait()


def traced(running: RunningTurn, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Return the work of a turn, in a span of its own where somebody takes traces."""
    session_id = running.session.name.id
    about = {"lango.session.id": session_id, "gen_ai.conversation.id": session_id, "lango.turn": running.turn.turn}

    def ended() -> dict[str, str | int | float | bool]:
        if running.error is not None:
            return {"lango.turn.status": "failed", "error.type": type(running.error).__name__}
        last = running.events[-1]
        if not isinstance(last, TurnDone):
            return {}
        used = last.usage
        told = {"gen_ai.usage.input_tokens": used.input_tokens, "gen_ai.usage.output_tokens": used.output_tokens}
        cost = {} if used.cost_usd is None else {"lango.cost_usd": used.cost_usd}
        return {"lango.turn.status": last.status, "lango.model_calls": used.model_calls, **told, **cost}

    work, running.trace_id = in_span("turn", about, work, ended)
    return work


class Patience:
    """How long a turn may be silent: a model must give news, a tool has a limit of its own."""

    def __init__(self, idle: asyncio.Timeout, agent: AgentSettings, limits_s: Mapping[str, float | None]) -> None:
        """`limits_s`: of the calls under way; None is no limit but the turn's own."""
        self._idle = idle
        self._agent = agent
        self._limits_s = limits_s
        self._busy: set[str] = set()
        self._renewed_at = 0.0
        self._seldom_s = min(_SELDOM_S, agent.idle_timeout_s / 10)

    def renew(self, event: TurnEvent) -> None:
        """Start the limit anew, because an event was emitted."""
        match event:
            case TextDelta() | ThoughtDelta():
                self.note_progress()
                return
            case ToolStart():
                self._busy.add(event.call_id)
            case ToolEnd():
                self._busy.discard(event.call_id)
            case _:
                pass
        self._extend(asyncio.get_running_loop().time())

    def note_progress(self) -> None:
        """Start the limit anew, because a model made progress: it reads a long prompt, or writes a long call."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= self._seldom_s:
            self._extend(now)

    def _extend(self, now: float) -> None:
        self._renewed_at = now
        limits = [self._limits_s.get(call_id, self._agent.tool_timeout_s) for call_id in self._busy]
        longest = max([limit_s + _TOOL_GRACE_S for limit_s in limits if limit_s is not None], default=0.0)
        if not self._idle.expired():
            self._idle.reschedule(None if None in limits else now + (longest or self._agent.idle_timeout_s))


def check_attachments(attachments: Sequence[Attachment], limits: ServerSettings) -> None:
    """Raise `AttachmentRefused` for files that a message may not bring."""
    if len(attachments) > limits.max_attachments:
        raise AttachmentRefused(
            f"a message may bring {limits.max_attachments} files, not {len(attachments)} "
            "(setting server.max_attachments)"
        )
    total = sum(len(file.data) for file in attachments)
    if total > limits.max_attachment_bytes:
        raise AttachmentRefused(
            f"the files of a message may have {limits.max_attachment_bytes} bytes together, not {total} "
            "(setting server.max_attachment_bytes)"
        )
    for file in attachments:
        if not (file.data and MIME_TYPE.fullmatch(file.mime_type)):
            raise AttachmentRefused(f"the file {file.name!r} is empty, or its type {file.mime_type!r} is none")


async def made_session(store: Store, name: SessionId) -> SessionRecord:
    """Return a session, made now where there was none."""
    session = await store.session(name)
    while session is None:
        try:
            session = await store.create_session(name)
        except SessionExists:  # somebody else made it just now
            session = await store.session(name)
    return session


async def known_session(store: Store, name: SessionId) -> SessionRecord:
    """Return a session that was read before; raise `StaleSession` where it was deleted since."""
    session = await store.session(name)
    if session is None:
        raise StaleSession(f"session {name.id!r} was deleted since it was read")
    return session


async def claim(running: RunningTurn, store: Store, is_gone: IsGone) -> None:
    """Wait until nothing is ahead of a turn, and begin it. Turns ahead whose process is gone are interrupted."""
    if running.turn.epoch is not None:
        return
    session = running.session
    async with store.queue(running.turn) as comes_up:
        while True:
            claimed, left = await uninterrupted(store.claim_turn(session.name, running.turn))
            if isinstance(claimed, Turn) and claimed.epoch is not None:
                running.turn = claimed
            if left:
                raise asyncio.CancelledError
            if isinstance(claimed, Turn):
                break
            if not await interrupt_gone(store, session, claimed, is_gone):
                await comes_up(POLL_S)
    match claimed.status:
        case "running":
            return
        case "failed":
            raise CallNotWaiting("the conversation went on before the client's result came to its turn")
        case "cancelled":
            raise TurnCancelled("the message was taken back before its turn came")
        case _:
            raise FencedWrite("another process took this turn over")


async def interrupt_gone(store: Store, session: SessionRecord, turns: Sequence[Ahead], is_gone: IsGone) -> int:
    """Interrupt turns at the head of a session's queue whose process is gone; return how many.

    `turns` are all of the queue up to one, in order. A turn behind one that lives keeps its place, dead or not.
    """
    gone = [is_gone(session.key, one.turn, one.owner, one.beat) for one in turns]  # of all: each has its own clock
    count = 0
    for one, is_dead in zip(turns, gone, strict=True):
        if not is_dead or not await store.interrupt_turn(session, one):
            break
        _log.warning("turn %s of session %s was left by a process that is gone", one.turn, session.name.id)
        count += 1
    return count


async def keep_alive(running: RunningTurn, store: Store) -> None:
    """Say that this process lives, and hear whether the turn was cancelled or taken over elsewhere."""
    while running.stopped is None:
        await asyncio.sleep(BEAT_S)
        try:
            heard = await store.beat_turn(running.turn)
        except LangoError as error:
            _log.warning("turn %s could not say that it lives: %s", running.turn.turn, error)
            continue
        if heard == "cancelled":
            running.stop(TurnCancelled("the turn was stopped"))
        elif heard == "lost":
            running.stop(FencedWrite("another process took this turn over"))


async def until_stored(write: Callable[[], Coroutine[Any, Any, object]], turn: str) -> None:
    """Repeat a write until the store takes it: without it, the turn's session would be busy for ever."""
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await write()
        except StoreError as error:
            _log.warning("%s could not be ended yet: %s", turn, error)
        else:
            return


async def abandon(store: Store, session: SessionRecord, owner: str, invocation_id: str) -> None:
    """End a turn of which its owner does not know whether it was stored, or begun, as soon as the store is there."""
    end = functools.partial(turns.abandon, session.key, session.name, owner, invocation_id, time.time())
    await until_stored(lambda: store.write(end), f"a turn of session {session.name.id}")


async def give_up(store: Store, session: SessionRecord, turn: Turn) -> None:
    """End a turn that nobody runs: it was stored while whoever sent it went away."""
    if turn.epoch is None:
        await store.withdraw_turn(turn)
    else:
        await store.end_turn(session.name, turn, "cancelled")


async def replay(running: RunningTurn, store: Store, is_gone: IsGone) -> None:
    """The same request came before, to another process or long ago: tell what became of it."""
    session, turn = running.session, running.turn
    while (record := await store.turn(turn)) and record.status in ("waiting", "running"):
        ahead = await store.open_turns(session, before=turn.turn + 1)
        if not await interrupt_gone(store, session, ahead, is_gone):
            await asyncio.sleep(POLL_S)
    if record is None:
        raise TurnFailed("the session was deleted meanwhile")
    said = await store.said_in_turn(turn)
    running.answer = "".join(one.message.content for one in said if one.message)
    late = record.status != "interrupted" and not is_gone(session.key, turn.turn, record.owner, record.beat)
    async for event in _logged(store, turn, running.events[-1].id, _LATE_S if late else 0):
        if isinstance(event, TurnError) and event.fatal:
            running.error = error_named(event.error, event.message)
        running.tell(event)


async def _logged(store: Store, turn: Turn, after_id: int, late_s: float) -> AsyncGenerator[TurnEvent, None]:
    """Read the events of a turn that is over, from the log; its last ones may come a little later than its end."""
    deadline = asyncio.get_running_loop().time() + late_s
    while True:
        told = await store.told(turn.session_key, turn.turn, after_id)
        for one in told.events:
            yield from_json(loads(one.data))
            after_id = one.id
        if told.closed:
            return
        if told.turn is None:
            raise TurnFailed("the session was deleted meanwhile")
        if told.events:
            continue
        if asyncio.get_running_loop().time() >= deadline:
            await store.close_told(turn.session_key, turn.turn)
        else:
            await asyncio.sleep(POLL_S / 10)


async def followed(turn: RunningTurn) -> AsyncGenerator[TurnEvent, None]:
    """Yield the events of a turn to its end; a reader that leaves before may stop it."""
    turn.readers += 1
    try:
        async with aclosing(turn.follow()) as events:
            async for event in events:
                yield event
    finally:
        await _leave(turn)


async def collected(turn: RunningTurn) -> str:
    """Wait for a turn and return its answer, or raise its error."""
    turn.readers += 1
    try:
        await turn.wait()
    finally:
        await _leave(turn)
    if turn.error is not None:
        raise turn.error
    told = "".join(event.text for event in turn.events if isinstance(event, TextDelta))
    return told if turn.answer is None else turn.answer


async def _leave(turn: RunningTurn) -> None:
    """Stop a turn that its last reader leaves before the end, and wait until its record is honest."""
    turn.readers -= 1
    if turn.finished or turn.readers or turn.kept:
        return
    turn.stop(TurnCancelled("the turn was stopped: nobody reads its answer any more"))
    await turn.wait()


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Await work to its end, whoever cancels meanwhile; return its result, and whether somebody did.

    A write to the store that is given up half-way may have been made: then nobody would know of it.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


def error_named(name: str, message: str) -> LangoError:
    """Return the error that a turn ended with, from what its last event says of it."""
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, LangoError) else TurnFailed(message)


def as_error(error: BaseException) -> LangoError:
    """Return an error of ours as it is, and any other one as the cause of one."""
    if isinstance(error, LangoError):
        return error
    failed = TurnFailed(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
