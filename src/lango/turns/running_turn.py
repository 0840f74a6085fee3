"""Keep a running turn in memory: its events, its readers, its end."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lango import event_ids
from lango.errors import EventsGone, LangoError, TurnCancelled, TurnFailed, TurnReleased
from lango.event_text import StreamedText
from lango.events import TextDelta, ThoughtDelta, TurnDone, TurnError, TurnEvent, output_to_text
from lango.sessions import SessionRecord
from lango.store import Turn
from lango.store.turns import event_log
from lango.turns.synchronization import Notifier, StepGate

if TYPE_CHECKING:
    import asyncio


class RunningTurn(Struct, eq=False):
    """An accepted turn: its events so far, and the task that runs it. Any number of readers can follow it."""

    session: SessionRecord
    turn: Turn
    events: list[TurnEvent] = []
    task: "asyncio.Task[None] | None" = None
    finished: bool = False
    error: LangoError | None = None
    answer: str | None = None
    """The complete text. The events of parallel agents are mixed; here each agent's text is in one piece."""
    stop_reason: LangoError | None = None
    """Why the turn was stopped."""
    superseded: bool = False
    """A newer message came while it was queued: it ends instead of starting."""
    started: bool = False
    """Whether the task runs. A task that is cancelled before would end without events."""
    readers: int = 0
    """The turn is stopped when the last of these leaves."""
    detached: bool = False
    """The turn runs to its end without readers."""
    trace_id: str = ""
    """The id of the turn's trace; empty without tracing."""
    attempts: int = 0
    """How often it was run again after a crash or a failure."""
    taken_over: bool = False
    """Another process accepted it."""
    take_over_s: float = 0.0
    """The seconds from finding its earlier process gone to taking it over."""
    resumed: bool = False
    """An earlier run of this turn was interrupted: this one goes on from what is stored."""
    step_gate: StepGate = field(default_factory=StepGate)
    """Passed by each step of the turn: it is closed while the process stops."""
    is_running: bool = False
    """Its agent runs; before, it is queued or waits to be admitted."""
    is_ending: bool = False
    """Its end is being stored: its lease is about to be given back."""
    logged: int = 0
    """How many of the first events an earlier process has written to the event log."""
    model_calls: Callable[[], list[dict[str, Any]]] = list
    """Returns the model calls so far, as the turn's row will have them."""
    changed: Notifier = field(default_factory=Notifier)
    urgent_changed: Notifier = field(default_factory=Notifier)
    """Notified for events other than pieces of text."""
    _event_count: int = 0
    _last_urgent: int = 0

    def next_id(self) -> int:
        """Return the next event id, larger than every earlier one of the session."""
        self._event_count += 1
        return event_ids.event_id(self.turn.turn, self._event_count)

    def restore(self, events: Sequence[TurnEvent]) -> None:
        """Begin with the events of an earlier run, which are in the event log."""
        self.events[:] = events
        self.logged = self._last_urgent = len(events)
        self._event_count = event_ids.number_of_event(events[-1].id) if events else 0

    def emit(self, event: TurnEvent) -> None:
        """Add an event for every reader."""
        self.events.append(event)
        if not isinstance(event, TextDelta | ThoughtDelta):
            self._last_urgent = len(self.events)
            self.urgent_changed.notify()
        self.changed.notify()

    def has_urgent_after(self, read: int) -> bool:
        """Whether events other than pieces of text follow the first `read` events."""
        return self.finished or self._last_urgent > read

    def finish(self) -> None:
        """Mark the turn as finished: no more events follow."""
        self.finished = True
        self.urgent_changed.notify()
        self.changed.notify()

    def fail(self, error: BaseException) -> None:
        """Emit the error that the turn ends with; not if another process goes on with it."""
        self.error = to_lango_error(error)
        if not isinstance(self.error, TurnReleased):
            wait_s: float | None = getattr(self.error, "retry_after_s", None)
            self.emit(TurnError(self.next_id(), type(self.error).__name__, str(self.error), retry_after_s=wait_s))

    def stop(self, why: LangoError) -> None:
        """Stop the turn, once: a second cancellation would interrupt the cleanup of the first."""
        if self.stop_reason is None:
            self.stop_reason = why
            if self.task is not None and self.started:
                self.task.cancel()

    async def follow(self, after_id: int = 0) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events after an id, to the end of the turn.

        Raise `EventsGone` if the turn ran before, its events are deleted, and only its messages are left;
        `TurnReleased` if another process goes on with the turn.
        """
        read = 0
        while True:
            while read < len(self.events):
                event = self.events[read]
                read += 1
                if event_ids.is_rebuilt(event.id) and event_ids.is_known_only_to_log(self.turn.turn, after_id):
                    raise EventsGone(event_log.events_gone_message(after_id))
                if event.id > after_id:
                    yield event
            if self.finished:
                if isinstance(self.error, TurnReleased):
                    raise self.error
                return
            await self.changed.wait()

    async def wait(self) -> None:
        """Wait for the end of the turn."""
        while not self.finished:
            await self.changed.wait()


async def follow_until_left(turn: RunningTurn) -> AsyncGenerator[TurnEvent, None]:
    """Yield the events of a turn to its end; the turn is stopped if its last reader leaves before."""
    turn.readers += 1
    try:
        async with aclosing(turn.follow()) as events:
            async for event in events:
                yield event
    finally:
        await _release_reader(turn)


async def collect_answer(turn: RunningTurn) -> str:
    """Wait for a turn and return its answer, or raise its error."""
    turn.readers += 1
    try:
        await turn.wait()
    finally:
        await _release_reader(turn)
    if turn.error is not None:
        raise turn.error
    if turn.answer is not None:
        return turn.answer
    last = turn.events[-1] if turn.events else None
    return answer_text(StreamedText(turn.events).text, last.output if isinstance(last, TurnDone) else None)


def answer_text(text: str, output: Any) -> str:
    """Return the answer of a turn: the final output of a workflow if the turn ended with it, else the whole text."""
    if output is None:
        return text
    answer = output_to_text(output)
    return answer if text.endswith(answer) else text


async def _release_reader(turn: RunningTurn) -> None:
    """Stop a turn that its last reader leaves before the end, and wait until its end is stored."""
    turn.readers -= 1
    if turn.finished or turn.readers or turn.detached:
        return
    turn.stop(TurnCancelled("the turn was stopped: its last reader left"))
    await turn.wait()


def to_lango_error(error: BaseException) -> LangoError:
    """Return a `LangoError` unchanged, and any other error as the cause of a `TurnFailed`."""
    if isinstance(error, LangoError):
        return error
    failed = TurnFailed(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
