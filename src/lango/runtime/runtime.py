"""Accept messages, approvals and results, and run their turns: the public API."""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from lango.adk.run.engine import AdkEngine
from lango.config import Settings
from lango.errors import (
    ApprovalExpired,
    OutcomeUnknown,
    SessionNotFound,
    StoreError,
    TurnAbandoned,
    TurnCancelled,
    TurnReleased,
)
from lango.events import Accepted, Resumed, TurnEvent
from lango.memory import Memory
from lango.messages import Attachment, Message
from lango.runtime.admission import Admission
from lango.runtime.expiry import ApprovalExpiry
from lango.runtime.recovery import TurnRecovery
from lango.runtime.sessions import Sessions, get_or_create_session, require_session
from lango.runtime.turn_recovery import (
    end_unknown_turn,
    end_unrun_turn,
    read_logged_events,
    replay_turn,
    retry_until_stored,
)
from lango.runtime.turn_runner import TurnRunner, run_in_turn_span, trace_of_request
from lango.store import SessionId, SessionRecord, Store, Turn
from lango.store.engine.outages import wait_for_database
from lango.store.sessions.sessions import find_session
from lango.store.turns.event_log import append_final_events
from lango.store.turns.lease import ResumeReason, TakenOver, count_attempt
from lango.store.turns.turns import read_turn, request_cancel
from lango.tools import Tool
from lango.turns.lease_holder import LeaseHolder, acquire_lease, finish_despite_cancel
from lango.turns.liveness import LivenessMonitor, Owner
from lango.turns.running_turn import RunningTurn, collect_answer, follow_until_left
from lango.turns.turn_input import TurnInput, check_attachments

if TYPE_CHECKING:
    from lango.adk.agents.tool_names import ToolNames

_log = logging.getLogger("lango.runtime")


class Runtime:
    """Runs the turns of one agent on one store. Made by `open_runtime`."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()  # not a TaskGroup: it would wrap errors of the caller's body
        self._owner = Owner()
        self._liveness = LivenessMonitor(back_at=lambda: store.outages.recovered_at)
        self._running: dict[int, list[RunningTurn]] = {}
        self._leases = LeaseHolder(store, self._owner, self._running_turns)
        self._memory = engine.memory(self._leases, self._liveness.is_gone)
        self._expiry = ApprovalExpiry(store)
        self._spawn(self._expiry.run())
        self._admission = Admission(settings.agent.max_running_turns)
        self._turn_runner = TurnRunner(
            settings.agent, store, engine, self._admission, self._spawn, self._expiry.check_soon, self._owner.name
        )
        self._recovery = TurnRecovery(
            store,
            engine.app_name,
            self._owner.name,
            self._liveness.is_gone,
            settings.agent.on_crash,
            self._resume,
        )
        self._on_resume: list[Callable[[RunningTurn], None]] = []
        self._spawn(self._recovery.run())
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sessions = Sessions(store, engine.app_name, lambda: engine.window_rules)
        self._closed = False
        self.abandoned_turns = 0
        """How many turns this runtime ended because their process died at each attempt."""

    @property
    def store(self) -> Store:
        """The store that this runtime runs on."""
        return self._store

    @property
    def sessions(self) -> Sessions:
        """The sessions of this agent: list, read, rename, fork, rewind, delete."""
        return self._sessions

    @property
    def memory(self) -> Memory:
        """The memory: notes about sessions, and facts about users."""
        return self._memory

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._engine.app_name

    def follow_resumed(self, callback: Callable[[RunningTurn], None]) -> None:
        """Call a function for each turn that this runtime has taken over from another process, or will."""
        self._on_resume.append(callback)
        for running in self._running_turns():
            if running.taken_over:
                callback(running)

    @property
    def owner(self) -> str:
        """The name under which this runtime holds its leases."""
        return self._owner.name

    @property
    def queued_turns(self) -> int:
        """How many turns wait for a slot in this process."""
        return self._admission.queued

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return self._engine.agents()

    async def tool_names(self, *, ask_toolsets: bool = False) -> "ToolNames":
        """List the names of the agents' tools; with `ask_toolsets` also those of toolsets.

        That starts or connects to MCP servers. Raise `ConfigError` if one of them does not answer.
        """
        return await self._engine.tool_names(ask_toolsets=ask_toolsets)

    async def stream(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> AsyncGenerator[TurnEvent, None]:
        """Send a message and follow its turn: `Accepted` first, `TurnDone` or a fatal `TurnError` last.

        Leaving the stream before its end cancels the turn; `submit` does not.
        """
        turn = await self._accept_message(session_id, text, user_id, idempotency_key, attachments)
        async with aclosing(follow_until_left(turn)) as events:
            async for event in events:
                yield event

    async def run(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> str:
        """Send a message and return the complete answer, or raise the error of the turn."""
        return await collect_answer(await self._accept_message(session_id, text, user_id, idempotency_key, attachments))

    async def approve(
        self, session_id: str, call_id: str, *, approved: bool, user_id: str = "user"
    ) -> AsyncGenerator[TurnEvent, None]:
        """Answer an approval request and follow the turn. The answer is only valid for the arguments shown."""
        turn = await self._accept_approval(session_id, call_id, approved, user_id)
        async with aclosing(follow_until_left(turn)) as events:
            async for event in events:
                yield event

    async def submit_approval(
        self,
        session_id: str,
        call_id: str,
        *,
        approved: bool,
        user_id: str = "user",
        client_tools: Sequence[Tool] = (),
    ) -> RunningTurn:
        """Answer an approval request in the background, as `submit` does."""
        turn = await self._accept_approval(session_id, call_id, approved, user_id, client_tools)
        turn.detached = True
        return turn

    async def submit_results(
        self,
        session_id: str,
        results: Mapping[str, Mapping[str, Any]],
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        client_tools: Sequence[Tool] = (),
        history: Sequence[Message] = (),
        at_revision: int | None = None,
    ) -> RunningTurn:
        """Bring results of client calls, by the calls' ids; the model continues when all open calls have one.

        Results of other calls are left out. Raise `CallNotWaiting` if none is left. With a `history`, the results are
        those of the calls at its end, and the session starts with it. `at_revision` is as in `submit`.
        """
        name = SessionId(self.app_name, user_id, session_id)
        if history:
            turn_input = await asyncio.to_thread(self._engine.inputs.results_after_history, history, results)
        else:
            turn_input = await self._engine.inputs.client_results(name, results, idempotency_key)
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        turn = await self._accept_input(name, turn_input, idempotency_key, at_revision)
        turn.detached = True
        return turn

    async def cancel(self, session_id: str, *, user_id: str = "user") -> bool:
        """Stop the session's running turn, in any process; stored messages stay. False: none runs."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None:
            return False
        found = await self._store.write(request_cancel, session.key)
        for running in self._running.get(session.key, []):
            if running.turn.epoch is not None and not running.turn.repeated:
                running.stop(TurnCancelled("the turn was stopped"))
        return found

    async def take_back(self, session_id: str, turn: int, *, user_id: str = "user") -> bool:
        """Withdraw a queued message; False: it is not queued (any more)."""
        session = await self._store.read(find_session, SessionId(self.app_name, user_id, session_id))
        if session is None or not await self._store.withdraw_turn(Turn(session.key, turn)):
            return False
        for running in self._running.get(session.key, []):
            if running.turn.turn == turn:
                running.stop(TurnCancelled("the message was taken back before its turn came"))
        return True

    async def submit(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
        state_delta: Mapping[str, Any] | None = None,
        client_tools: Sequence[Tool] = (),
        results: Mapping[str, Mapping[str, Any]] | None = None,
        history: Sequence[Message] = (),
        at_revision: int | None = None,
    ) -> RunningTurn:
        """Store a message and run its turn in the background; `follow` it from anywhere in this process.

        The same `idempotency_key` again returns the same turn; with another message it raises `IdempotencyKeyReused`.
        `state_delta` changes the session's state when the turn starts. `client_tools` are offered to the model in this
        turn: a call of such a tool ends the turn, and waits for `submit_results`. A message closes open client calls;
        `results`, by the calls' ids, gives results for some of them.

        `history` holds earlier messages of the client: they are stored right before this message, in the same
        transaction, and marked as the client's. With `at_revision`, raise `StaleSession` and store nothing unless the
        session has exactly that revision and no turn of it runs or is queued.
        """
        name = SessionId(self.app_name, user_id, session_id)
        check_attachments(attachments, self._settings.server)
        turn_input = self._engine.inputs.message(text, attachments, state_delta)
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        if results:
            await self._engine.inputs.add_results(name, turn_input, results)
        if history:
            await asyncio.to_thread(self._engine.inputs.add_history, turn_input, history)
        turn = await self._accept_input(name, turn_input, idempotency_key, at_revision)
        turn.detached = True
        return turn

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return results of client tools as they are stored and the model reads them."""
        return {call_id: result.output for call_id, result in self._engine.inputs.results_to_store(results).items()}

    # -- accepting ------------------------------------------------------------------------------------------------

    async def _accept_message(
        self, session_id: str, text: str, user_id: str, idempotency_key: str | None, attachments: Sequence[Attachment]
    ) -> RunningTurn:
        check_attachments(attachments, self._settings.server)
        name = SessionId(self.app_name, user_id, session_id)
        return await self._accept_input(name, self._engine.inputs.message(text, attachments), idempotency_key)

    async def _accept_approval(
        self, session_id: str, call_id: str, approved: bool, user_id: str, client_tools: Sequence[Tool] = ()
    ) -> RunningTurn:
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.expire_session(name)
        turn_input = await self._engine.inputs.approval_answer(name, call_id, approved=approved)
        assert turn_input.approval_answer
        self._engine.inputs.add_client_tools(turn_input, client_tools)
        turn = await self._accept_input(name, turn_input, f"answer to {turn_input.approval_answer.request_id}")
        if turn.turn.repeated or turn.readers or turn.detached:
            raise ApprovalExpired(f"the approval request for call {call_id!r} was answered just now")
        return turn

    async def _accept_input(
        self, name: SessionId, turn_input: TurnInput, idempotency_key: str | None, at_revision: int | None = None
    ) -> RunningTurn:
        if self._closed:
            raise TurnCancelled("the runtime is closed: open another one")
        mode = self._settings.agent.when_busy
        async with self._locks.setdefault(name, asyncio.Lock()):  # stored in the order in which they were sent
            session = await (get_or_create_session if at_revision is None else require_session)(self._store, name)
            try:
                turn, caller_left = await finish_despite_cancel(
                    self._store.submit_turn(
                        session,
                        turn_input.entry,
                        self._owner.name,
                        idempotency_key=idempotency_key,
                        wait=mode != "refuse",
                        answer=turn_input.approval_answer,
                        at_revision=at_revision,
                        request=turn_input.request | trace_of_request(),
                    )
                )
            except OutcomeUnknown:
                self._end_unknown_turn(session, turn_input)
                raise
            record = (
                await self._store.read(read_turn, turn.session_key, turn.turn)
                if turn.repeated and not caller_left
                else None
            )
        if caller_left or self._closed:
            if not turn.repeated:
                await self._end_unrun_turn(session, turn)
            raise asyncio.CancelledError if caller_left else TurnCancelled("the runtime was closed")
        for known in self._running.get(session.key, []):
            if turn.repeated and known.turn.turn == turn.turn:
                return known
        running = RunningTurn(session, turn)
        self._running.setdefault(session.key, []).append(running)
        queued, invocation_id = turn.status == "queued", turn_input.entry.invocation_id
        if record is not None:  # as in the first response to this request
            queued, invocation_id = record.was_queued, record.invocation_id
        running.emit(Accepted(running.next_id(), turn.turn, waiting=queued, invocation_id=invocation_id))
        running.task = self._spawn(run_in_turn_span(running, self._run_turn(running, turn_input)))
        if mode == "interrupt" and turn.status == "queued" and not turn.repeated:
            await self._stop_earlier_turns(running)
        return running

    async def _stop_earlier_turns(self, newest: RunningTurn) -> None:
        """Stop the turns before a new message, in any process. Queued turns end when they would start."""
        for running in self._running.get(newest.session.key, []):
            if running.turn.turn < newest.turn.turn:
                running.superseded = True
                if running.turn.epoch is not None:
                    running.stop(TurnCancelled("a newer message came"))
        try:
            await self._store.write(request_cancel, newest.session.key, newest.turn.turn)
        except BaseException:  # the caller gets this error, and not the turn
            newest.stop(TurnCancelled("the turn was stopped"))
            raise

    async def _run_turn(self, running: RunningTurn, turn_input: TurnInput | None) -> None:
        """Run a turn to its end. Without an input, another process accepted it: the input is read from the store."""
        running.started = True
        try:
            with wait_for_database(), self._leases.held():
                if running.stop_reason is not None:  # stopped before this task began
                    return await self._end_withdrawn_turn(running)
                if running.turn.repeated:
                    return await replay_turn(running, self._store, self._liveness.is_gone)
                await acquire_lease(running, self._store, self._owner.name, self._recovery.check_soon)
                await self._run_attempts(running, turn_input)
                self._memory.observe_in_background(running.session.name)
        except asyncio.CancelledError:
            await self._end_withdrawn_turn(running)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the readers of the turn get it
            if isinstance(error, StoreError) and not running.turn.repeated and turn_input is not None:
                self._end_unknown_turn(running.session, turn_input)
            running.fail(error)
        finally:
            self._remove_running(running)
            running.finish()

    async def _run_attempts(self, running: RunningTurn, turn_input: TurnInput | None) -> None:
        """Run a leased turn, and run it again if it fails for a while: each time from what is stored."""
        while True:
            first_seq: int | None = None
            if running.resumed or turn_input is None:
                record = await self._store.read(read_turn, running.turn.session_key, running.turn.turn)
                if record is None:
                    raise SessionNotFound("the session was deleted meanwhile")
                turn_input = await self._engine.inputs.stored_input(running.session, record)
                first_seq = record.first_seq if running.resumed else None
            if await self._turn_runner.run(running, turn_input, first_seq):
                return
            running.attempts = await self._store.write(count_attempt, running.turn, time.time())
            running.resumed = True
            running.emit(Resumed(running.next_id(), "failure", running.attempts, datetime.now(UTC)))
            await asyncio.sleep(self._settings.agent.retry_delay_s * 2 ** (running.attempts - 1))

    # -- going on with turns of other processes -------------------------------------------------------------------

    async def _resume(self, name: SessionId, taken: TakenOver, reason: ResumeReason, detected_at: float) -> None:
        """Go on with a turn that was taken over, or end it if it was run as often as allowed."""
        session = await self._store.read(find_session, name)
        if session is None:
            return
        turn, agent = taken.turn, self._settings.agent
        running = RunningTurn(session, turn, attempts=taken.attempts, detached=True, taken_over=True)
        running.restore(await read_logged_events(self._store, turn))
        if taken.attempts >= agent.max_attempts:
            await self._abandon(running)
            return
        record = await self._store.read(read_turn, session.key, turn.turn)
        if not running.events:
            invocation_id = record.invocation_id if record else ""
            running.emit(Accepted(running.next_id(), turn.turn, waiting=True, invocation_id=invocation_id))
        if turn.epoch is not None:
            running.resumed = True
            running.emit(Resumed(running.next_id(), reason, taken.attempts, datetime.now(UTC)))
        if taken.cancel_requested:
            running.stop_reason = TurnCancelled("the turn was stopped")
        self._running.setdefault(session.key, []).append(running)
        delay_s = agent.retry_delay_s * 2 ** (taken.attempts - 2) if taken.attempts > 1 else 0.0
        running.take_over_s = asyncio.get_running_loop().time() - detected_at
        trace_parent = record.request.get("trace") if record else None
        running.task = self._spawn(run_in_turn_span(running, self._run_later(running, delay_s), trace_parent))
        for callback in self._on_resume:
            callback(running)

    async def _run_later(self, running: RunningTurn, delay_s: float) -> None:
        with self._leases.held():
            await asyncio.sleep(delay_s)
            await self._run_turn(running, None)

    async def _abandon(self, running: RunningTurn) -> None:
        """End a turn that was run as often as allowed, and whose process died each time."""
        error = TurnAbandoned(
            f"the turn was run {running.attempts} times, and its process died each time (setting agent.max_attempts)"
        )
        extra = {"error": {"type": type(error).__name__, "message": str(error)}}
        self.abandoned_turns += 1
        await self._store.end_turn(running.session.name, running.turn, "failed", extra)
        await self._store.write(append_final_events, running.turn.session_key, running.turn.turn)
        _log.error("turn %s of session %s: %s", running.turn.turn, running.session.name.id, error)

    def _running_turns(self) -> list[RunningTurn]:
        return [running for turns in self._running.values() for running in turns]

    def _end_unknown_turn(self, session: SessionRecord, turn_input: TurnInput) -> None:
        """End a turn that may have been stored or leased, as soon as the store is available."""
        self._spawn(end_unknown_turn(self._store, session, self._owner.name, turn_input.entry.invocation_id))

    async def _end_unrun_turn(self, session: SessionRecord, turn: Turn) -> None:
        """End a turn that will not run, now or as soon as the store is available."""
        end = functools.partial(end_unrun_turn, self._store, session, turn)
        try:
            with wait_for_database(False):
                await finish_despite_cancel(end())
        except StoreError as error:
            _log.warning("turn %s could not be withdrawn yet: %s", turn.turn, error)
            self._spawn(retry_until_stored(end, f"turn {turn.turn}"))

    async def _end_withdrawn_turn(self, running: RunningTurn) -> None:
        """Withdraw a turn that did not start, or release it; a replayed one is left to the process that runs it."""
        if isinstance(running.stop_reason, TurnReleased):
            await self._turn_runner.release(running)
            return
        if not running.turn.repeated:
            await self._end_unrun_turn(running.session, running.turn)
        running.fail(running.stop_reason or TurnCancelled("the message was taken back before its turn came"))

    def _remove_running(self, running: RunningTurn) -> None:
        others = [other for other in self._running.pop(running.session.key, []) if other is not running]
        if others:
            self._running[running.session.key] = others

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task that this runtime owns: `close` stops it and waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def hand_over(self, limit_s: float) -> None:
        """Accept no more turns, let the steps under way end within a limit, and release the turns.

        Nothing is cancelled: another process goes on with them, or the next one that opens this store.
        """
        self._closed = self._recovery.stopping = True
        self._recovery.check_soon()
        for running in self._running_turns():
            released = TurnReleased("the process stops: the turn goes on when another one runs")
            if running.is_running and not running.turn.repeated:
                running.step_gate.close(functools.partial(running.stop, released))
            else:
                running.stop(released)
        tasks = {running.task for running in self._running_turns() if running.task}
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        for running in self._running_turns():
            running.stop(TurnReleased("the process stops: the turn goes on when another one runs"))

    async def close(self) -> None:
        """Hand over the running turns, within `server.shutdown_s`, and wait until that is stored."""
        await self.hand_over(self._settings.server.shutdown_s)
        while self._tasks:
            turns = self._running_turns()
            for running in turns:
                running.stop(TurnReleased("the runtime was closed: the turn goes on when another one runs"))
            for task in self._tasks - {running.task for running in turns}:
                task.cancel()
            await asyncio.wait(self._tasks)
        await self._memory.close()
        await self._leases.close()
        await self._engine.close()
