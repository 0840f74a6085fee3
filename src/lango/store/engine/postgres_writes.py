"""Writes to PostgreSQL that take effect exactly once, also where the answer to a COMMIT is lost.

Each transaction that writes begins by storing its own number in a row of `commits`, its slot, which no other
transaction uses meanwhile. After a lost connection that row says whether the transaction was committed: then its result
is returned, and it is not run again. A row is used, and not the transaction's own id, because a server that crashed, or
a replica that took its place, may give the same id to another transaction.
"""

import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from lango.store.engine.database import Operation, Row, Shortcut

T = TypeVar("T")

# The server ends a transaction whose client is silent for so long: until then, nobody can know how it ends, and its
# locks keep others waiting. One statement is one round trip: beginning with a number costs no more of them.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = '15s';
INSERT INTO commits (slot, number, used_at) VALUES ('{slot}', {number}, now())
ON CONFLICT (slot) DO UPDATE SET number = excluded.number, used_at = excluded.used_at
"""
# waits for the transaction that holds the slot, if it still runs
_NUMBER = """
INSERT INTO commits (slot, number, used_at) VALUES ($1, 0, now())
ON CONFLICT (slot) DO UPDATE SET used_at = excluded.used_at RETURNING number
"""
FORGET_OLD_SLOTS = "DELETE FROM commits WHERE used_at < now() - interval '7 days'"


class Slot(Struct):
    """A row of `commits`: it belongs to one transaction at a time."""

    name: str
    number: int = 0


class Slots:
    """The slots of this process that are free. Safe from any thread."""

    def __init__(self) -> None:
        self._free: list[Slot] = []

    def take(self) -> Slot:
        """Return a slot with a new number."""
        try:
            slot = self._free.pop()
        except IndexError:
            slot = Slot(uuid.uuid4().hex)
        slot.number += 1
        return slot

    def put_back(self, slot: Slot) -> None:
        """Free a slot whose transaction is over; one that may still run on the server is not used again."""
        self._free.append(slot)


class ExactlyOnce(Generic[T]):
    """One write, tried on as many connections as it takes."""

    def __init__(
        self,
        driver: Any,
        slots: Slots,
        operation: Callable[[], Operation[T]],
        shortcut: Shortcut[T] | None,
        *,
        long: bool = False,
    ) -> None:
        """`long`: it may take as long as it needs."""
        self._long = long
        self._driver = driver
        self._slots = slots
        self._operation = operation
        self._shortcut = shortcut
        self._unanswered: tuple[Slot, T] | None = None
        self._shortcut_unanswered = False

    @property
    def unknown(self) -> bool:
        """Whether it may have been written by an attempt that got no answer."""
        return self._unanswered is not None or self._shortcut_unanswered

    async def attempt(self, connection: Any) -> T:
        """Write, unless an earlier attempt did."""
        if self._unanswered is not None:
            slot, result = self._unanswered
            committed = await connection.fetchval(_NUMBER, slot.name) == slot.number
            self._unanswered = None
            self._slots.put_back(slot)
            if committed:
                return result
        if self._shortcut is not None:
            if await self._take(connection, self._shortcut):
                return self._shortcut.result
            self._shortcut = None
        return await self._transact(connection)

    async def _take(self, connection: Any, shortcut: Shortcut[T]) -> bool:
        """Run the shortcut; False: it is not the case for it.

        It writes only where nothing of it is written yet, and the operation finds what it wrote: both by the event's
        id. So it needs no slot.
        """
        self._shortcut_unanswered = True
        try:
            taken = await connection.fetchval(str(shortcut.statement), *shortcut.values) is not None
        except self._driver.UniqueViolationError:
            taken = False
        except self._driver.PostgresError as error:
            self._shortcut_unanswered = self._may_be_written(error)
            raise
        self._shortcut_unanswered = False
        return taken

    async def _transact(self, connection: Any) -> T:
        slot = self._slots.take()
        await connection.execute(_BEGIN.format(slot=slot.name, number=slot.number))
        try:
            if self._long:
                await unbounded(connection)
            result = await run(self._operation(), connection)
        except BaseException:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
                self._slots.put_back(slot)
            raise
        self._unanswered = slot, result
        try:
            await connection.execute("COMMIT")
        except self._driver.PostgresError as error:
            if not self._may_be_written(error):
                self._unanswered = None
            raise
        self._unanswered = None
        self._slots.put_back(slot)
        return result

    def _may_be_written(self, error: Exception) -> bool:
        """Whether a statement that failed may have been committed: the server did not answer, or does not know."""
        driver = self._driver
        lost = driver.PostgresConnectionError, driver.OperatorInterventionError, driver.StatementCompletionUnknownError
        return isinstance(error, lost)


async def unbounded(connection: Any) -> None:
    """Let this one transaction take as long as it needs."""
    if connection.get_server_version() >= (17,):
        await connection.execute("SET LOCAL transaction_timeout = 0")


async def run(operation: Operation[T], connection: Any) -> T:
    """Run the statements of an operation on a connection."""
    try:
        sql, values = next(operation)
        while True:
            rows: list[Row] = await connection.fetch(str(sql), *values)  # the driver takes no kind of `str`
            sql, values = operation.send(rows)
    except StopIteration as end:
        return end.value
    finally:
        operation.close()
