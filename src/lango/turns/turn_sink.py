"""Take what happens in a turn under way, in order, and pass it on to the turn's readers.

Everything that readers see of a running agent passes one `TurnSink`: text, starts and ends of tools, what the turn
waits for, progress and errors. Its stages, in order: events that readers have from an earlier run are left out; the
turn adds the event for its readers and its event log; the time limit without events is restarted.
"""

from collections.abc import Callable

from lango.events import TurnEvent
from lango.turns.resumed_events import ResumedEvents, events_of_record
from lango.turns.text_blocks import TextBlocks
from lango.turns.time_limits import TimeLimits
from lango.turns.turn_log import TurnLog


class TurnSink:
    """Where the engine hands the events of one run of a turn."""

    def __init__(self, log: TurnLog, limits: TimeLimits, *, is_resumed: bool, on_event: Callable[[], None]) -> None:
        """`is_resumed`: an earlier run was interrupted, and readers have its events. Each event calls `on_event`."""
        self._next = ResumedEvents(log, events_of_record(log)) if is_resumed else log
        self._on_event = on_event
        self.next_id = log.next_id
        self.limits = limits
        self.blocks = TextBlocks(log.next_id, log.next_block)

    def emit(self, event: TurnEvent) -> None:
        """Pass on the next event of the turn, with an id from `next_id`."""
        self._on_event()
        self._next.emit(event)
        self.limits.note_event(event)

    def begin_model_call(self, agent: str, branch: str) -> None:
        """Withdraw the text of an agent that no stored response has: its model is called again."""
        if (failed := self.blocks.take_failed(agent, branch)) is not None:
            self.emit(failed)
        if isinstance(self._next, ResumedEvents):
            self._next.begin_model_call(agent)
