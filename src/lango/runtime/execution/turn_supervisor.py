"""Supervise the turns of a runtime: run them to their end, resume those of dead processes, hand them over.

One path runs a turn: its first run, the runs after a failure, and the ones that other processes began.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from lango.adk.run.engine import AdkEngine
from lango.config import Settings
from lango.errors import LangoError, SessionNotFound, StoreError, TurnAbandoned, TurnCancelled, TurnReleased
from lango.events import Resumed
from lango.runtime.execution.admission import Admission
from lango.runtime.execution.event_log import EventLogReader, EventLogWriter, read_log
from lango.runtime.execution.replicas import Replicas
from lango.runtime.execution.take_over import TakeOverLoop
from lango.runtime.execution.turn_runner import TurnRunner, run_in_turn_span
from lango.runtime.trace.prices import turn_usage
from lango.sessions import SessionId, SessionInfo
from lango.store import Store, Turn
from lango.store.engine.outages import wait_for_database
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.tool_journal import read_turn_entries
from lango.store.turns.ending import abandon_turn
from lango.store.turns.event_log import accepted_event
from lango.store.turns.lease import (
    ResumeReason,
    TakenOver,
    count_attempt,
    release_invocation,
)
from lango.store.turns.turns import StoredTurn, TurnFailure, TurnResult, read_turn, read_turn_record
from lango.turns.lease_holder import LeaseHolder, acquire_lease, finish_despite_cancel, retry_until_stored
from lango.turns.liveness import LivenessMonitor, Owner
from lango.turns.running_turn import RunningTurn
from lango.turns.turn_input import TurnInput
from lango.turns.turn_log import TurnLog
from lango.turns.turn_sink import end_record

_log = logging.getLogger("lango.runtime")


class TurnSupervisor:
    """Runs the turns that this process accepted, and those that it takes over from others."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine, *, every_session: bool) -> None:
        """Turns of other processes are taken over in `every_session`, or only in those that have a turn here."""
        self._settings = settings
        self._store = store
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()  # not a TaskGroup: it would wrap errors of the caller's body
        self._running: dict[int, list[RunningTurn]] = {}
        self._on_resume: list[Callable[[RunningTurn], None]] = []
        self.owner = Owner()
        new_monitor = functools.partial(LivenessMonitor, back_at=lambda: store.outages.recovered_at)
        self.liveness = new_monitor()
        """Watches the owners of open turns."""
        self._leases = LeaseHolder(store, self.owner, self.running_turns)
        self.memory = engine.memory(self._leases, new_monitor().is_gone)
        self.admission = Admission(settings.agent.max_running_turns)
        self._event_log = EventLogWriter(store, self.owner.name)
        self.reader = EventLogReader(store, self._find_log)
        self._turn_runner = TurnRunner(
            settings.agent, store, engine, self.admission, self.spawn, self._event_log, self.owner.name
        )
        self.replicas = Replicas(store, engine.app.name, self.owner.name, self.version)
        if every_session:
            self.spawn(self.replicas.announce())
        self._take_over_loop = TakeOverLoop(
            store,
            engine.app.name,
            self.owner.name,
            self.liveness,
            self.replicas,
            settings.agent,
            self._resume,
            lambda session_key: every_session or session_key in self._running,
        )
        self.spawn(self._take_over_loop.run())
        if every_session and store.dialect == "postgres":  # a SQLite file would be polled, as the loop itself does
            self.spawn(self._take_over_loop.watch_releases())
        self._write_task = asyncio.create_task(self._event_log.run())
        self.abandoned_turns = 0
        """How many turns were ended because their process died at each attempt."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task that belongs to the runtime: `close` stops it and waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def version(self) -> str:
        """The version of the app that runs here."""
        return self._engine.app.version.name

    # -- the turns of this process --------------------------------------------------------------------------------

    def running_turns(self, session_key: int | None = None) -> list[RunningTurn]:
        """Return the turns of this process, running or queued, of one session or of all."""
        if session_key is not None:
            return list(self._running.get(session_key, ()))
        return [running for turns in self._running.values() for running in turns]

    def find_turn(self, session_key: int, turn: int) -> RunningTurn | None:
        """Return a turn of this process, or None if it does not run or queue here."""
        found = (running for running in self._running.get(session_key, ()) if running.turn.turn == turn)
        return next(found, None)

    def model_calls_of(self, session_key: int, turn: int) -> list[dict[str, Any]]:
        """Return the model calls so far of a turn, if it runs in this process."""
        running = self.find_turn(session_key, turn)
        return running.model_calls() if running else []

    def _find_log(self, session_key: int, turn: int) -> TurnLog | None:
        running = self.find_turn(session_key, turn)
        return running.log if running is not None and not running.turn.repeated else None

    def start(self, session: SessionInfo, turn: Turn, turn_input: TurnInput | None = None) -> RunningTurn:
        """Run an accepted turn in the background; one that is repeated needs no input."""
        if turn_input is None or turn.repeated:
            log = TurnLog(turn)
        else:
            first = accepted_event(turn, turn_input.entry.invocation_id)
            log = TurnLog(turn, [first], self._event_log.note_event)
        running = RunningTurn(session, turn, log)
        self._run_in_task(running, self._run_turn(running, turn_input))
        return running

    def _run_in_task(
        self, running: RunningTurn, work: Coroutine[Any, Any, None], trace_parent: Mapping[str, str] | None = None
    ) -> "asyncio.Task[None]":
        if self._take_over_loop.stopping:
            running.stop(_process_stops())
        self._running.setdefault(running.session.key, []).append(running)
        work, running.trace_id = run_in_turn_span(running, work, trace_parent)
        running.task = task = self.spawn(work)
        return task

    async def _run_turn(self, running: RunningTurn, turn_input: TurnInput | None) -> None:
        """Run a turn to its end. Without an input, another process accepted it: the input is read from the store."""
        running.phase = "started"
        try:
            with wait_for_database(), self._leases.held():
                if running.stop_reason is not None:  # stopped before this task began
                    return await self._end_withdrawn_turn(running)
                if running.turn.repeated:
                    return await self.reader.resend(running)
                check_owners = self._take_over_loop.check_soon
                if not await acquire_lease(running, self._store, self.owner.name, self.version, check_owners):
                    return await self.reader.read_end(running)
                await self._run_attempts(running, turn_input)
                self.memory.observe_in_background(running.session.name)
        except asyncio.CancelledError:
            await self._end_withdrawn_turn(running)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the readers of the turn get it
            if isinstance(error, StoreError) and not running.turn.repeated:
                self._give_up(running, turn_input)
            running.fail(error)
        finally:
            others = [other for other in self._running.pop(running.session.key, []) if other is not running]
            if others:
                self._running[running.session.key] = others
            running.log.finish()

    async def _run_attempts(self, running: RunningTurn, turn_input: TurnInput | None) -> None:
        """Run a leased turn; after a temporary failure, run it again from what is stored."""
        while True:
            first_seq: int | None = None
            if running.is_resumed or turn_input is None or turn_input.continues_invocation:
                prepared = await self._prepare(running, turn_input)
                if prepared is None:
                    return
                turn_input, first_seq = prepared
            if await self._turn_runner.run(running, turn_input, first_seq):
                return
            if running.has_diverged:
                continue
            running.resume(await self._store.write(count_attempt, running.turn, time.time()))
            running.log.emit(Resumed(running.log.next_id(), "failure", running.attempts, datetime.now(UTC)))
            await asyncio.sleep(self._settings.agent.retry_delay_s * 2 ** (running.attempts - 1))

    async def _prepare(self, running: RunningTurn, accepted: TurnInput | None) -> tuple[TurnInput, int | None] | None:
        """Read the input of a turn, and after which message its record begins, if it has one.

        A turn whose record does not fit this version of the app continues from its history. Return None if its answer
        is stored: it has ended. If it cannot continue, or its input cannot be used here, it ends, and the next starts.
        """
        updates, row = self._engine.updates, await self._read_row(running)
        try:
            name = running.session.name
            continuation = await updates.prepare(name, running.turn, row, has_diverged=running.has_diverged)
            if continuation == "is answered":
                return await self._end_answered(running, row)
            is_new = continuation == "from its history"
            if is_new:
                before, row = row.record_seq or 0, await self._read_row(running)
                stored = await self._store.read(read_turn_record, running.turn, before)
                running.begin_record()
                earlier = [event for event in stored if event.seq < (row.continued_seq or 0)]
                end_record(running.log, earlier, running.attempts)
            if accepted is None or is_new or running.is_resumed:
                accepted = await self._engine.inputs.stored_input(running.session, row)
        except StoreError:
            raise
        except LangoError as error:  # for example, the key that decrypts a credential is missing here
            failed = TurnResult(TurnFailure.of(error))
            await self._store.end_turn(running.session.name, running.turn, "failed", failed)
            raise
        return accepted, row.record_seq if running.is_resumed else None

    async def _end_answered(self, running: RunningTurn, row: StoredTurn) -> None:
        """End a turn whose process died between its answer and its end."""
        result, used = await self._engine.updates.read_result(running.turn, row)
        model_calls = sum(each.model_calls for each in used.values())
        usage = await turn_usage(used, model_calls, self._settings.agent.prices)
        await self._store.end_turn(running.session.name, running.turn, "done", replace(result, usage=usage))
        await self.reader.read_end(running)

    async def _read_row(self, running: RunningTurn) -> StoredTurn:
        row = await self._store.read(read_turn, running.turn.session_key, running.turn.turn)
        if row is None:
            raise SessionNotFound("the session was deleted")
        return row

    # -- resuming turns of other processes -------------------------------------------------------------------

    async def _resume(
        self, name: SessionId, taken: TakenOver, reason: ResumeReason, detected_at: float
    ) -> "asyncio.Task[None] | None":
        """Resume a turn that was taken over, or end it if it was run as often as allowed; return its task."""
        session = await self._store.read(find_session, name)
        if session is None:
            return None
        turn, agent = taken.turn, self._settings.agent
        log = await read_log(self._store, turn, self._event_log.note_event)
        taken_over_s = asyncio.get_running_loop().time() - detected_at
        running = RunningTurn(session, turn, log, attempts=taken.attempts, taken_over_s=taken_over_s)
        if taken.attempts >= agent.max_attempts:
            await self._abandon(running)
            return None
        row = await self._store.read(read_turn, session.key, turn.turn)
        if running.is_resumed:
            log.emit(Resumed(log.next_id(), reason, taken.attempts, datetime.now(UTC)))
        if taken.cancel_requested:
            running.stop(TurnCancelled("the turn was stopped"))
        delay_s = agent.retry_delay_s * 2 ** (taken.attempts - 2) if taken.attempts > 1 else 0.0
        trace_parent = row.request.trace if row else None
        task = self._run_in_task(running, self._run_later(running, delay_s), trace_parent)
        for callback in self._on_resume:
            callback(running)
        return task

    async def continue_turn(self, session: SessionInfo, turn: Turn) -> RunningTurn:
        """Run a turn on that was stored as if a process had left it in the middle, and is leased to this one."""
        log = await read_log(self._store, turn, self._event_log.note_event)
        running = RunningTurn(session, turn, log, taken_over_s=0.0)
        self._run_in_task(running, self._run_turn(running, None))
        return running

    async def _run_later(self, running: RunningTurn, delay_s: float) -> None:
        with self._leases.held():
            await asyncio.sleep(delay_s)
            await self._run_turn(running, None)

    async def _abandon(self, running: RunningTurn) -> None:
        """End a turn that was run as often as allowed, and whose process died each time."""
        entries = await self._store.read(read_turn_entries, running.turn)
        names = sorted({entry.name for entry in entries.values() if entry.status == "started"})
        place = f" while {', '.join(names)} ran: it may stop the event loop or the process" if names else ""
        error = TurnAbandoned(
            f"the turn was run {running.attempts} times, and its process died each time{place} "
            "(setting agent.max_attempts)"
        )
        self.abandoned_turns += 1
        await self._store.end_turn(running.session.name, running.turn, "failed", TurnResult(TurnFailure.of(error)))
        _log.error("turn %s of session %s: %s", running.turn.turn, running.session.name.id, error)

    def call_for_resumed(self, callback: Callable[[RunningTurn], None]) -> None:
        """Call a function for each turn that was or will be taken over from another process."""
        self._on_resume.append(callback)
        for running in self.running_turns():
            if running.taken_over_s is not None:
                callback(running)

    # -- ending turns ---------------------------------------------------------------------------------------------

    def settle_unknown_turn(self, session: SessionInfo, turn_input: TurnInput, *, may_run: bool) -> None:
        """End a turn that may have been stored or leased, as soon as the store is available.

        With `may_run` it is released and runs: its client has a key to ask for it again.
        """
        store, owner, invocation_id, now = self._store, self.owner.name, turn_input.entry.invocation_id, time.time()

        def settle() -> Coroutine[Any, Any, object]:
            if may_run:
                return store.write(release_invocation, session.key, owner, invocation_id)
            return store.write(abandon_turn, session.key, session.name, owner, invocation_id, now)

        self.spawn(retry_until_stored(store, settle, f"a turn of session {session.name.id}"))

    def _give_up(self, running: RunningTurn, turn_input: TurnInput | None) -> None:
        """End or release a turn whose store was away for too long, as soon as it is available."""
        if turn_input is not None:
            return self.settle_unknown_turn(running.session, turn_input, may_run=False)
        turn, store, owner = running.turn, self._store, self.owner.name
        self.spawn(retry_until_stored(store, lambda: store.release_turn(turn, owner), f"turn {turn.turn}"))
        return None

    async def release_turn(self, session: SessionInfo, turn: Turn) -> None:
        """Leave a turn that was stored while this process stops to the next one."""
        running = RunningTurn(session, turn, TurnLog(turn))
        running.stop(_process_stops())
        await finish_despite_cancel(self._turn_runner.release(running))

    async def end_unstarted_turn(self, session: SessionInfo, turn: Turn) -> None:
        """End a turn that will not run, now or as soon as the store is available."""

        async def end() -> None:
            if turn.epoch is None:
                await self._store.withdraw_turn(turn)
            else:
                await self._store.end_turn(session.name, turn, "cancelled")

        try:
            with wait_for_database("short"):
                await finish_despite_cancel(end())
        except StoreError as error:
            _log.warning("turn %s could not be withdrawn yet: %s", turn.turn, error)
            self.spawn(retry_until_stored(self._store, end, f"turn {turn.turn}"))

    async def _end_withdrawn_turn(self, running: RunningTurn) -> None:
        """Withdraw a turn that did not start, or release it; a repeated one is left to the process that runs it."""
        if isinstance(running.stop_reason, TurnReleased):
            await self._turn_runner.release(running)
            return
        if not running.turn.repeated:
            await self.end_unstarted_turn(running.session, running.turn)
        running.fail(running.stop_reason or TurnCancelled("the message was withdrawn before its turn started"))

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more turns, let the steps under way end within a limit, and release the turns.

        Nothing is cancelled: another process continues them, or the next one that opens this store.
        """
        self._take_over_loop.stopping = True
        self._take_over_loop.check_soon()
        for running in self.running_turns():
            if running.is_running and not running.turn.repeated:
                running.log.send_readers_elsewhere()
                running.step_gate.close(functools.partial(running.stop, _process_stops()))
            else:
                running.stop(_process_stops())
        await self.replicas.leave()  # after the gates: no step begins while this is written
        tasks = {running.task for running in self.running_turns() if running.task}
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        for running in self.running_turns():
            running.stop(_process_stops())

    async def close(self, limit_s: float) -> None:
        """Hand over the turns, and stop all tasks."""
        await self.hand_over(limit_s)
        while self._tasks:
            turns = self.running_turns()
            for running in turns:
                running.stop(_process_stops())
            for task in self._tasks - {running.task for running in turns}:
                task.cancel()
            await asyncio.wait(self._tasks)
        self._write_task.cancel()
        await asyncio.wait([self._write_task])
        await self.memory.close()
        await self._leases.close()


def _process_stops() -> TurnReleased:
    return TurnReleased("the process is stopping: the turn continues in another process")
