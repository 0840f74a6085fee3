"""Run operations on PostgreSQL: a pool per event loop, a transaction per operation, retried if a connection is lost."""

import asyncio
import contextlib
import importlib
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from lango.errors import (
    LangoError,
    MissingDependency,
    OutcomeUnknown,
    SchemaError,
    StoreError,
    StoreUnavailable,
    StoreUrlError,
)
from lango.store.engine.changes import Subscription, Subscriptions
from lango.store.engine.database import Dialect, Operation, RollBack, SingleStatementWrite
from lango.store.engine.outages import DEFAULT_WAIT_S, Outages
from lango.store.engine.postgres.notifications import Notifications, channel_name
from lango.store.engine.postgres.upgrade import connected, migrate, read_applied
from lango.store.engine.postgres.writes import (
    DELETE_OLD_SLOTS,
    ExactlyOnceWrite,
    Slot,
    TransactionSettings,
    has_transaction_timeout,
    run_operation,
)
from lango.store.engine.schema import Applied, Migrations, load_migrations, missing_in_schema
from lango.threads import UserShares

T = TypeVar("T")

_log = logging.getLogger("lango.store")

DEFAULT_SCHEMA = "lango"
_POOL_SIZE = 10
_CONNECT_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
_SHORT_WAIT_S = 8.0
_IDLE_IN_TRANSACTION_S = 10.0
_TRANSACTION_S = 30.0
_LONGEST_SCHEMA = 63
_SERVER_PID = "SELECT pg_backend_pid()"
_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean"


class PostgresDatabase:
    """A PostgreSQL database; the tables are in a schema of their own, `?schema=` in the URL or `lango`."""

    dialect: Dialect = "postgres"

    def __init__(self, url: str, *, wait_s: float = DEFAULT_WAIT_S, migrations: Migrations | None = None) -> None:
        try:
            self._driver: Any = importlib.import_module("asyncpg")  # it ships no types
        except ImportError as error:
            raise MissingDependency(
                'PostgreSQL needs the driver asyncpg: run `pip install "lango-adk[postgres]"`'
            ) from error
        self._dsn, self._schema, self._server_name = _parse_url(url)
        self._migrations = migrations or load_migrations()
        self._pools: dict[asyncio.AbstractEventLoop, asyncio.Task[tuple[Any, AsyncGenerator[None]]]] = {}
        self._lock = threading.Lock()
        self._was_reached = False
        self._free_slots = deque[Slot]()
        self._settings = TransactionSettings(self._schema, _TRANSACTION_S)
        self._read_shares = UserShares(_POOL_SIZE * 3 // 4)
        self.outages = Outages(wait_s, _SHORT_WAIT_S)
        self._subscriptions = Subscriptions()
        self._notifications: dict[asyncio.AbstractEventLoop, Notifications] = {}

    async def write(
        self,
        operation: Callable[[], Operation[T]],
        *,
        long: bool = False,
        single_statement: Callable[[], SingleStatementWrite[T] | None] | None = None,
    ) -> T:
        """Run an operation in a transaction, or its single statement in one round trip."""
        short = single_statement() if single_statement is not None else None
        write = ExactlyOnceWrite(self._driver, self._free_slots, operation, short, long=long, settings=self._settings)
        try:
            return await self._with_connection(write.attempt, writes=True)
        except StoreError as error:
            if not write.outcome_is_unknown:
                raise
            raise OutcomeUnknown(
                f"{self._named}: the connection was lost during a write, and its outcome is unknown ({error}): "
                "check before you send it again, or use an idempotency key",
                retry_after_s=1.0,
            ) from error

    @property
    def _named(self) -> str:
        """The name of the database in errors, which clients read: without its address once it was reached."""
        return "PostgreSQL" if self._was_reached else self._server_name

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation on one snapshot."""

        async def read(connection: Any) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                if settings := self._settings.statements(connection):
                    await connection.execute(settings)
                return await run_operation(operation(), connection)

        async with self._read_shares.place():
            return await self._with_connection(read)

    async def purge(self) -> None:
        """Do nothing: the server's vacuum removes deleted rows."""

    async def probe(self) -> None:
        """Raise `StoreError` if the server does not answer, or takes no writes."""

        def is_read_only() -> Operation[bool]:
            return (yield _READ_ONLY, ())[0][0]

        if await self.read(is_read_only):
            raise StoreUnavailable(_read_only_message(self._named), retry_after_s=1.0)

    async def applied(self) -> Applied:
        """Return the migrations that the schema has, without an upgrade."""
        with _translated_errors(self._driver, self._named):
            async with connected(self._connect) as connection, connection.transaction(readonly=True):
                return await read_applied(connection, self._schema)

    def notify_changed(self, key: int, *, elsewhere: bool) -> None:
        """Notify the subscribers of a session."""
        self._subscriptions.notify(key)
        if elsewhere:
            self._notifications_of_loop().send(key)

    def subscribe(self, key: int, *, every_commit: bool = True) -> contextlib.AbstractAsyncContextManager[Subscription]:
        """Subscribe to changes of a session."""
        del every_commit  # other processes notify of what they change
        return self._notifications_of_loop().subscribe(key, listen=not self._settings.behind_pooler)

    def _notifications_of_loop(self) -> Notifications:
        """Return the notifications of this event loop, which have a connection of it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for closed_loop in [other for other in self._notifications if other.is_closed()]:
                del self._notifications[closed_loop]
            if loop not in self._notifications:
                channel = channel_name(self._schema)
                self._notifications[loop] = Notifications(channel, self._subscriptions, self._connect, self._execute)
            return self._notifications[loop]

    async def _connect(self) -> Any:
        """Open a connection outside the pool; it prepares no statements, because a pooler may serve it."""
        return await self._driver.connect(
            self._dsn,
            timeout=_CONNECT_TIMEOUT_S,
            statement_cache_size=0,
            server_settings={"application_name": "lango"},
        )

    async def _execute(self, sql: str, *values: object) -> None:
        async def execute(connection: Any) -> None:
            async with self._settings.in_transaction(connection):
                await connection.execute(sql, *values)

        await self._with_connection(execute, writes=True)

    async def close(self) -> None:
        """Close the pool of this event loop, and those of loops that run elsewhere."""
        notifications = self._notifications.pop(asyncio.get_running_loop(), None)
        if notifications is not None:
            await notifications.close()
        with self._lock:
            pools, self._pools = self._pools, {}
        here = asyncio.get_running_loop()
        for loop, task in pools.items():
            with contextlib.suppress(Exception):
                if loop is here:
                    _, end = await task
                    await end.aclose()
                elif task.done():
                    pool, _ = task.result()
                    loop.call_soon_threadsafe(pool.terminate)

    async def _with_connection(self, use: Callable[[Any], Awaitable[T]], *, writes: bool = False) -> T:
        """Run work on a connection, and again on another if it is lost, until the time to wait is over."""

        async def attempt() -> T:
            with _translated_errors(self._driver, self._named):
                pool = await self._pool()
                async with pool.acquire() as connection:
                    return await use(connection)

        if not self._was_reached:  # never reached: rather a wrong URL than a restart
            with _translated_errors(self._driver, self._named):
                await self._pool()
        try:
            return await self.outages.retry(attempt, writes=writes)
        except RollBack as undo:
            return undo.result

    async def _pool(self) -> Any:
        """Return the pool of this event loop; ADK's synchronous `Runner.run` makes a new loop each time."""
        loop = asyncio.get_running_loop()
        task = self._pools.get(loop)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            with self._lock:
                for closed_loop in [other for other in self._pools if other.is_closed()]:
                    del self._pools[closed_loop]
                task = self._pools[loop] = loop.create_task(self._open())
        pool, _ = await asyncio.shield(task)
        return pool

    async def _open(self) -> tuple[Any, AsyncGenerator[None]]:
        try:
            return await self._open_pool()
        except _PoolerFound:
            _log.info("a connection pooler is in front of PostgreSQL: polling for changes of other processes")
            self._settings.expect_pooler()
            return await self._open_pool()

    async def _open_pool(self) -> tuple[Any, AsyncGenerator[None]]:
        """Open a pool and upgrade the schema. Raise `_PoolerFound` if settings would not stay with a connection."""
        of_connections: dict[str, Any] = {
            "init": self._set_up_connection,
            "server_settings": {
                "search_path": f'"{self._schema}"',  # quoted: capitals would be folded
                "application_name": "lango",
                # a paused process must not hold its locks for long
                "idle_in_transaction_session_timeout": str(int(_IDLE_IN_TRANSACTION_S * 1000)),
            },
        }
        if self._settings.behind_pooler:
            of_connections = {"statement_cache_size": 0, "server_settings": {"application_name": "lango"}}
        pool = await self._driver.create_pool(
            self._dsn,
            min_size=0,
            max_size=_POOL_SIZE,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=_COMMAND_TIMEOUT_S,
            reset=_no_reset,
            **of_connections,
        )
        try:
            async with pool.acquire() as connection, self._settings.in_transaction(connection):
                applied = await read_applied(connection, self._schema)
            if self._migrations.due(applied, self._server_name):
                await migrate(self._driver, self._connect, self._server_name, self._schema, self._migrations)
            async with pool.acquire() as connection, self._settings.in_transaction(connection):
                await connection.execute(DELETE_OLD_SLOTS)
            end = _close_with_event_loop(pool)
            await anext(end)
        except ValueError as error:  # its message may contain parts of the URL
            pool.terminate()
            raise StoreUrlError(
                f"{self._server_name}: the driver rejected the store's URL ({type(error).__name__}): "
                "check its host and its query parameters"
            ) from error
        except BaseException as error:
            pool.terminate()
            if not self._settings.behind_pooler and _shows_pooler(self._driver, error):
                raise _PoolerFound from error
            raise
        self._was_reached = True
        return pool, end

    async def _set_up_connection(self, connection: Any) -> None:
        """Bound the time of transactions, where the server can. Raise `_PoolerFound` at the first connection.

        A process that stands still between two steps of a statement is not idle to the server, and would keep its
        locks. A pooler names its own process as the one that serves the connection.
        """
        if not self._was_reached and await connection.fetchval(_SERVER_PID) != connection.get_server_pid():
            raise _PoolerFound
        if has_transaction_timeout(connection):
            await connection.execute(f"SET transaction_timeout = {int(_TRANSACTION_S * 1000)}")


class _PoolerFound(Exception):
    """A connection pooler is between this process and the server, and may give each transaction another connection."""


def _shows_pooler(driver: Any, error: BaseException) -> bool:
    """Whether a pooler refused the settings of a connection, or lost a prepared statement."""
    if isinstance(error, driver.ProtocolViolationError):
        return "startup parameter" in str(error)
    return isinstance(error, driver.InvalidSQLStatementNameError | driver.DuplicatePreparedStatementError)


async def _no_reset(_: Any) -> None:
    """Skip the reset of a connection: no operation changes its settings, and a reset takes a round trip."""


async def _close_with_event_loop(pool: Any) -> AsyncGenerator[None]:
    """Close the pool when its event loop ends, at the latest: a loop finalizes its asynchronous generators."""
    try:
        yield
    finally:
        try:
            await asyncio.wait_for(pool.close(), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            pool.terminate()


def _parse_url(url: str) -> tuple[str, str, str]:
    """Split a URL into the URL of the driver, the schema, and a name without password for messages."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    schema = query.pop("schema", DEFAULT_SCHEMA)
    if not schema.replace("_", "a").isalnum() or not schema.isascii():
        raise StoreUrlError(f"the schema {schema!r} in the store's URL may contain only letters, digits and _")
    if len(schema) > _LONGEST_SCHEMA:  # PostgreSQL would truncate it, and two stores could share a schema
        raise StoreUrlError(f"the schema in the store's URL has more than {_LONGEST_SCHEMA} characters")
    if schema.startswith("pg_") or schema == "information_schema":
        raise StoreUrlError(f"the schema {schema!r} in the store's URL is reserved by PostgreSQL: use another")
    rest = parts.path + parts.fragment + ("" if "@" in parts.netloc else parts.query)
    if "@" in rest or parts.fragment:  # the rest of a password, which must not be shown
        raise StoreUrlError(
            "the store's URL cannot be read: in a password, write / as %2F, ? as %3F, # as %23 and @ as %40"
        )
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # its message may contain a part of the password
        raise StoreUrlError(
            "the port in the store's URL is not a number; in a password, write / as %2F and : as %3A"
        ) from None
    place = f"PostgreSQL at {parts.hostname or query.get('host', 'the local socket')}{port}{parts.path}"
    return urlunsplit(parts._replace(scheme="postgresql", query=urlencode(query))), schema, place


@contextlib.contextmanager
def _translated_errors(driver: Any, place: str) -> Generator[None]:
    try:
        yield
    except (LangoError, RollBack):
        raise
    except (
        driver.PostgresError,
        driver.InterfaceError,
        driver.InternalClientError,  # raised if the connection is lost at certain points
        OSError,
        TimeoutError,
    ) as error:
        raise _translate_error(driver, error, place) from error


def _translate_error(driver: Any, error: Exception, place: str) -> StoreError:
    """Translate the driver's error to ours, with advice."""
    match error:
        case driver.InvalidPasswordError() | driver.InvalidAuthorizationSpecificationError():
            return StoreUnavailable(f"{place} does not accept this user and password: check the store's URL")
        case driver.InvalidCatalogNameError():
            return StoreUnavailable(f"{place}: there is no such database: create it, or check the store's URL")
        case driver.InsufficientPrivilegeError():
            return StoreUnavailable(
                f"{place}: this user lacks a privilege ({_said(error)}): grant it, or use another user"
            )
        case driver.DiskFullError():
            return StoreUnavailable(f"{place} is out of space ({_said(error)}); nothing was written", retry_after_s=1.0)
        case driver.OutOfMemoryError() | driver.ProgramLimitExceededError():
            return StoreUnavailable(f"{place} is out of space ({_said(error)}); nothing was written")
        case driver.ReadOnlySQLTransactionError():
            # it was writable before: a failover is under way
            return StoreUnavailable(_read_only_message(place), retry_after_s=1.0)
        case (
            driver.PostgresConnectionError()
            | driver.AdminShutdownError()
            | driver.CrashShutdownError()
            | driver.CannotConnectNowError()
            | driver.TooManyConnectionsError()
            | driver.SerializationError()
            | driver.DeadlockDetectedError()
            | driver.StatementCompletionUnknownError()
            | driver.IdleInTransactionSessionTimeoutError()
            | driver.TransactionTimeoutError()
            | driver.QueryCanceledError()  # a statement_timeout of the server, or an administrator
            | driver.LockNotAvailableError()
            | driver.InterfaceError()
            | driver.InternalClientError()
            | OSError()
            | TimeoutError()
        ):
            return StoreUnavailable(
                f"{place} cannot be reached, or does not answer in time ({type(error).__name__}): is it running?",
                retry_after_s=1.0,
            )
        case driver.UndefinedColumnError() | driver.UndefinedTableError():
            return SchemaError(missing_in_schema(place, _said(error)))
        case _:
            return StoreError(f"{place}: {type(error).__name__}: {_said(error)}")


def _read_only_message(place: str) -> str:
    return f"{place} is read-only: point the store's URL at the primary"


def _said(error: Exception) -> str:
    """Return the server's message without its details, which contain values of rows."""
    return str(error).partition("\n")[0]
