"""Wake coroutines that wait for a change."""

import asyncio


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
        """Wait for the next `notify`; False: the timeout came first."""
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
