"""A turn under way, as its readers see it."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from lango.errors import LangoError, TurnFailed
from lango.events import TurnError, TurnEvent
from lango.store import SessionRecord, Turn

_IDS_PER_TURN = 1_000_000


@dataclass(eq=False, slots=True)
class RunningTurn:
    """A turn that was accepted: what it has told so far, and the task that runs it. Any number of readers follow it."""

    session: SessionRecord
    turn: Turn
    events: list[TurnEvent] = field(default_factory=list[TurnEvent])
    task: "asyncio.Task[None] | None" = None
    finished: bool = False
    error: LangoError | None = None
    stopped: LangoError | None = None
    """Why it was stopped from elsewhere."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _count: int = 0

    def next_id(self) -> int:
        """Return an id larger than every one before it in this session."""
        self._count += 1
        return self.turn.turn * _IDS_PER_TURN + self._count

    def tell(self, event: TurnEvent) -> None:
        """Add an event for every reader."""
        self.events.append(event)
        self._wake()

    def finish(self) -> None:
        """Say that nothing comes any more."""
        self.finished = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Tell the error that the turn ends with."""
        self.error = as_error(error)
        self.tell(TurnError(self.next_id(), type(self.error).__name__, str(self.error)))

    def stop(self, why: LangoError) -> None:
        """Stop the task that runs the turn."""
        self.stopped = why
        if self.task is not None:
            self.task.cancel()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self, after_id: int = 0) -> AsyncGenerator[TurnEvent, None]:
        """Read what was told after an id, and what is told from now on, to the end."""
        read = 0
        while True:
            changed = self._changed
            while read < len(self.events):
                event = self.events[read]
                read += 1
                if event.id > after_id:
                    yield event
            if self.finished:
                return
            await changed.wait()

    async def wait(self) -> None:
        """Wait for the end."""
        while not self.finished:
            await self._changed.wait()


def as_error(error: Exception) -> LangoError:
    """Return an error of ours as it is, and any other one as the cause of one."""
    if isinstance(error, LangoError):
        return error
    failed = TurnFailed(f"{type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
