"""Run a leased turn to its end, within its time limits and in its own span."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from lango.adk.run.engine import AdkEngine
from lango.adk.run.record.model_requests import store_last_requests
from lango.adk.turn.model_calls import merge_model_calls
from lango.adk.turn.turn_run import TurnRun
from lango.config import AgentSettings
from lango.errors import (
    AgentFailed,
    FencedWrite,
    LangoError,
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnavailable,
    StoreError,
    StoreUnavailable,
    TokensUsedUp,
    TurnCancelled,
    TurnDiverged,
    TurnReleased,
)
from lango.events import Queued, Resumed, TextDelta, ToolEnd, ToolStart, TurnDone, TurnError, WaitClosed, WaitOpened
from lango.runtime.execution.admission import Admission
from lango.runtime.execution.event_log import EventLogWriter
from lango.runtime.trace.prices import turn_usage
from lango.store import Store
from lango.store.api_keys import spent_tokens
from lango.store.engine.outages import wait_for_database
from lango.store.turns.ending import Outcome, list_requests_of_stopped_turn
from lango.store.turns.event_log import LoggedEvent
from lango.store.turns.turns import TurnFailure, TurnResult
from lango.store.waits.waits import read_waits
from lango.telemetry.traces import run_in_span
from lango.turns.lease_holder import finish_despite_cancel, retry_until_stored
from lango.turns.running_turn import RunningTurn, answer_text, to_lango_error
from lango.turns.time_limits import TimeLimits
from lango.turns.turn_input import TurnInput
from lango.turns.turn_sink import TurnSink
from lango.waits import Wait

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

_log = logging.getLogger("lango.runtime")

_TRANSIENT = (ProviderUnavailable, ProviderTimeout, ProviderProtocolError, StoreUnavailable)
"""Failures after which a turn is run again, if something of it was done before."""


class TurnRunner:
    """Runs turns on an engine. `spawn` starts its tasks, which belong to the caller."""

    def __init__(
        self,
        agent: AgentSettings,
        store: Store,
        engine: AdkEngine,
        admission: Admission,
        spawn: Spawn,
        event_log: EventLogWriter,
        owner: str,
    ) -> None:
        self._event_log = event_log
        self._owner = owner
        self._agent = agent
        self._store = store
        self._engine = engine
        self._admission = admission
        self._spawn = spawn

    async def run(self, running: RunningTurn, turn_input: TurnInput, first_seq: int | None = None) -> bool:
        """Run a leased turn. Return False after a temporary failure: the caller runs it again.

        Otherwise its end is stored and emitted, or its lease is released because the process stops. `first_seq` is the
        message of its input, if the turn was run before: it continues from what is stored after that.
        """
        sink = TurnSink(
            running.log,
            TimeLimits(self._agent),
            is_resumed=first_seq is not None,
            on_event=self._admission.note_event,
        )
        turn = await self._engine.begin(running, turn_input, sink, first_seq)
        earlier = running.model_calls()
        running.model_calls = lambda: merge_model_calls(
            earlier, [call.to_row(is_over=running.is_ending) for call in turn.output.model_calls.calls]
        )
        outcome: Outcome = "failed"
        error: LangoError | None = None

        def emit_place(place: int) -> None:
            running.log.emit(Queued(running.log.next_id(), place))

        try:
            await self._engine.preload()
            async with self._admission.admitted(emit_place, has_run=running.is_resumed):
                running.phase = "running"
                await self._check_start(running, turn_input, has_begun=first_seq is not None)
                async with sink.limits.applied():
                    await self._engine.legs.run(turn)
            outcome = "done"
        except asyncio.CancelledError as cancelled:
            outcome, error = "cancelled", running.stop_reason or TurnCancelled("the turn was stopped")
            if running.stop_reason is None and not _task_is_cancelled():
                outcome, error = "failed", AgentFailed("the agent cancelled itself")
                error.__cause__ = cancelled
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failed:  # noqa: BLE001 - the readers of the turn get it
            outcome, error = "cancelled" if isinstance(failed, TurnCancelled) else "failed", to_lango_error(failed)
            if outcome == "failed" and turn.output.corrected_transfer is not None:
                error.__cause__ = turn.output.corrected_transfer
        await _store_trace(turn)
        if isinstance(running.stop_reason, TurnReleased):
            await finish_despite_cancel(self.release(running))
            return True
        if error is not None and self._may_run_again(running, error):
            _log.info("turn %s of session %s is run again: %s", running.turn.turn, running.session.name.id, error)
            calls = merge_model_calls(earlier, [call.to_row() for call in turn.output.model_calls.calls])
            running.model_calls = lambda: calls
            return False
        running.phase = "ending"
        await finish_despite_cancel(self._end_turn(running, turn, outcome, error))
        return True

    def _may_run_again(self, running: RunningTurn, error: LangoError) -> bool:
        """Whether the failure is temporary, and the turn emitted text or ran tools: the next run continues there.

        A turn that did not follow its record continues from its stored history.
        """
        if isinstance(error, TurnDiverged) and self._engine.updates.can_continue_from_history:
            running.diverge()
            return True
        if not isinstance(error, _TRANSIENT) or running.attempts + 1 >= self._agent.max_attempts:
            return False
        if isinstance(error, StoreUnavailable) and self._store.outages.is_away:
            return False  # the turn waited for it as long as it may
        return any(isinstance(event, TextDelta | ToolStart | ToolEnd) for event in running.events)

    async def release(self, running: RunningTurn) -> None:
        """Give the lease of a turn back, so that another process continues it."""
        running.phase = "ending"
        assert running.stop_reason
        try:
            await self._event_log.flush(running.log)
            await self._store.release_turn(running.turn, self._owner)
        except StoreError as error:  # its owner is gone soon, and its turns are taken over then
            _log.warning("turn %s could not be released: %s", running.turn.turn, error)
        running.fail(running.stop_reason)

    async def _check_start(self, running: RunningTurn, turn_input: TurnInput, *, has_begun: bool) -> None:
        """Raise `TurnCancelled` if a newer message came while this turn was queued.

        Raise `TokensUsedUp` if earlier turns used up the tokens of the day.
        """
        if running.is_superseded:
            raise TurnCancelled("a newer message came")
        quota_id, limit = turn_input.quota_id, turn_input.tokens_per_day
        if has_begun or quota_id is None or limit is None:  # what has begun is finished
            return
        if await self._store.read(spent_tokens, quota_id, time.time()) >= limit:
            raise TokensUsedUp(f"the {limit} tokens for today are used up: send the message again after midnight UTC")

    async def _end_turn(self, running: RunningTurn, turn: TurnRun, outcome: Outcome, error: LangoError | None) -> None:
        """Store the end of a turn with the last of its events, then emit the final one."""
        output = turn.output
        done = TurnResult(
            status="waiting" if turn.waits.kinds else "done",
            finish_reason=output.finish_reason,
            stop_sequence=output.stop_sequence,
            output=output.value,
            usage=await turn_usage(
                output.usage_by_model, turn.limits.model_calls + output.summaries, self._agent.prices
            ),
            calls=running.model_calls(),
            invocations=output.invocation_ids,
        )
        waits: tuple[Wait, ...] = ()
        if error is None and turn.waits.kinds:
            try:
                waits = await self._open_waits(running, turn)
            except StoreError as failed:
                error, outcome = failed, "failed"
        if isinstance(running.stop_reason, TurnCancelled):
            with suppress(StoreError):  # without these events, the end can still be stored
                await self._emit_cancelled_waits(running)
        error = await self._store_end(running, done, waits, outcome, error)
        running.end_with(answer_text(output.sink.blocks.text, output.value) if error is None else error)
        if waits:
            self._store.notify_due()

    async def _store_end(
        self,
        running: RunningTurn,
        done: TurnResult,
        waits: tuple[Wait, ...],
        outcome: Outcome,
        error: LangoError | None,
    ) -> LangoError | None:
        """Store an end and emit its event; return the error that the turn ends with."""
        log = running.log
        rest, final_id = await self._event_log.take_rest(log), log.next_id()

        def result() -> TurnResult:
            return done if error is None else replace(done, error=TurnFailure.of(error), status="done", output=None)

        def final_event() -> TurnDone | TurnError:
            return result().final_event(final_id, running.turn.turn, outcome, has_run=True, waits=waits)

        def write() -> Coroutine[Any, Any, bool]:
            last = LoggedEvent.of(final_event())
            return self._store.end_turn(running.session.name, running.turn, outcome, result(), [*rest, last])

        try:
            with wait_for_database("long" if error is None else "short"):  # an error is not worth the wait
                if await write():
                    log.add_stored([*rest, LoggedEvent.of(final_event())], len(log.events) + 1)
                    self._event_log.notify_elsewhere(log)
                elif isinstance(error, FencedWrite):
                    error = TurnReleased("another process took over this turn and continues it")
        except StoreError as failed:
            if error is None:
                error, outcome = failed, "failed"
            self._spawn(retry_until_stored(self._store, write, f"turn {running.turn.turn}"))
        if not isinstance(error, TurnReleased):
            log.emit(final_event())
        return error

    async def _open_waits(self, running: RunningTurn, turn: TurnRun) -> tuple[Wait, ...]:
        """Read what holds up a turn that ends; emit the waits that it opened and readers do not have, for results."""
        with wait_for_database():
            found = await self._store.read(read_waits, running.turn.session_key, turn.session)
        waits = tuple(wait for wait in found if wait.kind in turn.waits.kinds)
        shown = {event.wait.id for event in running.events if isinstance(event, WaitOpened)}
        for wait in waits:
            if wait.id not in shown and wait.turn == running.turn.turn:
                running.log.emit(WaitOpened(running.log.next_id(), wait))
        return waits

    async def _emit_cancelled_waits(self, running: RunningTurn) -> None:
        """Emit which requests the end of a stopped turn closes, in the transaction that stores it."""
        turn, log = running.turn, running.log
        place = turn.session_key, turn.turn, running.session.name
        with wait_for_database("short"):
            for wait in await self._store.read(list_requests_of_stopped_turn, *place):
                log.emit(WaitClosed(log.next_id(), wait, "cancelled"))


async def _store_trace(turn: TurnRun) -> None:
    """Store what else the trace keeps than messages: failures of the user's own code, and requests to models."""
    if turn.failures.are_any:
        await finish_despite_cancel(turn.store_failures())
    if turn.app.kept_requests.settings.requests:
        await finish_despite_cancel(store_last_requests(turn))


def _task_is_cancelled() -> bool:
    """Whether this task itself is cancelled, and not only an operation that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def run_in_turn_span(
    running: RunningTurn, work: Coroutine[Any, Any, None], trace_parent: Mapping[str, str] | None = None
) -> tuple[Coroutine[Any, Any, None], str]:
    """Return the work of a turn, in its own span if tracing is on, and the id of its trace.

    `trace_parent` has the ids of the trace and span of the request that another process accepted: the trace continues.
    """
    session_id = running.session.name.id
    attributes = {"lango.session.id": session_id, "gen_ai.conversation.id": session_id, "lango.turn": running.turn.turn}

    return run_in_span("turn", attributes, work, lambda: _span_end(running), trace_parent)


def _span_end(running: RunningTurn) -> dict[str, str | int | float | bool]:
    """Return what the span of a turn says about its end."""
    found: dict[str, str | int | float | bool] = {}
    for event in running.events:
        if isinstance(event, Resumed):
            found |= {"lango.turn.attempt": event.attempt, "lango.turn.resume_reason": event.reason}
    if isinstance(running.error, TurnReleased):
        found["lango.turn.status"] = "released"
    elif running.error is not None:
        found |= {"lango.turn.status": "failed", "error.type": type(running.error).__name__}
    elif isinstance(last := running.events[-1], TurnDone):
        used = last.usage
        found |= {
            "lango.turn.status": last.status,
            "lango.model_calls": used.model_calls,
            "gen_ai.usage.input_tokens": used.input_tokens,
            "gen_ai.usage.output_tokens": used.output_tokens,
        }
        if used.cost_usd is not None:
            found["lango.cost_usd"] = used.cost_usd
    return found
