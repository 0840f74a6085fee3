"""Wake-ups between processes on one SQLite file: while something waits, it looks often whether the file has changed.

A look is one `PRAGMA data_version`, which reads shared memory and nothing else.
"""

import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import apsw

from lango.store.engine.changes import Changes, Wakeup, Wakeups

_LOOK_S = 0.005


class FileChanges:
    """The subscriptions of a process to one file; without a way to `connect`, to what this process announces alone."""

    def __init__(self, connect: Callable[[], Any] | None) -> None:
        self.wakeups = Wakeups()
        self._connect = connect
        self._connection: Any = None
        self._version = 0
        self._lock = threading.Lock()

    @asynccontextmanager
    async def subscribe(self, key: int) -> AsyncGenerator[Changes]:
        """Subscribe to a session, and to every commit of others, until the block ends."""
        with self.wakeups.subscribe(key) as wakeup:
            yield wakeup if self._connect is None else _Watching(wakeup, self)

    def version(self) -> int:
        """Return a number that is another one after every commit of another connection."""
        assert self._connect
        with self._lock:
            try:
                self._connection = self._connection or self._connect()
                [[self._version]] = self._connection.execute("PRAGMA data_version")
            except apsw.Error:  # not now: whoever uses the file hears what is wrong with it
                pass
            return self._version

    @property
    def pause_s(self) -> float:
        """How long to wait between two looks: the more sessions are waited for, the longer."""
        return _LOOK_S * max(1, len(self.wakeups))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


class _Watching:
    """A subscription that looks at the file while it waits."""

    def __init__(self, wakeup: Wakeup, file: FileChanges) -> None:
        self._wakeup = wakeup
        self._file = file
        self._seen = file.version()

    async def wait(self, timeout_s: float) -> bool:
        """Wait to be woken, or for another version of the file; False: nothing came in time."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            woken = await self._wakeup.wait(min(left_s, self._file.pause_s))
            version = self._file.version()
            if woken or version != self._seen:
                self._seen = version
                return True
        return False
