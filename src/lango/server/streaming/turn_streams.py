"""Accept turns and stream their events, which the runtime writes to the event log."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from lango.errors import Stopping, StoreError
from lango.event_ids import turn_of_event
from lango.runtime.runtime import Runtime
from lango.server.errors import current_request_id
from lango.server.security.auth import Caller
from lango.server.streaming.metrics import Metrics
from lango.sessions import SessionRecord
from lango.store.turns.event_log import LoggedEvent, read_event_log
from lango.store.turns.queue import find_newest_turn, find_next_turn
from lango.store.turns.turns import read_turn
from lango.submissions import Submission
from lango.turns.running_turn import RunningTurn

_log = logging.getLogger("lango.server")

_CLEANUP_S = 10.0


class TurnRef(Struct, frozen=True):
    """A turn of a session."""

    session: SessionRecord
    turn: int


class TurnStreams:
    """Accepts turns and streams their events. A turn belongs to the server, not to the client that started it."""

    def __init__(self, runtime: Runtime, metrics: Metrics, heartbeat_s: float) -> None:
        self._runtime = runtime
        self.store = runtime.store
        self._metrics = metrics
        self.heartbeat_s = heartbeat_s
        self._observed: dict[RunningTurn, asyncio.Task[None]] = {}
        self.session_watch = runtime.session_watch
        self.is_closing = False
        runtime.turns.follow_resumed(self._observe_resumed)

    # -- accepting ------------------------------------------------------------------------------------------------

    async def submit(self, caller: Caller, session_id: str, submission: Submission) -> TurnRef:
        """Store what the caller submits to a session and run its turn, whether or not a client follows it."""
        if self.is_closing:
            raise Stopping("the server is about to stop: try again in a moment")
        quota = caller.quota
        running = await self._runtime.accept(
            session_id,
            submission,
            user_id=caller.user_id,
            quota_id=quota.id if quota else None,
            tokens_per_day=quota.tokens_per_day if quota else None,
        )
        self._observe(running, current_request_id.get())
        return TurnRef(running.session, running.turn.turn)

    def _observe(self, running: RunningTurn, request_id: str = "") -> None:
        """Log and count a turn that runs here, and notify the pages that show its session."""
        if running not in self._observed and not running.turn.repeated:
            self._observed[running] = asyncio.create_task(self._count(running, request_id))
            self._observed[running].add_done_callback(lambda _: self._observed.pop(running))
            self.session_watch.notify(running.session, queued=running.turn.status == "queued")

    def _observe_resumed(self, running: RunningTurn) -> None:
        self._metrics.count_taken_over(running)
        self._observe(running)

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
            if record := await self.store.read(read_turn, session.key, turn):
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
        followed = self._runtime.turns.reader.follow(turn.session.key, turn.turn, after_id, self.heartbeat_s)
        with self._metrics.count_reader():
            async with aclosing(followed) as events:
                async for logged in events:
                    yield logged

    async def follow_session(
        self, session: SessionRecord, after_id: int | None
    ) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events after an id, turn after turn, until no turn is left; without an id, those of the newest."""
        turn = await self._first_turn(session, after_id)
        while turn is not None:
            async with aclosing(self.follow(TurnRef(session, turn), after_id or 0)) as events:
                async for logged in events:
                    yield logged
            turn = await self.store.read(find_next_turn, session, turn)

    async def has_more(self, session: SessionRecord, after_id: int | None) -> bool:
        """Whether a session has events after an id, or a turn that may still emit some."""
        turn = await self._first_turn(session, after_id)
        if turn is None:
            return False
        page = await self.store.read(read_event_log, session.key, turn, after_id or 0)
        return bool(page.events) or not page.closed or await self.store.read(find_next_turn, session, turn) is not None

    async def _first_turn(self, session: SessionRecord, after_id: int | None) -> int | None:
        if after_id is None:
            return await self.store.read(find_newest_turn, session)
        return await self.store.read(find_next_turn, session, turn_of_event(after_id) - 1)

    # -- stopping -------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[RunningTurn]:
        """The turns that run or are queued here."""
        return list(self._observed)

    async def drain(self, limit_s: float) -> None:
        """Refuse new messages, let the steps under way end, hand the turns over, and end every stream."""
        self.is_closing = True
        self.session_watch.notify_all()
        await self._runtime.hand_over(limit_s)
        if self._observed:
            await asyncio.wait([*self._observed.values()], timeout=_CLEANUP_S)
        self._runtime.turns.reader.stop()
