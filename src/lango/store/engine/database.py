"""How operations meet a database.

An operation is a generator that yields statements and is sent their rows. It is written once, holds all the logic, and
knows nothing of threads, connections or transactions; a `Database` runs it. SQL is one text for both: `$1` parameters
that appear in order, `ON CONFLICT`, `RETURNING`.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from msgspec import Struct

from lango.store.engine.changes import ChangeSubscription
from lango.store.engine.outages import Outages

T = TypeVar("T")

Row = Sequence[Any]
Statement = tuple[str, tuple[Any, ...]]
Operation = Generator[Statement, list[Row], T]
Dialect = Literal["sqlite", "postgres"]
"""For the few operations that need what only one of the databases knows."""
LARGEST = 2**62
"""A bound for numbers that excludes none."""


class ReturningWrite(str):
    """A write of one row with `RETURNING`, in the spelling that each database runs fastest.

    PostgreSQL takes it as it is. SQLite would gather what is returned in a table of its own, which takes longer than
    the write itself: it runs `plain`, and `read` beside it, on the values of `where`. What is deleted is read before.
    """

    without_returning: str
    read_back: str | None
    read_back_values: slice

    def __new__(cls, plain: str, returning: str, read: str | None = None, *, where: slice = slice(None)) -> Self:
        """Make one; without `read`, SQLite only tells that a row was written."""
        made = super().__new__(cls, f"{plain} RETURNING {returning}")
        made.without_returning, made.read_back_values = plain, where
        made.read_back = read and f"SELECT {returning} {read}"
        return made

    @cached_property
    def is_delete(self) -> bool:
        """Whether the row is gone afterwards."""
        return self.lstrip().startswith("DELETE")


class LockingRead(str):
    """A read that keeps its row as it is until the transaction ends: shared, or for this transaction alone.

    SQLite takes it as a plain read: it has one writer at a time.
    """

    without_lock: str

    def __new__(cls, plain: str, mode: Literal["SHARE", "UPDATE"]) -> Self:
        """Make one from the read."""
        made = super().__new__(cls, f"{plain} FOR {mode}")
        made.without_lock = plain
        return made


class SingleStatement(str):
    """One statement that is all of a transaction, or does nothing at all. On PostgreSQL it returns a row if it did.

    On SQLite it is an insert into a view of its own, `name`, whose trigger does the work: that fails where there is
    nothing to be done. View and trigger belong to a connection; `prepare` makes them.
    """

    insert: str
    create_trigger: tuple[str, str]

    def __new__(cls, name: str, columns: Iterable[str], *, sqlite: str, postgres: str) -> Self:
        """Make one from the body of the trigger, and from what PostgreSQL runs."""
        made = super().__new__(cls, postgres)
        names = [*columns]
        numbers = ", ".join(f"${number}" for number, _ in enumerate(names, 1))
        made.insert = f"INSERT INTO {name} VALUES ({numbers})"  # noqa: S608 - constants
        made.create_trigger = (
            f"CREATE TEMP VIEW IF NOT EXISTS {name} AS SELECT {', '.join(f'NULL AS {column}' for column in names)}",
            f"CREATE TEMP TRIGGER IF NOT EXISTS {name}_trigger INSTEAD OF INSERT ON {name} BEGIN {sqlite} END",
        )
        return made


class SingleStatementWrite(Struct, Generic[T]):
    """What does the same as an operation in the ordinary case, and nothing in any other."""

    statement: SingleStatement
    values: tuple[Any, ...]
    result: T


class RollBack(Exception):
    """Raised by an operation: take back what it wrote, and give `result` to the caller all the same."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Database(Protocol):
    """One database, safe to use from any task, thread and event loop."""

    outages: Outages

    @property
    def dialect(self) -> Dialect:
        """What kind it is."""
        ...

    async def write(
        self,
        operation: Callable[[], Operation[T]],
        *,
        long: bool = False,
        shortcut: Callable[[], SingleStatementWrite[T] | None] | None = None,
    ) -> T:
        """Run an operation in one transaction: all of it, once, or nothing.

        One that a lost connection kept from being committed is run again, so it must have no effect beside its
        statements. Raises `OutcomeUnknown` where it could not be found out in time whether it was committed.

        `long`: it takes more than a moment, and must not hold the event loop up. `shortcut` is tried first, where that
        saves time.
        """
        ...

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that only reads, without waiting for writers."""
        ...

    async def purge(self) -> None:
        """Let no file hold any longer what was deleted, as far as that is ours to do."""
        ...

    async def probe(self) -> None:
        """Raise `StoreError` where the database cannot be used."""
        ...

    def notify_changed(self, key: int, *, elsewhere: bool) -> None:
        """Wake those who wait for changes of a session: in this process at once, with `elsewhere` in others soon."""
        ...

    def subscribe(self, key: int) -> AbstractAsyncContextManager[ChangeSubscription]:
        """Subscribe to changes of a session that are announced, and maybe to others, until the block ends."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        ...


def ping() -> Operation[None]:
    """Wait for an answer of the database."""
    yield "SELECT 1", ()


def run_operation(operation: Operation[T], execute: Callable[[str, tuple[Any, ...]], list[Row]]) -> T:
    """Run an operation to its end with a function that executes one statement."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(execute(*statement))
    except StopIteration as end:
        return end.value
    finally:
        operation.close()
