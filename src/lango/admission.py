"""Limit how many turns run at once in a process; further turns queue, first come, first served.

A process has one event loop. Beyond what it can carry, each further turn slows down all the others, until no answer
begins in reasonable time. So a bounded number of turns runs, each at full speed, and the others see their place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from msgspec import Struct

_ANNOUNCE_S = 2.0
"""How often queued turns learn that their place changed."""

_in_turn: ContextVar[bool] = ContextVar("in_turn", default=False)


class _Queued(Struct, eq=False):
    admitted: asyncio.Future[None]
    on_place: Callable[[int], None]
    place: int = 0

    def announce(self, place: int) -> None:
        if place != self.place:
            self.place = place
            self.on_place(place)


class Admission:
    """Admits at most `limit` turns at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._queue: deque[_Queued] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def queued(self) -> int:
        """How many turns wait to be admitted."""
        return len(self._queue)

    @asynccontextmanager
    async def admitted(self, on_place: Callable[[int], None]) -> AsyncGenerator[None]:
        """Wait until the turn may run, and hold its slot until the context is left.

        A turn that has to queue reports its place to `on_place`: 1 is next, 0 begins. A turn that is started from
        within another one, by a tool, runs in that one's slot: if it queued, each could wait for the other.
        """
        if _in_turn.get():
            yield
            return
        await self._enter(on_place)
        token = _in_turn.set(True)
        try:
            yield
        finally:
            _in_turn.reset(token)
            self._leave()

    async def _enter(self, on_place: Callable[[int], None]) -> None:
        if self._running < self._limit:
            self._running += 1
            return
        queued = _Queued(asyncio.get_running_loop().create_future(), on_place)
        self._queue.append(queued)
        queued.announce(len(self._queue))
        self._plan_announcement()
        try:
            await queued.admitted
        except asyncio.CancelledError:
            if not queued.admitted.cancelled():  # it was admitted at the moment at which it was cancelled
                self._leave()
            elif queued in self._queue:
                self._queue.remove(queued)
            raise
        queued.announce(0)

    def _leave(self) -> None:
        """Hand the slot to the next turn in the queue."""
        while self._queue:
            queued = self._queue.popleft()
            if not queued.admitted.done():
                queued.admitted.set_result(None)
                return
        self._running -= 1

    def _plan_announcement(self) -> None:
        if self._timer is None and self._queue:
            self._timer = asyncio.get_running_loop().call_later(_ANNOUNCE_S, self._announce)

    def _announce(self) -> None:
        self._timer = None
        for place, queued in enumerate(self._queue, 1):
            if not queued.admitted.done():
                queued.announce(place)
        self._plan_announcement()
