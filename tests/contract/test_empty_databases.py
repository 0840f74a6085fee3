"""The databases that tests are given: each test finds an empty one, with the tables as they should be."""

import importlib
from typing import Any

import pytest

from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import create_session
from tests.support.empty_databases import PostgresDatabases

pytestmark = pytest.mark.postgres


async def connect(url: str) -> Any:
    return await importlib.import_module("asyncpg").connect(url.partition("&schema")[0])


async def test_the_next_test_finds_the_same_database_without_rows(postgres_databases: PostgresDatabases) -> None:
    url = postgres_databases.take()
    async with Store(url) as store:
        await store.write(create_session, SessionId("app", "alice", "s"), {"key": "value", "user:name": "Alice"}, 0.0)
    postgres_databases.give_back(url)
    assert postgres_databases.take() == url
    connection = await connect(url)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'test'")
    with_rows = {name for (name,) in tables if await connection.fetchval(f"SELECT EXISTS (SELECT FROM test.{name})")}
    await connection.close()
    postgres_databases.give_back(url)
    assert with_rows == {"lango_schema"}


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE test.more (id BIGINT)",
        "ALTER TABLE test.sessions ADD COLUMN more BIGINT",
        "ALTER SCHEMA test RENAME TO gone",
        "DROP INDEX test.sessions_input",
        "GRANT USAGE ON SCHEMA test TO public",
    ],
)
async def test_a_database_whose_tables_were_changed_is_given_to_no_other_test(
    postgres_databases: PostgresDatabases, change: str
) -> None:
    url = postgres_databases.take()
    connection = await connect(url)
    await connection.execute(change)
    await connection.close()
    postgres_databases.give_back(url)
    other = postgres_databases.take()
    postgres_databases.give_back(other)
    assert other != url


async def test_a_client_that_is_still_connected_writes_nothing_into_the_next_test(
    postgres_databases: PostgresDatabases,
) -> None:
    url = postgres_databases.take()
    left = await connect(url)
    await left.execute("BEGIN; INSERT INTO test.owners (owner, heartbeat) VALUES ('left', 0)")
    postgres_databases.give_back(url)
    with pytest.raises(importlib.import_module("asyncpg").PostgresError):
        await left.execute("COMMIT")
    await left.close()
