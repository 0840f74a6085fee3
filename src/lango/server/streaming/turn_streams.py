"""Count and log turns, and stream their events, which the runtime writes to the event log."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from lango.errors import StoreError
from lango.events import Steered, ToolEnd, ToolStart, turn_of_event
from lango.runtime import RunningTurn, Runtime
from lango.runtime.turns import LoggedEvent
from lango.server.errors import current_request_id
from lango.server.streaming.metrics import Metrics
from lango.sessions import SessionInfo

_log = logging.getLogger("lango.server")

_CLEANUP_S = 10.0
_LOOK_FOR_OTHERS_S = 1.0


class TurnRef(Struct, frozen=True):
    """A turn of a session."""

    session: SessionInfo
    turn: int


class TurnStreams:
    """Counts turns, and streams their events. A turn belongs to the server, not to the client that started it."""

    def __init__(self, runtime: Runtime, metrics: Metrics, heartbeat_s: float) -> None:
        self.runtime = runtime
        self._metrics = metrics
        self.heartbeat_s = heartbeat_s
        self._observed: dict[RunningTurn, asyncio.Task[None]] = {}
        self.session_watch = runtime.sessions.changes
        self.is_closing = False
        self.moved = asyncio.Event()
        """Set when readers should reconnect to another replica."""
        runtime.turns.call_for_resumed(self._observe_resumed)
        runtime.schedules.call_for_started(self.observe)

    def observe(self, running: RunningTurn) -> None:
        """Log and count a turn that runs here, and notify the pages that show its session."""
        if running not in self._observed and not running.turn.repeated:
            self._observed[running] = asyncio.create_task(self._count(running, current_request_id.get()))
            self._observed[running].add_done_callback(lambda _: self._observed.pop(running))
            self.session_watch.notify(running.session, queued=running.turn.status == "queued")

    def _observe_resumed(self, running: RunningTurn) -> None:
        self._metrics.count_taken_over(running)
        self.observe(running)

    async def _count(self, running: RunningTurn, request_id: str) -> None:
        session, turn = running.session, running.turn.turn
        log_fields: dict[str, object] = {"session": session.name.id, "turn": turn}
        request = ""
        if request_id:
            log_fields["request_id"], request = request_id, f" ({request_id})"
        if running.trace_id:
            log_fields["trace_id"] = running.trace_id
        _log.info("turn %s of session %s accepted%s", turn, session.name.id, request, extra=log_fields)
        await running.wait()
        status = "lost"
        try:
            if record := await self.runtime.turns.read(session, turn):
                status = record.status
            self._metrics.count_turn(running, record)
        except StoreError as error:
            _log.warning("turn %s could not be counted: %s", turn, error)
        error_text = f": {type(running.error).__name__}: {running.error}" if running.error else ""
        ended = log_fields | {"status": status}
        _log.info("turn %s of session %s %s%s%s", turn, session.name.id, status, request, error_text, extra=ended)

    # -- reading --------------------------------------------------------------------------------------------------

    async def follow(self, turn: TurnRef, after_id: int = 0) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn after an id to its end; None whenever no event came for a heartbeat."""
        followed = self.runtime.turns.follow(turn.session, turn.turn, after_id, self.heartbeat_s)
        with self._metrics.streams.track_inprogress():
            async with aclosing(followed) as events:
                async for logged in events:
                    yield logged

    async def follow_answer(self, turn: TurnRef) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn to its end, as `follow` does, for clients that know of one turn only.

        If a running turn takes the message in, `Steered` and what that turn does from then on follow.
        """
        into: int | None = None
        async with aclosing(self.follow(turn)) as events:
            async for logged in events:
                if logged is not None and isinstance(logged.event, Steered) and logged.event.turn == turn.turn:
                    into = logged.event.into
                elif into is None or logged is None:
                    yield logged
        if into is None:
            return
        has_message = False
        started: set[str] = set()
        async with aclosing(self.follow(TurnRef(turn.session, into))) as events:
            async for logged in events:
                match logged and logged.event:
                    case Steered(turn=number) if number == turn.turn:
                        has_message = True
                    case ToolStart(call_id=call_id) if has_message:
                        started.add(call_id)
                    case ToolEnd(call_id=call_id) if call_id not in started:
                        continue  # of a call that another agent made before
                    case _:
                        pass
                if logged is None or has_message or logged.final:
                    yield logged

    async def follow_session(
        self, session: SessionInfo, after_id: int | None
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events after an id, turn after turn, until no turn is left; without an id, those of the newest."""
        turn = await self._first_turn(session, after_id)
        while turn is not None:
            async with aclosing(self.follow(TurnRef(session, turn), after_id or 0)) as events:
                async for logged in events:
                    yield logged
            turn = await self.runtime.turns.next(session, turn)

    async def has_more(self, session: SessionInfo, after_id: int | None) -> bool:
        """Whether a session has events after an id, or a turn that may still emit some."""
        turn = await self._first_turn(session, after_id)
        if turn is None:
            return False
        page = await self.runtime.turns.events(session, turn, after_id or 0)
        return bool(page.events) or not page.closed or await self.runtime.turns.next(session, turn) is not None

    async def _first_turn(self, session: SessionInfo, after_id: int | None) -> int | None:
        if after_id is None:
            return await self.runtime.turns.newest(session)
        return await self.runtime.turns.next(session, turn_of_event(after_id) - 1)

    # -- stopping -------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[RunningTurn]:
        """The turns that run or are queued here."""
        return list(self._observed)

    async def drain(self, limit_s: float) -> None:
        """Refuse new messages, let the steps under way end, hand the turns over, and end every stream.

        Readers that can resume reconnect at once where another replica runs; others follow their turns to the end.
        """
        self.is_closing = True
        try:
            async with asyncio.timeout(_LOOK_FOR_OTHERS_S):
                if await self.runtime.has_other_replicas():
                    self.moved.set()
        except (StoreError, TimeoutError) as error:
            _log.warning("cannot tell whether another replica runs, so readers stay until their turns end: %r", error)
        self.session_watch.notify_all()
        await self.runtime.hand_over(limit_s)
        if self._observed:
            await asyncio.wait([*self._observed.values()], timeout=_CLEANUP_S)
        self.runtime.turns.stop_readers()
