"""SQLite: one writer that groups commits, readers beside it.

Every write that waits when the writer's thread comes round goes into the same transaction, each behind a savepoint of
its own: one that fails takes back only itself, and one `fsync` serves them all. Where commits are quicker than waking a
thread, and nobody else writes, a write is done at once in the caller's thread. Readers have connections of their own
and, in WAL mode, never wait for the writer.
"""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import apsw

from lango.errors import StoreUnavailable
from lango.store.engine.changes import Changes, FileChanges
from lango.store.engine.database import AtOnce, Dialect, Operation, Shortcut, Undo, run_sync
from lango.store.engine.outages import WAIT_S, Outages
from lango.store.engine.schema import migrate
from lango.store.engine.sqlite_connection import (
    Connection,
    Cursor,
    Job,
    connect_to_unwritable,
    deliver,
    execute_on,
    read_snapshot,
    refuse_foreign,
    run_alone,
    run_each,
    store_number,
    translate,
    translated,
    waiting,
)
from lango.store.engine.sqlite_file import (
    OpenedFiles,
    check_log_size,
    check_path,
    check_stored_id,
    create_private,
    only_readable,
)
from lango.store.engine.sqlite_log import checked_log, leave_log

T = TypeVar("T")

_log = logging.getLogger("lango.store")

MEMORY = ":memory:"
BUSY_TIMEOUT_S = 5.0
_READERS = 4
_LARGEST_GROUP = 256
_STATEMENTS_KEPT = 200
_QUICK_S = 0.001  # an event loop can wait as long as this; waking a thread and being woken again takes about half of it
_QUICK_ENOUGH = 5  # so many quick commits in a row, and the disk is taken for a quick one
_CHECKPOINT_PAGES = 1000
_LOOK_EVERY = 200  # writes of the caller's thread, each quick and so of few pages
_REOPEN_S = 0.02
_NOT_NOW: Any = object()


class SqliteDatabase:
    """A SQLite file, or a database in memory."""

    def __init__(self, path: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S, wait_s: float = WAIT_S) -> None:
        self._path = path
        self.outages = Outages(wait_s, 0.0)  # one attempt waits `busy_timeout_s` for a lock
        self._busy_timeout_s = busy_timeout_s
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[Connection] = []
        self._opened = False
        self._writer: Connection | None = None
        self._files: OpenedFiles | None = None  # which ones the writer has open
        self._store_id = self._page_bytes = 0
        self._log_holds_deleted = False
        self._writing = threading.Lock()  # held while the writer's connection is in use
        self._patient = True  # the writer's connection waits for others
        self._quick_commits = 0
        self._unseen = 0  # writes since the thread last looked at the log
        self._pages_written = self._pages_home = 0
        self._cursors: dict[AtOnce, Cursor] = {}
        self._changes = FileChanges(None if path == MEMORY else self._connect_impatient)

    @property
    def dialect(self) -> Dialect:
        """What kind it is."""
        return "sqlite"

    async def write(
        self,
        operation: Callable[[], Operation[T]],
        *,
        long: bool = False,
        shortcut: Callable[[], Shortcut[T] | None] | None = None,
    ) -> T:
        """Run an operation in a transaction: at once, or grouped with whatever else waits."""
        if not long and self._quick_commits >= _QUICK_ENOUGH and self._queue.empty():
            done = self._write_here(operation, shortcut)
            if done is not _NOT_NOW:
                self.outages.end()
                return done
        try:
            result = await self._queued(operation)
        except StoreUnavailable as error:  # nothing of it was written: it may be tried again
            return await self.outages.retry(lambda: self._queued(operation), error)
        self.outages.end()
        return result

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that only reads on a connection of its own."""
        try:
            return await self._read_beside(operation)
        except StoreUnavailable as error:
            return await self.outages.retry(lambda: self._read_beside(operation), error)

    async def _read_beside(self, operation: Callable[[], Operation[T]]) -> T:
        if self._path == MEMORY:
            return await self.write(operation)  # a database in memory belongs to one connection
        if not self._opened and not only_readable(self._path):
            await self.write(_nothing)
        loop = asyncio.get_running_loop()
        with self._lock:  # or it is closed between the two
            self._readers = self._readers or ThreadPoolExecutor(_READERS, "lango-reader")
            reading = loop.run_in_executor(self._readers, self._read, operation)
        return await reading

    async def purge(self) -> None:
        """Empty the log beside the file, which still holds what was deleted; later, where others are reading it."""
        self._log_holds_deleted = True
        await self.write(_nothing, long=True)
        await asyncio.to_thread(self._checkpoint)

    async def probe(self) -> None:
        """Raise `StoreError` where the file cannot be used: it is gone, replaced, damaged, or locked."""
        await self.read(_nothing)
        if self._files is not None:
            await asyncio.to_thread(self._check_contents)

    def announce(self, key: int, *, elsewhere: bool) -> None:
        """Wake those who wait for changes of a session; other processes see that the file has changed."""
        del elsewhere
        self._changes.wakeups.wake(key)

    def changes(self, key: int) -> contextlib.AbstractAsyncContextManager[Changes]:
        """Subscribe to changes of a session, and to every commit of other processes."""
        return self._changes.subscribe(key)

    def _connect_impatient(self) -> Connection:
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(0)
        return connection

    async def close(self) -> None:
        """Let waiting writes finish, then close every connection. A later call opens the file again."""
        await asyncio.to_thread(self._close)

    def _queued(self, operation: Callable[[], Operation[T]]) -> "asyncio.Future[T]":
        """Hand an operation to the writer's thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put(Job(operation, loop, future))
        return future

    # -- the writer ---------------------------------------------------------------------------------------------

    def _put(self, job: Job) -> None:
        """Hand a job to the writer's thread; after a `close` to a new one, with a queue of its own."""
        with self._lock:
            self._queue.put(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, args=(self._queue,), name="lango-writer", daemon=True
                )
                self._thread.start()

    def _serve(self, queue: "SimpleQueue[Job | None]") -> None:
        while (job := queue.get()) is not None:
            jobs = [job, *waiting(queue, _LARGEST_GROUP - 1)]
            try:
                with self._writing:
                    if self._writer is None:
                        self._writer = self._open_writer()
                    self._check_files(writing=True)
                    with translated(self._path):
                        self._wait_for_others(self._writer, patient=True)
                        self._run_group(self._writer, [job for job in jobs if job.is_wanted])
            except BaseException as error:  # noqa: BLE001 - the group failed as a whole
                for job in jobs:
                    job.error = error
            deliver(jobs)
            self._checkpoint()
        with self._writing:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
            self._cursors.clear()
            self._pages_written = self._pages_home = 0
            self._patient = True
            self._quick_commits = 0
            self._opened = False
            if self._files is not None:
                self._files = None
                leave_log(self._path)

    def _write_here(
        self, operation: Callable[[], Operation[Any]], shortcut: Callable[[], Shortcut[Any] | None] | None
    ) -> Any:
        """Run an operation in the caller's thread, unless somebody else is writing: then it has to wait its turn."""
        if not self._writing.acquire(blocking=False):
            return _NOT_NOW
        try:
            if (connection := self._writer) is None:
                return _NOT_NOW
            self._check_files(writing=True)
            if self._patient:
                self._wait_for_others(connection, patient=False)
            began = time.perf_counter()
            short = shortcut() if shortcut is not None else None
            if short is not None and self._take(connection, short):
                result = short.result
            else:
                result = run_alone(connection, operation)
            self._note_commit(began)
        except Undo as undo:
            return undo.result
        except apsw.BusyError:
            return _NOT_NOW  # another process writes
        except apsw.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._writing.release()
        self._unseen += 1
        if self._unseen >= _LOOK_EVERY:
            self._unseen = 0
            self._put(Job(_nothing))  # wakes the thread, which has the time for a checkpoint
        return result

    def _take(self, connection: Connection, short: Shortcut[Any]) -> bool:
        """Take a shortcut, if this is the case for it."""
        statement = short.statement
        cursor = self._cursors.get(statement)
        if cursor is None:
            for text in statement.prepare:
                connection.execute(text)
            cursor = self._cursors[statement] = connection.cursor()
        try:
            cursor.execute(statement.insert, short.values)
        except apsw.ConstraintError:  # the statement has taken itself back
            return False
        return True

    def _wait_for_others(self, connection: Connection, *, patient: bool) -> None:
        """Set whether the writer waits for other processes: its thread may, an event loop may not."""
        if patient != self._patient:
            connection.set_busy_timeout(int(self._busy_timeout_s * 1000) if patient else 0)
            self._patient = patient

    def _checkpoint(self) -> None:
        """Write the log into the file where it has grown, outside the event loop and after every caller was answered.

        Where something was deleted, the log is emptied, too: its old pages still hold it.
        """
        grown = self._pages_written - self._pages_home > _CHECKPOINT_PAGES
        if not (grown or self._log_holds_deleted):
            return
        with self._writing, contextlib.suppress(apsw.Error):  # another connection reads: next time
            if self._writer is None:
                return
            self._pages_home = self._pages_written
            if not self._log_holds_deleted:
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                return
            self._wait_for_others(self._writer, patient=False)
            [[busy, _, _]] = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._log_holds_deleted = bool(busy)

    def _check_files(self, *, writing: bool) -> None:
        """Refuse a file that is not at its path any more: what is written to it is lost, what is read is another's."""
        if (files := self._files) is not None:
            files.check(with_log=writing)

    def _check_contents(self) -> None:
        with translated(self._path), self._writing:
            self._check_files(writing=True)
            check_stored_id(self._path, self._store_id)
            if self._writer is not None:
                [[_, frames, _]] = self._writer.execute("PRAGMA wal_checkpoint(NOOP)").fetchall()
                check_log_size(self._path, frames, self._page_bytes)

    def _run_group(self, connection: Connection, jobs: list[Job]) -> None:
        execute = functools.partial(execute_on, connection)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if jobs[0].run(execute) if len(jobs) == 1 else run_each(connection, jobs, execute):
                connection.execute("COMMIT")
            elif connection.in_transaction:  # or SQLite has taken it back already
                connection.execute("ROLLBACK")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._note_commit(began)
        self._pages_written, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
        for job in jobs:
            if isinstance(job.error, apsw.Error):
                job.error = translate(job.error, self._path)

    def _note_commit(self, began: float) -> None:
        self._quick_commits = self._quick_commits + 1 if time.perf_counter() - began < _QUICK_S else 0

    def _open_writer(self) -> Connection:
        if self._path == MEMORY:
            with translated(self._path):
                return self._opened_writer()
        check_path(Path(self._path))
        create_private(Path(self._path))
        with translated(self._path), checked_log(self._path):
            deadline = time.monotonic() + self._busy_timeout_s
            while True:
                try:
                    connection = self._opened_writer()
                    break
                except apsw.BusyError:
                    # when several open a new file at once, SQLite does not wait for the change to WAL by itself
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_REOPEN_S)
            self._files = OpenedFiles(self._path)
        self._opened = True
        return connection

    def _opened_writer(self) -> Connection:
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            refuse_foreign(connection, self._path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("BEGIN IMMEDIATE")
            try:
                run_sync(migrate(self._path, "sqlite"), functools.partial(execute_on, connection))
                self._store_id = store_number(connection)
                [[self._page_bytes]] = connection.execute("PRAGMA page_size").fetchall()
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # so that the file itself has the number
        except BaseException:
            connection.close()
            raise
        return connection

    # -- the readers --------------------------------------------------------------------------------------------

    def _read(self, operation: Callable[[], Operation[T]]) -> T:
        self._check_files(writing=False)
        with translated(self._path):
            if not self._opened:
                with contextlib.closing(connect_to_unwritable(self._path)) as connection:
                    return read_snapshot(connection, operation)
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
                connection.execute("PRAGMA query_only = 1")
                self._local.connection = connection
                self._connections.append(connection)
            try:
                return read_snapshot(connection, operation)
            except (apsw.NotADBError, apsw.CorruptError):  # its cache holds what was damaged, also when it is mended
                self._local.connection = None
                self._connections.remove(connection)
                connection.close()
                raise

    def _connect(self, flags: int) -> Connection:
        connection = apsw.Connection(self._path, flags=flags, statementcachesize=_STATEMENTS_KEPT)
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        return cast("Connection", connection)

    def _close(self) -> None:
        with self._lock:  # whoever comes from now on opens anew
            thread, self._thread = self._thread, None
            queue, self._queue = self._queue, SimpleQueue()
            queue.put(None)
            readers, self._readers = self._readers, None
            connections, self._connections = self._connections, []
            self._local = threading.local()
        if readers is not None:
            readers.shutdown(wait=True)
        for connection in connections:
            connection.close()
        self._changes.close()
        if thread is not None:
            thread.join()


def _nothing() -> Operation[None]:
    """Open the file, no more."""
    yield "SELECT 1", ()
