"""Statements on one connection of SQLite: an operation alone, one of a group, or one that only reads."""

import functools
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import apsw

from lango.errors import SchemaError
from lango.store.engine.database import Lock, Operation, Row, Write, run_sync
from lango.store.sqlite_jobs import Job

T = TypeVar("T")


class Connection(Protocol):
    """The little of `apsw.Connection` that is used here, with types."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, statements: str, bindings: tuple[Any, ...] = ()) -> "Cursor":
        """Execute a statement."""
        ...

    def cursor(self) -> "Cursor":
        """Make a cursor, which keeps its statement prepared."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def status(self, op: int) -> tuple[int, int]:
        """Read one of SQLite's counters, and its highest value."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long a lock of another connection is waited for."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Cursor(Iterable[Row], Protocol):
    """A statement under way."""

    def execute(self, statements: str, bindings: tuple[Any, ...] = ()) -> "Cursor":
        """Execute a statement."""
        ...

    def fetchall(self) -> list[Row]:
        """Return the rows that are left."""
        ...


def store_number(connection: Connection) -> int:
    """Return the store's own number, which its file carries in its header; a store without one gets one."""
    [[number]] = connection.execute("PRAGMA application_id").fetchall()
    if not number:
        number = secrets.randbelow(2**31 - 1) + 1
        connection.execute(f"PRAGMA application_id = {number}")
    return number


def read_snapshot(connection: Connection, operation: Callable[[], Operation[T]]) -> T:
    """Run an operation that only reads, all of it on one snapshot."""
    connection.execute("BEGIN")  # one snapshot for all statements of the operation
    try:
        return run_sync(operation(), functools.partial(execute_on, connection))
    finally:
        if connection.in_transaction:  # or an error of the disk has ended it
            connection.execute("COMMIT")


def connect_to_unwritable(path: str) -> Connection:
    """Open a file that cannot be written, for one read, leaving nothing beside it for a later writer to trip over."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    if not Path(f"{path}-wal").exists():
        uri += "&immutable=1"
    return cast("Connection", apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI))


def run_alone(connection: Connection, operation: Callable[[], Operation[T]]) -> T:
    """Run an operation in a transaction of its own."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = run_sync(operation(), functools.partial(execute_on, connection))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def execute_on(connection: Connection, sql: str, values: tuple[Any, ...]) -> list[Row]:
    """Execute one statement."""
    # $1, $2, ... are named parameters to SQLite, numbered as they first appear: they appear in order
    if type(sql) is Write:
        return _write(connection, sql, values)
    return connection.execute(sql.plain if type(sql) is Lock else sql, values).fetchall()


def _write(connection: Connection, write: Write, values: tuple[Any, ...]) -> list[Row]:
    if write.read and write.deletes:
        if rows := connection.execute(write.read, values[write.where]).fetchall():
            connection.execute(write.plain, values)
        return rows
    connection.execute(write.plain, values)
    if not connection.changes():
        return []
    return connection.execute(write.read, values[write.where]).fetchall() if write.read else [(1,)]


def run_each(
    connection: Connection, jobs: list[Job], execute: Callable[[str, tuple[Any, ...]], list[Row]]
) -> Literal[True]:
    """Run the jobs of a group, so that one that fails takes back only itself."""
    for job in jobs:
        connection.execute("SAVEPOINT job")
        if not job.run(execute):
            if job.error is not None and not connection.in_transaction:
                raise job.error  # a full disk takes back all of the group
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
    return True


def refuse_foreign(connection: Connection, path: str) -> None:
    """Raise `SchemaError` for a database that another program made."""
    tables = {name for [name] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "lango_schema" not in tables:
        raise SchemaError(f"{path} is the database of another program: name another file for the store")
