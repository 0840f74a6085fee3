"""Accept turns and stream their events: from memory where they run here, else from the store."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from lango.errors import SessionNotFound, Stopping, StoreError
from lango.event_ids import turn_of_event
from lango.runtime.runtime import Runtime
from lango.server.errors import current_request_id
from lango.server.security.auth import Caller
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.recorder import EventLogWriter, Recorder
from lango.sessions import SessionRecord
from lango.store.turns.event_log import LoggedEvent, LogPage, append_final_events, read_event_log
from lango.store.turns.queue import find_newest_turn, find_next_turn
from lango.store.turns.turns import TurnRecord, read_turn
from lango.submissions import Submission
from lango.turns.liveness import LivenessMonitor
from lango.turns.running_turn import RunningTurn

_log = logging.getLogger("lango.server")

_POLL_S, _MAX_POLL_S = 0.05, 0.5
_END_GRACE_S = 2.0
"""How long after a turn's end its own process has to log the final event."""
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
        self._event_log = EventLogWriter(runtime.store)
        self._recorders: dict[tuple[int, int], Recorder] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._liveness = LivenessMonitor(back_at=lambda: runtime.store.outages.recovered_at)
        self._stopping = asyncio.Event()
        self.session_watch = runtime.session_watch
        self.is_closing = False
        runtime.turns.follow_resumed(self._record_resumed)

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
        return self._start_recording(running, current_request_id.get())

    def _start_recording(self, running: RunningTurn, request_id: str = "") -> TurnRef:
        key = running.session.key, running.turn.turn
        if key not in self._recorders and not running.turn.repeated:
            recorder = Recorder(self._event_log, running, self._runtime.turns.owner.name)
            self._recorders[key] = recorder
            task = asyncio.create_task(self._record(recorder, request_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self.session_watch.notify(running.session, queued=running.turn.status == "queued")
        return TurnRef(running.session, running.turn.turn)

    def _record_resumed(self, running: RunningTurn) -> None:
        self._metrics.count_taken_over(running)
        self._start_recording(running)

    async def _record(self, recorder: Recorder, request_id: str) -> None:
        session, turn = recorder.running.session, recorder.running.turn.turn
        log_fields: dict[str, object] = {"session": session.name.id, "turn": turn}
        request = ""
        if request_id:
            log_fields["request_id"], request = request_id, f" ({request_id})"
        if recorder.running.trace_id:
            log_fields["trace_id"] = recorder.running.trace_id
        _log.info("turn %s of session %s accepted%s", turn, session.name.id, request, extra=log_fields)
        try:
            await recorder.run()
        finally:
            self._recorders.pop((session.key, turn), None)
        record = await self._count_usage(recorder)
        status = record.status if record else "lost"
        error = recorder.running.error
        error_text = f": {type(error).__name__}: {error}" if error else ""
        _log.info(
            "turn %s of session %s %s%s%s",
            turn,
            session.name.id,
            status,
            request,
            error_text,
            extra=log_fields | {"status": status},
        )

    async def _count_usage(self, recorder: Recorder) -> TurnRecord | None:
        """Add the usage of a turn to the metrics."""
        try:
            record = await self.store.read(read_turn, recorder.running.turn.session_key, recorder.running.turn.turn)
            self._metrics.count_turn(recorder, record)
        except StoreError as error:
            _log.warning("turn %s could not be counted: %s", recorder.running.turn.turn, error)
            return None
        return record

    # -- reading --------------------------------------------------------------------------------------------------

    async def follow(self, turn: TurnRef, after_id: int = 0) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events of a turn after an id to its end; None whenever no event came for a heartbeat."""
        recorder = self._recorders.get((turn.session.key, turn.turn))
        with self._metrics.count_reader():
            if recorder:
                async with aclosing(recorder.follow(after_id, self.heartbeat_s)) as events:
                    async for logged in events:
                        yield logged
                        after_id = logged.id if logged else after_id
                        if logged and logged.final:
                            return
            async with aclosing(self._follow_stored(turn, after_id)) as events:
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

    async def _follow_stored(self, turn: TurnRef, after_id: int) -> AsyncGenerator[LoggedEvent | None, None]:
        """Read the events of a turn that does not run here from the store."""
        wait_s, last_event_at, over_at = _POLL_S, time.monotonic(), None
        while True:
            page = await self.store.read(read_event_log, turn.session.key, turn.turn, after_id)
            for logged in page.events:
                yield logged
                after_id, last_event_at, wait_s = logged.id, time.monotonic(), _POLL_S
            if page.closed:
                return
            if page.turn is None:
                raise SessionNotFound("the session was deleted")
            if page.turn.status not in ("queued", "running"):
                over_at = over_at or time.monotonic()
            if await self._close_abandoned(turn, page, over_at):
                continue
            if time.monotonic() - last_event_at > self.heartbeat_s:
                last_event_at = time.monotonic()
                yield None
            if await self._wait_or_stop(wait_s):
                raise Stopping("the server stops")
            wait_s = min(1.5 * wait_s, _MAX_POLL_S)

    async def _close_abandoned(self, turn: TurnRef, page: LogPage, over_at: float | None) -> bool:
        """Append the final events of an ended turn whose process logged none; True: there is more to read."""
        record = page.turn
        assert record
        if record.status in ("queued", "running"):
            return False  # the runtime of some process goes on with it
        gone = self._liveness.is_gone(record.owner, record.heartbeat)
        late = over_at is not None and time.monotonic() - over_at > _END_GRACE_S
        if gone or late or record.status == "interrupted":
            await self.store.write(append_final_events, turn.session.key, turn.turn)
            return True
        return False

    async def _wait_or_stop(self, wait_s: float) -> bool:
        """Wait; True: the server stops."""
        try:
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    # -- stopping -------------------------------------------------------------------------------------------------

    @property
    def recorders(self) -> list[Recorder]:
        """The recorders of all turns that run or are queued here."""
        return list(self._recorders.values())

    async def drain(self, limit_s: float) -> None:
        """Refuse new messages, let the steps under way end, hand the turns over, and end every stream."""
        self.is_closing = True
        self.session_watch.notify_all()
        await self._runtime.hand_over(limit_s)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLEANUP_S)
        self._stopping.set()
