"""Run operations on SQLite: one writer that groups commits, and any number of readers.

All writes that are queued when the writer's thread is free share a transaction, each behind its own savepoint: a write
that fails rolls back only itself, and one `fsync` serves them all. Where commits are faster than waking a thread,
a write runs in the caller's thread. Readers have their own connections and, in WAL mode, never wait for the writer.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from lango.errors import StoreUnavailable
from lango.store.engine.changes import SqliteChanges, Subscription
from lango.store.engine.database import (
    Dialect,
    Operation,
    RollBack,
    SingleStatementWrite,
    ping,
)
from lango.store.engine.outages import DEFAULT_WAIT_S, Outages
from lango.store.engine.schema import Applied, Migrations, load_migrations
from lango.store.engine.sqlite.connection import (
    TooLarge,
    WriteJob,
    connect_read_only,
    deliver_results,
    execute_on,
    read_applied,
    read_snapshot,
    refuse_foreign_database,
    run_small_transaction,
    run_transaction,
    take_queued,
    translate_error,
    translated_errors,
    upgrade_file,
)
from lango.store.engine.sqlite.files import (
    OpenedFiles,
    check_log_size,
    check_not_overwritten,
    check_path,
    create_private_file,
    is_read_only,
)
from lango.store.engine.sqlite.readers import SqliteReaders
from lango.store.engine.sqlite.writer import SqliteWriter

T = TypeVar("T")


MEMORY = ":memory:"
BUSY_TIMEOUT_S = 5.0
_MAX_GROUP = 256
_STATEMENT_CACHE_SIZE = 200
_CHECK_FILES_S = 0.005  # a write this soon after the file was replaced could just as well have come before
_CHECK_LOG_EVERY = 200  # writes in the caller's thread
_REOPEN_S = 0.02
_NOT_DONE: Any = object()


class SqliteDatabase:
    """A SQLite file, or a database in memory."""

    dialect: Dialect = "sqlite"

    def __init__(
        self,
        path: str,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        wait_s: float = DEFAULT_WAIT_S,
        migrations: Migrations | None = None,
    ) -> None:
        self._path = path
        self._migrations = migrations or load_migrations()
        self.outages = Outages(wait_s, 0.0)  # one attempt waits `busy_timeout_s` for a lock
        self._busy_timeout_s = busy_timeout_s
        self._queue: SimpleQueue[WriteJob | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._readers = SqliteReaders(lambda: self._connect(apsw.SQLITE_OPEN_READWRITE))
        self._writer: SqliteWriter | None = None
        self._log_holds_deleted_rows = False
        self._writer_lock = threading.Lock()  # held while the writer is in use
        self._files_checked_at = 0.0  # before a write in the caller's thread
        self._writes_since_check = 0  # writes since the last look at the log
        self._changes = SqliteChanges(None if path == MEMORY else self._connect_without_waiting)

    async def write(
        self,
        operation: Callable[[], Operation[T]],
        *,
        long: bool = False,
        single_statement: Callable[[], SingleStatementWrite[T] | None] | None = None,
    ) -> T:
        """Run an operation in a transaction: in this thread, or in the writer's, grouped with others."""
        result = _NOT_DONE
        try:
            if not long and (writer := self._writer) is not None and writer.commits_fast and self._queue.empty():
                result = self._write_in_this_thread(operation, single_statement)
            if result is _NOT_DONE:
                result = await self._enqueue(operation)
        except StoreUnavailable as error:  # nothing was written: it can be retried
            return await self.outages.retry(lambda: self._enqueue(operation), error, writes=True)
        self.outages.database_available(wrote=True)
        return result

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that only reads, on its own connection."""
        try:
            return await self._read_in_thread(operation)
        except StoreUnavailable as error:
            return await self.outages.retry(lambda: self._read_in_thread(operation), error, writes=False)

    async def _read_in_thread(self, operation: Callable[[], Operation[T]]) -> T:
        if self._path == MEMORY:
            return await self.write(operation)  # a database in memory belongs to one connection
        if self._writer is None and not is_read_only(self._path):
            await self.write(ping)
        return await self._readers.run(lambda: self._read(operation))

    async def purge(self) -> None:
        """Truncate the write-ahead log, which still holds deleted rows; later, if others are reading it."""
        self._log_holds_deleted_rows = True
        await self.write(ping, long=True)
        await asyncio.to_thread(self._checkpoint)

    async def probe(self) -> None:
        """Raise `StoreError` if the file is missing, replaced, damaged, locked, or read-only."""
        await self.read(ping)
        if self._path != MEMORY and is_read_only(self._path):
            raise translate_error(apsw.ReadOnlyError(), self._path)
        await asyncio.to_thread(self._check_contents)

    async def applied(self) -> Applied:
        """Return the migrations that the file has, without an upgrade."""
        if self._path == MEMORY:
            return Applied()
        check_path(Path(self._path))
        with translated_errors(self._path):
            return await asyncio.to_thread(read_applied, self._path)

    def notify_changed(self, key: int, *, elsewhere: bool) -> None:
        """Notify the subscribers of a session; other processes see that the file has changed."""
        del elsewhere
        self._changes.subscriptions.notify(key)

    def subscribe(self, key: int, *, every_commit: bool = True) -> contextlib.AbstractAsyncContextManager[Subscription]:
        """Subscribe to changes of a session, and with `every_commit` to those of other processes: to all of them."""
        return self._changes.subscribe(key, every_commit=every_commit)

    def _connect_without_waiting(self) -> apsw.Connection:
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(0)
        return connection

    async def close(self) -> None:
        """Finish the queued writes and close all connections. A later operation opens the file again."""
        await asyncio.to_thread(self._close)

    def _enqueue(self, operation: Callable[[], Operation[T]]) -> "asyncio.Future[T]":
        """Queue an operation for the writer's thread, and wait for its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put_job(WriteJob(operation, loop, future))
        return future

    # -- the writer ---------------------------------------------------------------------------------------------

    def _put_job(self, job: WriteJob) -> None:
        """Queue a job for the writer's thread; after `close`, for a new thread with a new queue."""
        with self._lock:
            self._queue.put(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_writer, args=(self._queue,), name="lango-writer", daemon=True
                )
                self._thread.start()

    def _run_writer(self, queue: "SimpleQueue[WriteJob | None]") -> None:
        while (job := queue.get()) is not None:
            jobs = [job, *take_queued(queue, _MAX_GROUP - 1)]
            try:
                with self._writer_lock:
                    if self._writer is None:
                        self._writer = self._open_writer()
                    self._check_files(writing=True)
                    with translated_errors(self._path):
                        self._writer.wait_for_locks(True)
                        self._writer.run_group([job for job in jobs if job.is_awaited], self._path)
            except BaseException as error:  # noqa: BLE001 - the group failed as a whole
                for job in jobs:
                    job.error = error
            deliver_results(jobs)
            self._checkpoint()
        with self._writer_lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.connection.close()

    def _write_in_this_thread(
        self,
        operation: Callable[[], Operation[Any]],
        single_statement: Callable[[], SingleStatementWrite[Any] | None] | None,
    ) -> Any:
        """Run an operation in the caller's thread, unless another write is under way."""
        if not self._writer_lock.acquire(blocking=False):
            return _NOT_DONE
        try:
            if (writer := self._writer) is None:
                return _NOT_DONE
            began = time.perf_counter()
            if began - self._files_checked_at > _CHECK_FILES_S:
                self._check_files(writing=True)
                self._files_checked_at = began
            writer.wait_for_locks(False)
            short = single_statement() if single_statement is not None else None
            if short is not None and writer.run_single_statement(short):
                result = short.result
            else:
                result = run_small_transaction(writer.connection, operation)
            writer.time_commit(began)
        except RollBack as undo:
            return undo.result
        except (apsw.BusyError, TooLarge):  # another process writes; the event loop would wait too long
            return _NOT_DONE
        except apsw.Error as error:
            raise translate_error(error, self._path) from error
        finally:
            self._writer_lock.release()
        self._writes_since_check += 1
        if self._writes_since_check >= _CHECK_LOG_EVERY:
            self._writes_since_check = 0
            self._put_job(WriteJob(ping))  # lets the thread checkpoint if the log has grown
        return result

    def _checkpoint(self) -> None:
        """Checkpoint the log if it has grown, outside the event loop and after all callers have their results.

        If rows were deleted, the log is truncated, too: its old pages still hold them.
        """
        writer = self._writer
        if writer is None or not (writer.log_has_grown or self._log_holds_deleted_rows):
            return
        with self._writer_lock, contextlib.suppress(apsw.Error):  # another connection reads: later
            if self._writer is writer and writer.checkpoint(truncate=self._log_holds_deleted_rows):
                self._log_holds_deleted_rows = False

    def _check_files(self, *, writing: bool) -> None:
        """Raise `StoreUnavailable` for a file that was deleted or replaced: writes to it would be lost."""
        if (writer := self._writer) is not None and writer.files is not None:
            writer.files.check(with_log=writing)

    def _check_contents(self) -> None:
        with translated_errors(self._path), self._writer_lock:
            if self._writer is None or self._writer.files is None:
                return
            self._writer.files.check(with_log=True)
            check_not_overwritten(self._path, self._writer.files.store_id)
            [[page_bytes]] = execute_on(self._writer.connection, "PRAGMA page_size")
            [[_, frames, _]] = execute_on(self._writer.connection, "PRAGMA wal_checkpoint(NOOP)")
            check_log_size(self._path, frames, page_bytes)

    def _open_writer(self) -> SqliteWriter:
        if self._path == MEMORY:
            with translated_errors(self._path):
                return SqliteWriter(self._connect_writer()[0], None, self._busy_timeout_s)
        check_path(Path(self._path))
        create_private_file(Path(self._path))
        with translated_errors(self._path):
            deadline = time.monotonic() + self._busy_timeout_s
            while True:
                try:
                    connection, store_id = self._connect_writer()
                    break
                except apsw.BusyError:
                    # when several processes open a new file at once, SQLite does not wait for the change to WAL
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_REOPEN_S)
            return SqliteWriter(connection, OpenedFiles(self._path, store_id), self._busy_timeout_s)

    def _connect_writer(self) -> tuple[apsw.Connection, int]:
        """Open the file for writing and upgrade its schema; return the connection and the store's random number."""
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            refuse_foreign_database(connection, self._path)
            execute_on(connection, "PRAGMA journal_mode = WAL")
            execute_on(connection, "PRAGMA synchronous = FULL")
            execute_on(connection, "PRAGMA secure_delete = ON")
            execute_on(connection, "PRAGMA wal_autocheckpoint = 0")
            store_id = run_transaction(connection, lambda: upgrade_file(self._path, self._migrations))
            execute_on(connection, "PRAGMA wal_checkpoint(PASSIVE)")  # so that the number is in the file itself
        except BaseException:
            connection.close()
            raise
        return connection, store_id

    # -- the readers --------------------------------------------------------------------------------------------

    def _read(self, operation: Callable[[], Operation[T]]) -> T:
        self._check_files(writing=False)
        with translated_errors(self._path):
            if self._writer is None:
                with contextlib.closing(connect_read_only(self._path)) as connection:
                    return read_snapshot(connection, operation)
            return self._readers.read(operation)

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(self._path, flags=flags, statementcachesize=_STATEMENT_CACHE_SIZE)
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        return connection

    def _close(self) -> None:
        with self._lock:  # later operations open the file again
            thread, self._thread = self._thread, None
            queue, self._queue = self._queue, SimpleQueue()
            queue.put(None)
        self._readers.close()
        self._changes.close()
        if thread is not None:
            thread.join()
