"""Keep a running turn in memory: its events, its readers, its end."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from msgspec.structs import replace

from lango.errors import LangoError, TurnCancelled, TurnFailed, TurnReleased
from lango.events import Steered, TurnDone, TurnError, TurnEvent, output_to_text
from lango.events.text import StreamedText
from lango.sessions import SessionInfo
from lango.store import Turn
from lango.turns.synchronization import StepGate
from lango.turns.turn_log import TurnLog

if TYPE_CHECKING:
    import asyncio


class RunningTurn:
    """An accepted turn: its events so far, and the task that runs it. Any number of readers can follow it."""

    def __init__(
        self, session: SessionInfo, turn: Turn, log: TurnLog, *, attempts: int = 0, taken_over_s: float | None = None
    ) -> None:
        """`taken_over_s`: another process accepted it, and it was taken over after this many seconds."""
        self.session = session
        self.turn = turn
        self.log = log
        self.step_gate = StepGate()
        """Passed by each step of the turn: it is closed while the process stops."""
        self.taken_over_s = taken_over_s
        self.attempts = attempts
        """How often it was run again after a crash or a failure."""
        self.is_resumed = taken_over_s is not None and turn.epoch is not None
        """An earlier run of this turn was interrupted: this one continues from what is stored."""
        self.has_diverged = False
        """Run again, it did not follow its record."""
        self.error: LangoError | None = None
        self.answer: str | None = None
        """The complete text. The events of parallel agents are mixed; here each agent's text is in one piece."""
        self.stop_reason: LangoError | None = None
        """Why the turn was stopped."""
        self.is_superseded = False
        """A newer message came while it was queued: it ends instead of starting."""
        self.is_detached = taken_over_s is not None
        """The turn runs to its end without readers."""
        self.trace_id = ""
        """The id of the turn's trace; empty without tracing."""
        self.accepted_at = time.monotonic()
        self.readers = 0
        """The turn is stopped when the last of these leaves, unless it is detached."""
        self.task: asyncio.Task[None] | None = None
        """The task that runs it."""
        self.phase: Literal["accepted", "started", "running", "ending"] = "accepted"
        """Its task starts, then its agent runs, then its end is being stored."""
        self.model_calls: Callable[[], list[dict[str, Any]]] = list
        """Returns the model calls so far, as the turn's row will have them."""

    # -- for its readers ------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[TurnEvent]:
        """The events so far."""
        return self.log.events

    @property
    def finished(self) -> bool:
        """Whether no more events follow."""
        return self.log.is_over

    @property
    def has_readers(self) -> bool:
        """Whether another request follows it, or does not need to."""
        return self.readers > 0 or self.is_detached

    @property
    def steered_into(self) -> int | None:
        """The turn that took the message in, or None if this turn runs itself."""
        return next((event.into for event in self.events if self._is_own_end(event)), None)

    async def follow(self, after_id: int = 0) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events after an id, to the end of the turn.

        Raise `TurnReleased` if another process continues the turn.
        """
        async with aclosing(self.log.follow_emitted(after_id)) as events:
            async for event in events:
                yield event
        if isinstance(self.error, TurnReleased):
            raise self.error

    async def wait(self) -> None:
        """Wait for the end of the turn."""
        while not self.log.is_over:
            await self.log.changed.wait()

    async def follow_until_left(self) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events to the end; the turn is stopped if its last reader leaves before."""
        self.readers += 1
        try:
            async with aclosing(self.follow()) as events:
                async for event in events:
                    yield event
        finally:
            await self._leave()

    async def collect_answer(self) -> str:
        """Wait for the turn and return its answer, or raise its error."""
        self.readers += 1
        try:
            await self.wait()
        finally:
            await self._leave()
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        last = self.events[-1] if self.events else None
        return answer_text(StreamedText(self.events).text, last.output if isinstance(last, TurnDone) else None)

    def _is_own_end(self, event: TurnEvent) -> TypeGuard[Steered]:
        return isinstance(event, Steered) and event.turn == self.turn.turn

    async def _leave(self) -> None:
        """Stop a turn that its last reader leaves before the end, and wait until its end is stored."""
        self.readers -= 1
        if self.finished or self.has_readers:
            return
        self.stop(TurnCancelled("the turn was stopped: its last reader left"))
        await self.wait()

    # -- for the runtime ------------------------------------------------------------------------------------------

    def resume(self, attempts: int) -> None:
        """Note that the turn is run again, from what is stored."""
        self.attempts, self.is_resumed = attempts, True

    def diverge(self) -> None:
        """Note that the turn, run again, did not follow its record: it continues from its stored history."""
        self.has_diverged = self.is_resumed = True

    def begin_record(self) -> None:
        """Note that a new record begins, under the epoch of the lease."""
        self.has_diverged = False
        self.turn = replace(self.turn, first_epoch=self.turn.epoch)

    @property
    def is_running(self) -> bool:
        """Whether its agent runs; before, it is queued or waits to be admitted."""
        return self.phase in ("running", "ending")

    @property
    def is_ending(self) -> bool:
        """Whether its end is being stored: its lease is about to be given back."""
        return self.phase == "ending"

    def supersede(self) -> None:
        """Stop the turn because a newer message came; a queued one ends when it would start."""
        self.is_superseded = True
        if self.turn.epoch is not None:
            self.stop(TurnCancelled("a newer message came"))

    def stop(self, why: LangoError) -> None:
        """Stop the turn, once: a second cancellation would interrupt the cleanup of the first."""
        if self.stop_reason is None:
            self.stop_reason = why
            if self.task is not None and self.phase != "accepted":  # else it would end without events
                self.task.cancel()

    def end_with(self, outcome: LangoError | str) -> None:
        """Note the error or the answer that the turn ends with."""
        if isinstance(outcome, LangoError):
            self.error = outcome
        else:
            self.answer = outcome

    def fail(self, error: BaseException) -> None:
        """Emit the error that the turn ends with, unless another process continues it."""
        failed = to_lango_error(error)
        self.end_with(failed)
        if not isinstance(failed, TurnReleased):
            self.log.emit(error_event(self.log.next_id(), failed))


def answer_text(text: str, output: Any) -> str:
    """Return the answer of a turn: the final output of a workflow if the turn ended with it, else the whole text."""
    if output is None:
        return text
    answer = output_to_text(output)
    return answer if text.endswith(answer) else text


def error_event(event_id: int, error: LangoError) -> TurnError:
    """Make the event of the error that a turn ends with."""
    return TurnError(event_id, type(error).__name__, str(error), retry_after_s=error.retry_after_s)


def to_lango_error(error: BaseException) -> LangoError:
    """Return a `LangoError` unchanged, and any other error as the cause of a `TurnFailed`."""
    if isinstance(error, LangoError):
        return error
    failed = TurnFailed(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
