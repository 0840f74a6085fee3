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
    """The databases of a PostgreSQL server: each is a copy of a template, and is dropped after its test."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="empty-databases", daemon=True)
        self._connection: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._make_template())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create(self) -> str:
        """Create a database with an empty schema; return its address."""
        name = f"test_{secrets.token_hex(6)}"
        self._run(self._connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY"))
        return self._url(name)

    def drop(self, url: str) -> None:
        """Drop a database, even if a killed process still seems to use it."""
        name = url.partition("?")[0].rpartition("/")[2]
        self._run(self._connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    async def _make_template(self) -> None:
        connect: Any = importlib.import_module("asyncpg").connect
        self._connection = await connect(self._server)
        await self._connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        await _open_once(self._url(_TEMPLATE))
        template = await connect(self._url(_TEMPLATE).partition("&schema")[0])
        await template.execute(f"DELETE FROM {_SCHEMA}.commits")  # of opening it
        await template.close()

    def _url(self, database: str) -> str:
        address, _, options = self._server.partition("?")
        return f"{address.rpartition('/')[0]}/{database}?{options}&schema={_SCHEMA}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _open_once(url: str) -> None:
    from lango.store import Store

    async with Store(url) as store:
        await store.schema_version()
