"""Wake-ups for coroutines that wait for a session to change, in any event loop of this process.

A subscription is made before its owner looks at what it waits for: what changes between the look and the wait counts.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol


class Changes(Protocol):
    """What a coroutine waits for."""

    async def wait(self, timeout_s: float) -> bool:
        """Return True when something may have changed since the last call, False when nothing did in time."""
        ...


class Wakeup:
    """A subscription of one coroutine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake the coroutine, from any thread."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout_s: float) -> bool:
        """Wait to be woken; False: nothing came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class Wakeups:
    """The subscriptions of a process, by session."""

    def __init__(self) -> None:
        self._by_key: dict[int, set[Wakeup]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def subscribe(self, key: int) -> Generator[Wakeup]:
        """Subscribe to a session until the block ends."""
        wakeup = Wakeup()
        with self._lock:
            self._by_key.setdefault(key, set()).add(wakeup)
        try:
            yield wakeup
        finally:
            with self._lock:
                self._by_key[key].discard(wakeup)
                if not self._by_key[key]:
                    del self._by_key[key]

    def wake(self, key: int) -> None:
        """Wake every subscription of a session."""
        with self._lock:
            found = list(self._by_key.get(key, ()))
        for wakeup in found:
            wakeup.wake()

    def __len__(self) -> int:
        """How many sessions are waited for."""
        return len(self._by_key)
