"""Commit a PostgreSQL transaction exactly once, also when the answer to COMMIT is lost.

Each writing transaction first stores its number in a row of `commits`, its slot, which no other transaction uses at
the same time. After a lost connection that row shows whether the transaction was committed: then its result is
returned, and it is not run again. The id of the transaction would not do: a restarted server or a promoted replica may
give it to another transaction.
"""

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from msgspec import Struct

from lango.store.engine.database import Operation, Row, SingleStatementWrite, Statement

T = TypeVar("T")

# The server ends a transaction whose client is silent for so long: until then its outcome is unknown, and its locks
# block others. BEGIN, the number and the timeout are one statement, and so one round trip.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;{settings}
SET LOCAL idle_in_transaction_session_timeout = '15s';
INSERT INTO commits (slot, number, used_at) VALUES ('{slot}', {number}, now())
ON CONFLICT (slot) DO UPDATE SET number = excluded.number, used_at = excluded.used_at
"""
# waits for the transaction that holds the slot, if it still runs
_COMMITTED_NUMBER = """
INSERT INTO commits (slot, number, used_at) VALUES ($1, 0, now())
ON CONFLICT (slot) DO UPDATE SET used_at = excluded.used_at RETURNING number
"""
_MANY_ROWS = 500
_LARGE_ROWS = 200_000  # characters: up to these, the event loop may read them
DELETE_OLD_SLOTS = "DELETE FROM commits WHERE used_at < now() - interval '7 days'"


class TransactionSettings:
    """Settings that each transaction makes itself, because a connection pooler gives it any connection of the server.

    Without a pooler they belong to the connection, and cost a transaction nothing.
    """

    def __init__(self, schema: str, timeout_s: float) -> None:
        self.behind_pooler = False
        self._schema = f'SET LOCAL search_path = "{schema}";'
        self._timeout = f"SET LOCAL transaction_timeout = {int(timeout_s * 1000)};"

    def expect_pooler(self) -> None:
        """Make the settings in each transaction from now on."""
        self.behind_pooler = True

    def statements(self, connection: Any) -> str:
        """Return the statements that follow BEGIN."""
        if not self.behind_pooler:
            return ""
        return self._schema + (self._timeout if has_transaction_timeout(connection) else "")

    @asynccontextmanager
    async def in_transaction(self, connection: Any) -> AsyncGenerator[None]:
        """Run statements that need no transaction, except where only a transaction keeps its connection."""
        if not self.behind_pooler:
            yield
            return
        async with connection.transaction():
            await connection.execute(self.statements(connection))
            yield


class Slot(Struct):
    """A row of `commits`, used by one transaction at a time."""

    name: str
    number: int = 0


class ExactlyOnceWrite(Generic[T]):
    """A write that may be attempted on several connections."""

    def __init__(
        self,
        driver: Any,
        free_slots: deque[Slot],
        operation: Callable[[], Operation[T]],
        single_statement: SingleStatementWrite[T] | None,
        *,
        long: bool = False,
        settings: TransactionSettings,
    ) -> None:
        """`long`: without a time limit. A slot whose transaction may still run on the server is not freed."""
        self._long = long
        self._settings = settings
        self._driver = driver
        self._free_slots = free_slots
        self._operation = operation
        self._single_statement = single_statement
        self._unacknowledged: tuple[Slot, T] | None = None
        self._single_statement_unacknowledged = False

    @property
    def outcome_is_unknown(self) -> bool:
        """Whether an attempt without answer may have been committed."""
        return self._unacknowledged is not None or self._single_statement_unacknowledged

    async def attempt(self, connection: Any) -> T:
        """Run the write, unless an earlier attempt was committed."""
        if self._unacknowledged is not None:
            slot, result = self._unacknowledged
            async with self._settings.in_transaction(connection):
                committed = await connection.fetchval(_COMMITTED_NUMBER, slot.name) == slot.number
            self._unacknowledged = None
            self._free_slots.append(slot)
            if committed:
                return result
        if self._single_statement is not None and not self._settings.behind_pooler:
            if await self._run_single_statement(connection, self._single_statement):
                return self._single_statement.result
            self._single_statement = None
        return await self._run_transaction(connection)

    async def _run_single_statement(self, connection: Any, single_statement: SingleStatementWrite[T]) -> bool:
        """Run the single statement; return False if it wrote nothing.

        It writes only where nothing of it is written yet, and the operation finds what it wrote: both by the event's
        id. So it needs no slot.
        """
        self._single_statement_unacknowledged = True
        try:
            taken = await connection.fetchval(str(single_statement.statement), *single_statement.values) is not None
        except self._driver.UniqueViolationError:
            taken = False
        except self._driver.PostgresError as error:
            self._single_statement_unacknowledged = self._may_be_committed(error)
            raise
        self._single_statement_unacknowledged = False
        return taken

    async def _run_transaction(self, connection: Any) -> T:
        try:
            slot = self._free_slots.pop()
        except IndexError:
            slot = Slot(uuid.uuid4().hex)
        slot.number += 1
        settings = self._settings.statements(connection)
        await connection.execute(_BEGIN.format(slot=slot.name, number=slot.number, settings=settings))
        try:
            if self._long:
                await remove_transaction_timeout(connection)
            result = await run_operation(self._operation(), connection)
        except BaseException:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
                self._free_slots.append(slot)
            raise
        self._unacknowledged = slot, result
        try:
            await connection.execute("COMMIT")
        except self._driver.PostgresError as error:
            if not self._may_be_committed(error):
                self._unacknowledged = None
            raise
        self._unacknowledged = None
        self._free_slots.append(slot)
        return result

    def _may_be_committed(self, error: Exception) -> bool:
        """Whether a failed statement may have been committed: the server did not answer, or does not know."""
        driver = self._driver
        lost = driver.PostgresConnectionError, driver.OperatorInterventionError, driver.StatementCompletionUnknownError
        return isinstance(error, lost)


async def remove_transaction_timeout(connection: Any) -> None:
    """Remove the time limit of this transaction."""
    if has_transaction_timeout(connection):
        await connection.execute("SET LOCAL transaction_timeout = 0")


def has_transaction_timeout(connection: Any) -> bool:
    """Whether the server can limit the time of transactions."""
    return connection.get_server_version() >= (17,)


async def run_operation(operation: Operation[T], connection: Any) -> T:
    """Run the statements of an operation on a connection.

    With many or large rows it continues in a thread: it may use those of any of its statements at its end.
    """
    count = size = 0
    try:
        sql, values = next(operation)
        while True:
            rows: list[Row] = await connection.fetch(str(sql), *values)  # the driver refuses subclasses of `str`
            count, size = count + len(rows), size + _size(rows)
            if count > _MANY_ROWS or size > _LARGE_ROWS:
                following, result = await asyncio.to_thread(_next_statement, operation, rows)
                if following is None:
                    return result
                sql, values = following
            else:
                sql, values = operation.send(rows)
    except StopIteration as end:
        return end.value
    finally:
        with contextlib.suppress(ValueError):  # cancelled, and a thread still runs it
            operation.close()


def _next_statement(operation: Operation[T], rows: list[Row]) -> tuple[Statement | None, Any]:
    """Continue an operation with the rows of its statement; return the next one, or None and the result."""
    try:
        return operation.send(rows), None
    except StopIteration as end:  # which no future can hold
        return None, end.value


def _size(rows: list[Row]) -> int:
    return sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
