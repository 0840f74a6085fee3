"""Run operations on one SQLite connection: alone, in a group, or on a read snapshot; translate its errors."""

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

import apsw
from msgspec import Struct, field

from lango.errors import LangoError, SchemaError, StoreDamaged, StoreError, StoreUnavailable
from lango.store.engine.database import (
    LARGE_VALUE,
    LockingRead,
    Operation,
    RollBack,
    Row,
    run_operation,
)
from lango.store.engine.schema import APPLIED, Applied, Migrations, missing_in_schema, upgrade

T = TypeVar("T")

_NO_ROOM = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE)
"""What a quota or a limit on a file's size looks like to SQLite, and a full disk where the log's index must grow."""
_MAX_STATEMENTS = 100  # of an operation on the event loop: a few milliseconds


def upgrade_file(path: str, migrations: Migrations) -> Operation[int]:
    """Upgrade the schema; return the store's random number in the header of its file, which a new store gets here."""
    yield from upgrade(path, migrations)
    [[number]] = yield "PRAGMA application_id", ()
    if not number:
        number = secrets.randbelow(2**31 - 1) + 1
        yield f"PRAGMA application_id = {number}", ()
    return number


def read_snapshot(connection: apsw.Connection, operation: Callable[[], Operation[T]]) -> T:
    """Run an operation that only reads, on one snapshot."""
    execute_on(connection, "BEGIN")  # one snapshot for all statements
    try:
        return run_operation(operation(), functools.partial(execute_on, connection))
    finally:
        if connection.in_transaction:  # unless a disk error has ended it
            execute_on(connection, "COMMIT")


def connect_read_only(path: str) -> apsw.Connection:
    """Open a read-only file for one read, without leaving other files in its folder."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    if not Path(f"{path}-wal").exists():
        uri += "&immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


class TooLarge(Exception):
    """An operation takes too long to run on the event loop."""


def run_small_transaction(connection: apsw.Connection, operation: Callable[[], Operation[T]]) -> T:
    """Run an operation in its own transaction. Raise `TooLarge`, with nothing written, if it is not small."""
    left = _MAX_STATEMENTS

    def execute(sql: str, values: tuple[Any, ...]) -> list[Row]:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLarge
        for value in values:
            if isinstance(value, (str, bytes)) and len(value) > LARGE_VALUE:
                raise TooLarge
        return execute_on(connection, sql, values)

    return run_transaction(connection, operation, execute)


def run_transaction(
    connection: apsw.Connection,
    operation: Callable[[], Operation[T]],
    execute: Callable[[str, tuple[Any, ...]], list[Row]] | None = None,
) -> T:
    """Run an operation of any size in its own transaction."""
    try:
        execute_on(connection, "BEGIN IMMEDIATE")
        result = run_operation(operation(), execute or functools.partial(execute_on, connection))
        execute_on(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            execute_on(connection, "ROLLBACK")
        raise
    return result


def execute_on(connection: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[Row]:
    """Execute one statement."""
    # SQLite numbers $1, $2, ... by first appearance, which is in order
    plain: str = sql.without_lock if type(sql) is LockingRead else sql
    # apsw's types name a type that only Python 3.12 has
    cursor: Any = connection.execute(plain, values)  # pyright: ignore[reportUnknownMemberType]
    return cursor.fetchall()


class WriteJob(Struct, eq=False):
    """An operation in the queue of the writer."""

    operation: Callable[[], Operation[Any]]
    loop: asyncio.AbstractEventLoop | None = None
    future: "asyncio.Future[Any] | None" = None
    result: Any = None
    error: BaseException | None = field(default=None)

    def run(self, execute: Callable[[str, tuple[Any, ...]], list[Row]]) -> bool:
        """Run the operation; return False if its writes must be rolled back."""
        try:
            self.result = run_operation(self.operation(), execute)
        except RollBack as undo:
            self.result = undo.result
            return False
        except Exception as error:  # noqa: BLE001 - raised to the caller
            self.error = error
            return False
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether its caller still waits for it."""
        return self.future is None or not self.future.cancelled()

    def deliver(self) -> None:
        """Deliver the outcome to the caller, in its event loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def run_group(
    connection: apsw.Connection, jobs: list[WriteJob], execute: Callable[[str, tuple[Any, ...]], list[Row]]
) -> Literal[True]:
    """Run the jobs of a group, each behind a savepoint, so that a failure rolls back only one."""
    for job in jobs:
        execute_on(connection, "SAVEPOINT job")
        if not job.run(execute):
            if job.error is not None and not connection.in_transaction:
                raise job.error  # a full disk rolls back the whole group
            execute_on(connection, "ROLLBACK TO job")
        execute_on(connection, "RELEASE job")
    return True


def read_applied(path: str) -> Applied:
    """Return the migrations that a file has, and change nothing."""
    if not Path(path).exists():
        return Applied()
    with contextlib.closing(connect_read_only(path)) as connection:
        is_store = refuse_foreign_database(connection, path)
        return Applied.of(execute_on(connection, APPLIED)) if is_store else Applied()


def refuse_foreign_database(connection: apsw.Connection, path: str) -> bool:
    """Return whether a store was created in a file. Raise `SchemaError` for a database that another program made."""
    tables = {name for [name] in execute_on(connection, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "lango_schema" not in tables:
        raise SchemaError(f"{path} is the database of another program: use another file for the store")
    return bool(tables)


@contextlib.contextmanager
def translated_errors(path: str) -> Generator[None]:
    """Translate SQLite's errors to ours."""
    try:
        yield
    except LangoError:
        raise
    except apsw.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: apsw.Error, path: str) -> StoreError:
    """Translate SQLite's error to ours, with advice; clients read it, so it names the file without its folder."""
    file = Path(path).name
    match error:
        case apsw.BusyError() | apsw.LockedError():
            translated_error: StoreError = StoreUnavailable(
                f"{file} is locked by another program: close it, or try again", retry_after_s=1.0
            )
        case apsw.NotADBError():
            translated_error = SchemaError(f"{file} is not a SQLite database: use another file for the store")
        case apsw.CorruptError():
            translated_error = StoreDamaged(f"{file} is damaged ({error}): restore it from a backup")
        case apsw.FullError():
            translated_error = StoreUnavailable(
                f"the disk that holds {file} is full: free up space; nothing was written", retry_after_s=1.0
            )
        case apsw.ReadOnlyError():
            translated_error = StoreUnavailable(
                f"{file} is read-only: change its permissions or those of its disk; reads still work"
            )
        case apsw.CantOpenError() | apsw.IOError() | apsw.PermissionsError():
            translated_error = StoreUnavailable(
                f"{file} cannot be read or written ({error}): check its disk and its permissions",
                retry_after_s=1.0 if getattr(error, "extendedresult", None) in _NO_ROOM else None,
            )
        case apsw.TooBigError():
            translated_error = StoreUnavailable(f"a value is too large for SQLite ({error}): store a smaller one")
        case apsw.SQLError() if str(error).startswith(("no such column", "no such table")):
            translated_error = SchemaError(missing_in_schema(file, str(error)))
        case _:
            translated_error = StoreError(f"{file}: {type(error).__name__}: {error}")
    translated_error.__cause__ = error
    return translated_error


def take_queued(queue: "SimpleQueue[WriteJob | None]", limit: int) -> Iterator[WriteJob]:
    """Return up to `limit` queued jobs, in order."""
    for _ in range(limit):
        try:
            job = queue.get_nowait()
        except Empty:
            return
        if job is None:
            queue.put(None)  # close after this group
            return
        yield job


def deliver_results(jobs: list[WriteJob]) -> None:
    """Wake each event loop once for all of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteJob]] = {}
    for job in jobs:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed
            loop.call_soon_threadsafe(_deliver_in_loop, done)


def _deliver_in_loop(jobs: list[WriteJob]) -> None:
    for job in jobs:
        job.deliver()
