"""Define operations, the generators of SQL statements that a database runs in one transaction.

An operation yields statements and is sent their rows. It is written once for both databases and does not know threads,
connections or transactions; a `Database` of `lango.store.engine.urls` runs it, and runs it again after a lost
connection: it must have no effect other than its statements. SQL is one text for both: `$1` parameters that appear in
order, `ON CONFLICT`, `RETURNING`.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

from msgspec import Struct

T = TypeVar("T")

Row = Sequence[Any]
Statement = tuple[str, tuple[Any, ...]]
Operation = Generator[Statement, list[Row], T]
Dialect = Literal["sqlite", "postgres"]
"""For the few operations that differ between the databases."""
LARGEST = 2**62
"""A bound above all turns, sequence numbers and event ids."""
LARGE_VALUE = 65_536
"""Characters or bytes. A longer value is not encoded or written on the event loop: others would wait for it."""


class LockingRead(str):
    """A read that locks its rows until the transaction ends, for sharing or for an update.

    With SKIP LOCKED it leaves out rows that another transaction has locked. On SQLite it is a plain read: there is one
    writer at a time.
    """

    without_lock: str

    def __new__(cls, plain: str, mode: Literal["SHARE", "UPDATE", "UPDATE SKIP LOCKED"]) -> Self:
        """Create one from the plain read."""
        made = super().__new__(cls, f"{plain} FOR {mode}")
        made.without_lock = plain
        return made


class SingleStatement(str):
    """A statement that is a whole transaction, or writes nothing.

    On PostgreSQL it returns a row if it wrote. On SQLite it is an insert into a temporary view `name`, whose trigger
    writes, or fails if there is nothing to write.
    """

    insert: str
    create_trigger: tuple[str, str]

    def __new__(cls, name: str, columns: Iterable[str], *, sqlite: str, postgres: str) -> Self:
        """Create one from the body of the trigger, and from the statement of PostgreSQL."""
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
    """A statement that may replace an operation, with its values, and the result if it wrote."""

    statement: SingleStatement
    values: tuple[Any, ...]
    result: T


class RollBack(Exception):
    """Raised by an operation to roll back its writes and return `result` to the caller."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def ping() -> Operation[None]:
    """Run a statement without effect."""
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
