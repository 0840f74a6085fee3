"""SQLite: one writer thread that groups commits, readers beside it.

Every write that waits when the writer comes round goes into the same transaction, each behind a savepoint of its own:
one that fails takes back only itself, and one `fsync` serves them all. Readers have connections of their own and, in
WAL mode, never wait for the writer.
"""

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, cast

import apsw

from lango.errors import LangoError, SchemaError, StoreError, StoreUnavailable, StoreUrlError
from lango.store.database import Operation, Row, Undo, migrate, run_sync

T = TypeVar("T")

_log = logging.getLogger("lango.store")

MEMORY = ":memory:"
BUSY_TIMEOUT_S = 5.0
_READERS = 4
_LARGEST_GROUP = 256
_STATEMENTS_KEPT = 200
_PAGE_BYTES = 8192  # less room is left over at the end of each page than with SQLite's 4096: 30 bytes an event


class _Connection(Protocol):
    """The little of `apsw.Connection` that is used here, with types."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: tuple[Any, ...] = ()) -> "_Cursor": ...

    def close(self) -> None: ...


class _Cursor(Iterable[Row], Protocol):
    def fetchall(self) -> list[Row]: ...


@dataclass(eq=False, slots=True)
class _Job:
    """One operation on its way through the writer."""

    make: Callable[[], Operation[Any]]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = field(default=None)

    def run(self, execute: Callable[[str, tuple[Any, ...]], list[Row]]) -> bool:
        """Run the operation; False: what it wrote must be taken back."""
        try:
            self.result = run_sync(self.make(), execute)
        except Undo as undo:
            self.result = undo.result
            return False
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
            self.error = error
            return False
        return True

    def deliver(self) -> None:
        """Hand the outcome to whoever waits, in their event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """A SQLite file, or a database in memory."""

    def __init__(self, path: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[_Connection] = []
        self._opened = False

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in a transaction, grouped with whatever else waits."""
        loop = asyncio.get_running_loop()
        job = _Job(operation, loop, loop.create_future())
        if self._thread is None:
            self._start()
        self._queue.put(job)
        return await job.future

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that only reads on a connection of its own."""
        if self._path == MEMORY:
            return await self.write(operation)  # a database in memory belongs to one connection
        if not self._opened and not _only_readable(self._path):
            await self.write(_nothing)
        if self._readers is None:
            with self._lock:
                self._readers = self._readers or ThreadPoolExecutor(_READERS, "lango-reader")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, operation)

    async def close(self) -> None:
        """Let waiting writes finish, then close every connection. A later call opens the file again."""
        await asyncio.to_thread(self._close)

    # -- the writer ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="lango-writer", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        connection: _Connection | None = None
        while (job := self._queue.get()) is not None:
            jobs = [job, *self._waiting()]
            try:
                if connection is None:
                    connection = self._open_writer()
                with _translated(self._path):
                    self._run_group(connection, [job for job in jobs if not job.future.cancelled()])
            except BaseException as error:  # noqa: BLE001 - the group failed as a whole
                for job in jobs:
                    job.error = error
            _deliver(jobs)
        if connection is not None:
            connection.close()
        self._opened = False

    def _waiting(self) -> Iterator[_Job]:
        """What else waits by now; the order of arrival is kept."""
        for _ in range(_LARGEST_GROUP - 1):
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if job is None:
                self._queue.put(None)  # the end comes after this group
                return
            yield job

    def _run_group(self, connection: _Connection, jobs: list[_Job]) -> None:
        execute = functools.partial(_execute, connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if len(jobs) == 1:
                wrote = jobs[0].run(execute)
            else:
                wrote = True
                for job in jobs:
                    connection.execute("SAVEPOINT job")
                    if not job.run(execute):
                        connection.execute("ROLLBACK TO job")
                    connection.execute("RELEASE job")
            connection.execute("COMMIT" if wrote else "ROLLBACK")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for job in jobs:
            if isinstance(job.error, apsw.Error):
                job.error = _translate(job.error, self._path)

    def _open_writer(self) -> _Connection:
        if self._path != MEMORY:
            check_path(Path(self._path))
        with _translated(self._path):
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            try:
                _refuse_foreign(connection, self._path)
                connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # of a new file; an older one keeps its own
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    run_sync(migrate(self._path, "sqlite"), functools.partial(_execute, connection))
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
            except BaseException:
                connection.close()
                raise
        self._opened = True
        return connection

    # -- the readers --------------------------------------------------------------------------------------------

    def _read(self, operation: Callable[[], Operation[T]]) -> T:
        with _translated(self._path):
            if not self._opened:
                with contextlib.closing(_connect_to_unwritable(self._path)) as connection:
                    return _read_snapshot(connection, operation)
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
                connection.execute("PRAGMA query_only = 1")
                self._local.connection = connection
                self._connections.append(connection)
            return _read_snapshot(connection, operation)

    def _connect(self, flags: int) -> _Connection:
        connection = apsw.Connection(self._path, flags=flags, statementcachesize=_STATEMENTS_KEPT)
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        return cast("_Connection", connection)

    def _close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            readers, self._readers = self._readers, None
        if readers is not None:
            readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()
        if thread is not None:
            self._queue.put(None)
            thread.join()


def _nothing() -> Operation[None]:
    """Open the file, no more."""
    yield "SELECT 1", ()


def _read_snapshot(connection: _Connection, operation: Callable[[], Operation[T]]) -> T:
    connection.execute("BEGIN")  # one snapshot for all statements of the operation
    try:
        return run_sync(operation(), functools.partial(_execute, connection))
    finally:
        connection.execute("COMMIT")


def _connect_to_unwritable(path: str) -> _Connection:
    """Open a file that cannot be written, for one read, leaving nothing beside it for a later writer to trip over."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    if not Path(f"{path}-wal").exists():
        uri += "&immutable=1"
    return cast("_Connection", apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI))


def _execute(connection: _Connection, sql: str, values: tuple[Any, ...]) -> list[Row]:
    # $1, $2, ... are named parameters to SQLite, numbered as they first appear: they appear in order
    return connection.execute(sql, values).fetchall()


def _deliver(jobs: list[_Job]) -> None:
    """Wake each event loop once for all of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver_all, done)


def _deliver_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()


def check_path(path: Path) -> None:
    """Refuse, before anything is touched, a path where no database can be."""
    folder = path.parent
    if path.is_dir():
        raise StoreUrlError(f"{path} is a folder; name a file in it, such as sqlite:///{path}/lango.db")
    if not folder.is_dir():
        raise StoreUrlError(f"the folder {folder} does not exist: create it, or use another path for the store")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise StoreUrlError(f"no right to write in the folder {folder}: change its rights, or use another path")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUrlError(f"no right to read and write {path}: change its rights, or use another path")


def _only_readable(path: str) -> bool:
    """Whether there is a file that cannot be written: reading goes on, and writing begins when it can be written."""
    return os.access(path, os.R_OK) and not os.access(path, os.W_OK)


def _refuse_foreign(connection: _Connection, path: str) -> None:
    tables = {name for [name] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "lango_schema" not in tables:
        raise SchemaError(f"{path} is the database of another program: name another file for the store")


@contextlib.contextmanager
def _translated(path: str) -> Generator[None]:
    try:
        yield
    except LangoError:
        raise
    except apsw.Error as error:
        raise _translate(error, path) from error


def _translate(error: apsw.Error, path: str) -> StoreError:
    """Say what SQLite's error means and what to do."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            told: StoreError = StoreUnavailable(
                f"{path} is locked by another program: close it, or try again", retry_after_s=1.0
            )
        case apsw.NotADBError():
            told = SchemaError(f"{path} is not a SQLite database: name another file for the store")
        case apsw.CorruptError():
            told = StoreUnavailable(f"{path} is damaged ({error}): restore it from a backup")
        case apsw.FullError():
            told = StoreUnavailable(f"the disk that holds {path} is full: make room; nothing was written")
        case apsw.ReadOnlyError():
            told = StoreUnavailable(f"{path} cannot be written: change its rights; reading goes on")
        case apsw.CantOpenError() | apsw.IOError() | apsw.PermissionsError():
            told = StoreUnavailable(f"{path} cannot be read or written ({error}): look at its disk and its rights")
        case apsw.TooBigError():
            told = StoreUnavailable(f"a value is larger than SQLite can store ({error}): store less")
        case _:
            told = StoreError(f"{path}: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told
