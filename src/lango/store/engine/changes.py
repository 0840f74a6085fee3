"""Notify coroutines that wait for a session to change, in this process and in others on the same SQLite file.

A coroutine subscribes before it reads: a change between the read and the wait ends the wait at once.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import apsw

_POLL_S = 0.005


class Subscription:
    """A subscription of one coroutine; with `file`, also to every commit of other processes, for which it polls."""

    def __init__(self, file: "SqliteChanges | None" = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()
        self._file = file
        self._last_version = file.data_version() if file else 0

    def notify(self) -> None:
        """Wake the coroutine, from any thread."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._notified.set)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a notification or a commit; return False if none came in time."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, self._file.poll_interval_s) if self._file else left_s):
                    await self._notified.wait()
            version = self._file.data_version() if self._file else 0
            if self._notified.is_set() or version != self._last_version:
                self._notified.clear()
                self._last_version = version
                return True
        return False


class Subscriptions:
    """The subscriptions of a process, by session."""

    def __init__(self) -> None:
        self._by_key: dict[int, set[Subscription]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def subscribe(self, key: int, file: "SqliteChanges | None" = None) -> Generator[Subscription]:
        """Subscribe to a session until the block ends."""
        wakeup = Subscription(file)
        with self._lock:
            self._by_key.setdefault(key, set()).add(wakeup)
        try:
            yield wakeup
        finally:
            with self._lock:
                self._by_key[key].discard(wakeup)
                if not self._by_key[key]:
                    del self._by_key[key]

    def notify(self, key: int) -> None:
        """Wake every subscription of a session."""
        with self._lock:
            found = list(self._by_key.get(key, ()))
        for wakeup in found:
            wakeup.notify()

    def __len__(self) -> int:
        """The number of sessions with subscriptions."""
        return len(self._by_key)


class SqliteChanges:
    """The subscriptions of a process to one file; without `connect`, only this process notifies them."""

    def __init__(self, connect: Callable[[], Any] | None) -> None:
        self.subscriptions = Subscriptions()
        self._connect = connect
        self._connection: Any = None
        self._version = 0
        self._lock = threading.Lock()

    @asynccontextmanager
    async def subscribe(self, key: int, *, every_commit: bool) -> AsyncGenerator[Subscription]:
        """Subscribe to a session, and with `every_commit` to the commits of others, until the block ends."""
        with self.subscriptions.subscribe(key, self if self._connect and every_commit else None) as wakeup:
            yield wakeup

    def data_version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        assert self._connect
        with self._lock:
            try:
                self._connection = self._connection or self._connect()
                [[self._version]] = self._connection.execute("PRAGMA data_version")
            except apsw.Error:  # the next operation on the file raises it
                pass
            return self._version

    @property
    def poll_interval_s(self) -> float:
        """The seconds between two polls; they grow with the number of subscribed sessions."""
        return _POLL_S * max(1, len(self.subscriptions))

    def close(self) -> None:
        """Close the connection to the file."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
