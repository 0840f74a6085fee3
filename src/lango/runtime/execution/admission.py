"""Admit as many turns as the event loop carries; further turns wait for a slot, first come, first served.

A process has one event loop. Beyond what it can carry, each further turn slows down all the others, until no answer
begins in reasonable time. How many it carries depends on the machine, on what else runs there and on the provider, so
it is measured: while the loop is late, no further turn begins, and turns without a slot see their place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from lango.adk.turn.turn_run import current_turn

_LATE_S = 0.05
"""The loop is late when a timer fires so long after it was due."""
_CALM_S = 0.5
"""How long the loop must have been on time before another turn is admitted: a turn costs most after it has begun."""
_PACE_S = 0.015
"""Turns are admitted this far apart, so that the lag that one causes is seen before many more have begun."""
_ALWAYS = 16
"""This many turns always run: the loop may be late for reasons other than turns."""
_SAMPLE_S = 0.1
_ANNOUNCE_S = 2.0
"""How often turns without a slot learn that their place changed; less often where more than a hundred wait."""


class _SlotRequest(Struct, eq=False):
    admitted: asyncio.Future[None]
    on_place: Callable[[int], None]
    has_run: bool
    place: int = 0

    def announce(self, place: int) -> None:
        if place != self.place:
            self.place = place
            self.on_place(place)


class Admission:
    """Admits turns while the event loop is on time, and never more than `limit` at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0
        self._waiting: deque[_SlotRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._admitted_at = self._announced_at = self._late_at = float("-inf")
        self._next_announced = 0
        self._has_streamed = False
        """Whether a turn has emitted an event yet. Until then a process imports, which costs the loop nothing, and no
        more than the turns that always run are admitted: all of them would begin to stream at the same moment."""

    @property
    def waiting(self) -> int:
        """How many turns wait to be admitted."""
        return len(self._waiting)

    def note_event(self) -> None:
        """Note that a turn emitted an event."""
        self._has_streamed = True

    @asynccontextmanager
    async def admitted(self, on_place: Callable[[int], None], *, has_run: bool = False) -> AsyncGenerator[None]:
        """Wait until the turn may run, and count it as running until the context is left.

        A turn that has to wait reports its place to `on_place`: 1 is next, 0 begins. One that `has_run`, here or in a
        process that stopped, waits before those that have not begun. A turn that is started from
        within another one, by a tool, does not wait: each would wait for the other.
        """
        if current_turn.get() is not None:
            yield
            return
        await self._enter(on_place, has_run)
        try:
            yield
        finally:
            self._running -= 1
            self._has_streamed = True

    async def _enter(self, on_place: Callable[[int], None], has_run: bool) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting and self._has_room(loop.time()):
            self._admit(loop.time())
            return
        waiting = _SlotRequest(loop.create_future(), on_place, has_run)
        ahead = sum(other.has_run for other in self._waiting) if has_run else len(self._waiting)
        self._waiting.insert(ahead, waiting)
        waiting.announce(ahead + 1)
        self._schedule(_PACE_S)
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if not waiting.admitted.cancelled():  # it was admitted at the moment at which it was cancelled
                self._running -= 1
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        waiting.announce(0)

    def _has_room(self, now: float) -> bool:
        if self._running >= self._limit:
            return False
        is_on_time = now - self._late_at >= _CALM_S and now - self._admitted_at >= _PACE_S
        return self._running < _ALWAYS or (is_on_time and self._has_streamed)

    def _admit(self, now: float) -> None:
        self._running += 1
        self._admitted_at = now
        if self._timer is None:
            self._schedule(_SAMPLE_S)

    # -- the timer: measures the lag while turns run, and admits those that wait ----------------------------------

    def _schedule(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        assert self._timer is not None
        now = asyncio.get_running_loop().time()
        if now - self._timer.when() >= _LATE_S:
            self._late_at = now
        self._timer = None
        while self._waiting and self._has_room(now):
            waiting = self._waiting.popleft()
            if not waiting.admitted.done():
                self._admit(now)
                waiting.admitted.set_result(None)
        if self._waiting:
            self._announce(now)
            self._schedule(_PACE_S)
        elif self._running:
            self._schedule(_SAMPLE_S)

    def _announce(self, now: float) -> None:
        """Report its place to one waiting turn: to all of them at once would make the loop late."""
        if self._next_announced >= len(self._waiting):
            if now - self._announced_at < _ANNOUNCE_S:
                return
            self._announced_at, self._next_announced = now, 0
        waiting = self._waiting[self._next_announced]
        self._next_announced += 1
        if not waiting.admitted.done():
            waiting.announce(self._next_announced)
