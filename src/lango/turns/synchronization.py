"""Wake coroutines that wait for a change, and hold back the steps of a turn while the process stops."""

import asyncio
from collections.abc import Callable


class Notifier:
    """Wakes all coroutines that wait at the moment of a change; it costs nothing while none waits."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[bool]] = []

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        if self._waiters:
            woken, self._waiters = self._waiters, []
            for future in woken:
                if not future.done():
                    future.set_result(True)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the next `notify`; return False if the timeout came first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _time_out, future)
        self._waiters.append(future)
        notified = False
        try:
            notified = await future
        finally:
            if timer is not None:
                timer.cancel()
            if not notified and future in self._waiters:
                self._waiters.remove(future)
        return notified


def _time_out(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(False)


class StepGate:
    """Counts the steps of a turn that are under way, and holds back new ones once it is closed.

    A step is a model call or a tool. A turn whose next steps are all held back has nothing half done, and can be handed
    over to another process.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._held_back = 0
        self._on_idle: Callable[[], None] | None = None

    async def enter(self) -> None:
        """Begin a step; once the gate is closed, wait here until the turn is stopped."""
        if self._on_idle is not None:
            self._held_back += 1
            self._check_idle()
            await asyncio.get_running_loop().create_future()
        self._under_way += 1

    def leave(self) -> None:
        """End a step, whose outcome is stored."""
        self._under_way = max(0, self._under_way - 1)
        self._check_idle()

    def close(self, on_idle: Callable[[], None]) -> None:
        """Hold back further steps, and call `on_idle` when none is under way and one is held back."""
        self._on_idle = on_idle

    def _check_idle(self) -> None:
        if self._on_idle is not None and self._held_back and not self._under_way:
            self._on_idle()
