"""Upgrade the schema of a PostgreSQL while other processes read and write.

The statements of a migration go to the server as one text, a whole transaction, so its locks last only as long as the
server works, even if this process is paused. Everyone queues behind a lock that is waited for: after a second the
migration gives way, and tries again. An index on an existing table is built CONCURRENTLY, outside of a transaction.
"""

import asyncio
import logging
import re
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from lango.errors import StoreUnavailable
from lango.store.engine.postgres.writes import remove_transaction_timeout
from lango.store.engine.schema import APPLIED, CREATE_TABLE, Applied, Migration, Migrations

_log = logging.getLogger("lango.store")

_ATTEMPTS = 60
_PAUSE_S = 1.0
_POLL_S = 0.1
_CLOSE_TIMEOUT_S = 5.0
_HAS_SCHEMA = "SELECT to_regnamespace($1) IS NOT NULL"
_HAS_TABLE = "SELECT to_regclass($1) IS NOT NULL"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
_BUILD = re.compile(r"(CREATE INDEX CONCURRENTLY )(\w+)( ON )(\w+ .*)", re.DOTALL)

Connect = Callable[[], Awaitable[Any]]


async def read_applied(connection: Any, schema: str) -> Applied:
    """Return the migrations that a schema has, without a lock: a role that may only read rows is enough."""
    if not await connection.fetchval(_HAS_TABLE, f'"{schema}".lango_schema'):
        return Applied()
    return Applied.of(await connection.fetch(APPLIED.replace("lango_schema", f'"{schema}".lango_schema')))


async def migrate(driver: Any, connect: Connect, database_name: str, schema: str, migrations: Migrations) -> None:
    """Run the migrations that are due, one process at a time."""
    async with connected(connect) as guard, connected(connect) as connection:
        await _lock(guard, schema)
        if not await connection.fetchval(_HAS_TABLE, f'"{schema}".lango_schema'):
            if not await connection.fetchval(_HAS_SCHEMA, f'"{schema}"'):
                await guard.execute(f'CREATE SCHEMA "{schema}"')
            await guard.execute(CREATE_TABLE.replace("lango_schema", f'"{schema}".lango_schema'))
            await guard.execute("COMMIT")
            await _lock(guard, schema)
        for migration in migrations.due(await read_applied(connection, schema), database_name):
            await _run_patiently(driver, connection, schema, migration)


async def _lock(guard: Any, schema: str) -> None:
    """Take the lock of a schema for a transaction, which keeps its connection also behind a pooler.

    Building an index waits for every snapshot, so neither the process that waits for the lock nor the one that has it
    may keep one: each attempt is a transaction, and the last statement leaves no portal behind.
    """
    while True:
        await guard.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        if await guard.fetchval(_TRY_LOCK, zlib.crc32(schema.encode())):
            break
        await guard.execute("ROLLBACK")
        await asyncio.sleep(_POLL_S)
    await remove_transaction_timeout(guard)
    await guard.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


async def _run_patiently(driver: Any, connection: Any, schema: str, migration: Migration) -> None:
    for _ in range(_ATTEMPTS):
        try:
            await _run(connection, schema, migration)
        except driver.UniqueViolationError:  # a process that was killed: the server has finished its transaction
            await connection.execute("ROLLBACK")
            return
        except (driver.LockNotAvailableError, driver.DeadlockDetectedError):
            await connection.execute("ROLLBACK")
            _log.info("%s waits for a table that is in use: trying again", migration.file_name)
            await asyncio.sleep(_PAUSE_S)
        else:
            return
    raise StoreUnavailable(f"{migration.file_name} cannot run: end the long transaction that uses its table, and retry")


async def _run(connection: Any, schema: str, migration: Migration) -> None:
    statements = migration.for_dialect("postgres")
    if built := _BUILD.fullmatch("".join(statements)):
        # an attempt that was interrupted has left an index that is not valid
        await connection.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{schema}".{built[2]}')
        await connection.execute(f'{built[1]}{built[2]}{built[3]}"{schema}".{built[4]}')
        statements = []
    settings = f"SET LOCAL search_path = \"{schema}\"; SET LOCAL lock_timeout = '1s'"
    await connection.execute(";\n".join(["BEGIN", settings, migration.record, *statements, "COMMIT"]))


@asynccontextmanager
async def connected(connect: Connect) -> AsyncGenerator[Any]:
    """Open a connection for the body."""
    connection = await connect()
    try:
        yield connection
    finally:
        await connection.close(timeout=_CLOSE_TIMEOUT_S)
