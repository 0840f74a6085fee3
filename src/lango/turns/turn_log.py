"""Keep the events of a turn under way: as they are emitted, and as the event log has them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager

from lango.events import TextDelta, TextEnd, ThoughtDelta, TurnEvent, event_id, number_of_event
from lango.store import Turn
from lango.store.turns.event_log import LoggedEvent
from lango.turns.synchronization import Notifier


class TurnLog:
    """The events of one turn in this process. Any number of readers can follow them.

    A reader holds only its position: a slow one delays no other reader and keeps nothing in memory.
    """

    def __init__(
        self,
        turn: Turn,
        stored: Sequence[LoggedEvent] = (),
        on_event: Callable[["TurnLog"], None] | None = None,
        last_id: int = 0,
        *,
        is_read_elsewhere: bool = False,
    ) -> None:
        """`stored` are the events in the event log. `on_event` is called for each new event.

        `last_id` is the newest id in the event log, where an event follows those that this version knows.
        `is_read_elsewhere`: another process began the turn, so its readers are at any replica.
        """
        self.is_read_elsewhere = is_read_elsewhere
        """Its events are stored at once, and other processes are notified of them."""
        self.session_key = turn.session_key
        self.turn = turn.turn
        self.events: list[TurnEvent] = [logged.event for logged in stored]
        self.stored = list(stored)
        """The events that are in the event log: pieces of text may be joined."""
        self.stored_count = self.restored_count = len(stored)
        """How many of the `events` are in the event log, and how many an earlier process emitted."""
        self.first_text_at: float | None = None
        """When this process emitted the first text, on the monotonic clock."""
        self.text_stored_at = -1.0
        """When text was last stored, by the clock of the event loop."""
        self.readers = 0
        """How many readers wait for events of the event log in this process."""
        self.is_over = False
        """No more events are emitted."""
        self.is_closed = False
        """No more events are added to `stored`; any that are missing at the end are in the event log alone."""
        self.changed = Notifier()
        self._stored_changed = Notifier()
        self._on_event = on_event
        self._number = number_of_event(max(last_id, stored[-1].id)) if stored else 0
        self._block = max(
            (event.block for event in self.events if isinstance(event, TextDelta | ThoughtDelta)), default=0
        )

    def send_readers_elsewhere(self) -> None:
        """Note that readers follow the turn at other replicas from now on, because this process stops."""
        self.is_read_elsewhere = True
        self._note_missing()

    def next_id(self) -> int:
        """Return the next event id, larger than every earlier one of the session."""
        self._number += 1
        return event_id(self.turn, self._number)

    def next_block(self) -> int:
        """Return the number of the next block of text, larger than every earlier one of the turn."""
        self._block += 1
        return self._block

    def emit(self, event: TurnEvent) -> None:
        """Add an event for every reader."""
        self.events.append(event)
        if self.first_text_at is None and isinstance(event, TextDelta):
            self.first_text_at = time.monotonic()
        self.changed.notify()
        if self._on_event is not None:
            self._on_event(self)

    def add_stored(self, events: Sequence[LoggedEvent], count: int) -> None:
        """Note that the first `count` events are in the event log, the last ones of them as `events`."""
        self.stored += events
        self.stored_count = count
        if events and isinstance(events[-1].event, TextDelta | TextEnd | ThoughtDelta):
            self.text_stored_at = asyncio.get_running_loop().time()
        self._stored_changed.notify()

    def add_from_store(self, events: Sequence[LoggedEvent]) -> None:
        """Add events that another turn wrote to the event log of this one."""
        self.events += [logged.event for logged in events]
        self.changed.notify()
        self.add_stored(events, len(self.events))

    def finish(self) -> None:
        """Note that no more events are emitted."""
        self.is_over = True
        self.changed.notify()
        self.close()

    def close(self) -> None:
        """Note that this process stores no more events of the turn."""
        self.is_closed = True
        self._stored_changed.notify()

    async def follow_emitted(self, after_id: int = 0) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events after an id as they are emitted, to the end of the turn."""
        read = 0
        while True:
            while read < len(self.events):
                event = self.events[read]
                read += 1
                if event.id > after_id:
                    yield event
            if self.is_over:
                return
            await self.changed.wait()

    async def follow_stored(self, after_id: int, heartbeat_s: float) -> AsyncGenerator[LoggedEvent | None, None]:
        """Yield the events after an id once the event log has them; None whenever none came for `heartbeat_s`."""
        read = 0
        with self._reading():
            while True:
                while read < len(self.stored):
                    logged = self.stored[read]
                    read += 1
                    if logged.id > after_id:
                        yield logged
                if self.is_closed:
                    return
                if not await self._stored_changed.wait(heartbeat_s):
                    yield None

    @contextmanager
    def _reading(self) -> Generator[None]:
        self.readers += 1
        self._note_missing()
        try:
            yield
        finally:
            self.readers -= 1

    def _note_missing(self) -> None:
        if self._on_event is not None and self.stored_count < len(self.events):
            self._on_event(self)
