"""Read from a SQLite file in threads, each with its own connection."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from lango.store.engine.database import Operation
from lango.store.engine.sqlite.connection import execute_on, read_snapshot
from lango.threads import UserShares

T = TypeVar("T")

_THREADS = 4


class SqliteReaders:
    """The threads that read from a file, and their connections; each user has a share of the threads."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._shares = UserShares(_THREADS - 1)
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []

    async def run(self, read: Callable[[], T]) -> T:
        """Run a function in a thread."""
        return await self._shares.run(self._submit, read)

    def _submit(self, read: Callable[[], T]) -> "asyncio.Future[T]":
        with self._lock:  # so that no close comes in between
            self._threads = self._threads or ThreadPoolExecutor(_THREADS, "lango-reader")
            return asyncio.get_running_loop().run_in_executor(self._threads, read)

    def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation on one snapshot, in the thread of the caller and on the connection of that thread."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            execute_on(connection, "PRAGMA query_only = 1")
            self._local.connection = connection
            self._connections.append(connection)
        try:
            return read_snapshot(connection, operation)
        except (apsw.NotADBError, apsw.CorruptError):  # its cache would stay damaged after a repair
            self._local.connection = None
            self._connections.remove(connection)
            connection.close()
            raise

    def close(self) -> None:
        """Wait for the reads under way, and close all connections. A later read opens the file again."""
        with self._lock:
            threads, self._threads = self._threads, None
            connections, self._connections = self._connections, []
            self._local = threading.local()
        if threads is not None:
            threads.shutdown(wait=True)
        for connection in connections:
            connection.close()
