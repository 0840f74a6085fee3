"""Databases with an empty schema for tests: copies of one that was migrated once, which takes a tenth of the time."""

import asyncio
import importlib
import secrets
import shutil
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

_TEMPLATE = "lango_template"
_SCHEMA = "test"
_OTHERS = """
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
# those of a process that a test has killed, too: a statement of it may still run
_END_OTHERS = f"SELECT pg_terminate_backend(pid, 10_000) {_OTHERS}"
_MARK_CHANGES = """
    CREATE SCHEMA marks;
    CREATE TABLE marks.changes (command TEXT);
    CREATE FUNCTION marks.mark() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
        AS $$ BEGIN INSERT INTO marks.changes VALUES (tg_tag); END $$;
    CREATE EVENT TRIGGER mark_changes ON ddl_command_end EXECUTE FUNCTION marks.mark();
    CREATE EVENT TRIGGER mark_drops ON sql_drop EXECUTE FUNCTION marks.mark();
"""
_IS_FIT = f"SELECT NOT EXISTS (SELECT {_OTHERS}) AND NOT EXISTS (SELECT FROM marks.changes)"
# no trigger and no foreign key keeps a row; TRUNCATE would make new files
_DELETE_ROWS = """
    SELECT 'SET session_replication_role = replica;'
        || string_agg(format('DELETE FROM %I.%I;', schemaname, tablename), '')
    FROM pg_tables WHERE schemaname = $1 AND tablename <> 'lango_schema'
"""
_APPLICATION_ID_AT = 68  # in the header of a SQLite file: the random number of a store


class SqliteTemplate:
    """A SQLite file with an empty schema, to be copied."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
            thread.submit(asyncio.run, _open_once(f"sqlite:///{path}")).result()

    def copy_to(self, path: Path) -> None:
        """Copy it to a new store with a random number of its own."""
        shutil.copy(self._path, path)
        with path.open("r+b") as file:
            file.seek(_APPLICATION_ID_AT)
            file.write((secrets.randbelow(2**31 - 1) + 1).to_bytes(4, "big"))


class PostgresDatabases:
    """The databases of a PostgreSQL server: copies of a template, each given to one test after another.

    A copy has hundreds of files, and to make and delete them takes ten times as long as the test of a store. So a
    database is emptied after its test. One whose tables a test has changed is dropped: a trigger marks it.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="empty-databases", daemon=True)
        self._connect: Any = importlib.import_module("asyncpg").connect
        self._connection: Any = None
        self._empty: list[str] = []
        self._connections: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._make_template())
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._connection, *self._connections.values()):
            self._run(connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def take(self) -> str:
        """Return the address of a database with an empty schema."""
        return self._empty.pop() if self._empty else self._run(self._create())

    def give_back(self, url: str) -> None:
        """Empty a database for another test, even if a killed process still seems to use it."""
        if self._run(self._is_emptied(url)):
            self._empty.append(url)
        else:
            self._run(self._drop(url))

    async def _create(self) -> str:
        name = f"test_{secrets.token_hex(6)}"
        await self._connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
        self._connections[url := self._url(name)] = await self._connect(_driver_url(self._url(name)))
        return url

    async def _is_emptied(self, url: str) -> bool:
        """Empty a database, if it has the tables of the template and no other client is connected to it."""
        connection = self._connections[url]
        await connection.execute(_END_OTHERS)
        if not await connection.fetchval(_IS_FIT):
            return False
        await connection.execute(await connection.fetchval(_DELETE_ROWS, _SCHEMA))
        return True

    async def _drop(self, url: str) -> None:
        await self._connections.pop(url).close()
        await self._connection.execute(f"DROP DATABASE {_name(url)} WITH (FORCE)")

    async def _make_template(self) -> None:
        self._connection = await self._connect(self._server)
        await self._connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        await _open_once(self._url(_TEMPLATE))
        template = await self._connect(_driver_url(self._url(_TEMPLATE)))
        await template.execute(f"DELETE FROM {_SCHEMA}.commits")  # of opening it
        await template.execute(_MARK_CHANGES)
        await template.close()

    def _url(self, database: str) -> str:
        address, _, options = self._server.partition("?")
        return f"{address.rpartition('/')[0]}/{database}?{options}&schema={_SCHEMA}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _driver_url(url: str) -> str:
    return url.partition("&schema")[0]


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


async def _open_once(url: str) -> None:
    from lango.store import Store

    async with Store(url) as store:
        await store.schema_version()
