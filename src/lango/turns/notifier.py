"""Waiting for news: whoever tells wakes whoever waits, and pays nothing where nobody does."""

import asyncio


class News:
    """Wakes everybody who waits at that moment. What the news are, they look up where it is kept."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def tell(self) -> None:
        """Wake all who wait."""
        if self._waiting:
            woken, self._waiting = self._waiting, []
            for future in woken:
                if not future.done():
                    future.set_result(True)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait to be woken; False: nothing came in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _give_up, future)
        self._waiting.append(future)
        told = False
        try:
            told = await future
        finally:
            if timer is not None:
                timer.cancel()
            if not told and future in self._waiting:
                self._waiting.remove(future)
        return told


def _give_up(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(False)
