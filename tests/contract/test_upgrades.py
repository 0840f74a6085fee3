"""A newer version migrates while an older one reads and appends. Its migrations exist only here."""

import asyncio
import importlib
import shutil
import time
from collections.abc import AsyncIterator
from importlib import resources
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from lango.adk.services.artifact_service import SqlArtifactService
from lango.errors import SchemaError, WaitNotOpen
from lango.store import Store
from lango.store.engine.database import Operation, Row
from lango.store.engine.schema import Migrations, load_migrations
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_session_events
from lango.store.waits.waits import get_wait
from tests.support import index_tables
from tests.support.migration_rules import violations
from tests.support.store_workers import NAME, TIMEOUT_S, Worker, append_for_ever, entry, open_on_request

OWN = load_migrations().newest
FILES = [
    "expand_columns.sql: ALTER TABLE messages ADD COLUMN label TEXT;\n"
    "ALTER TABLE messages ADD COLUMN weight BIGINT NOT NULL DEFAULT 7;",
    f"expand_index.sql: {index_tables.migration('role')}",
    "expand_labels.sql: CREATE TABLE labels (name TEXT PRIMARY KEY);\nCREATE INDEX labels_name ON labels (name);",
    f"contract_title.sql: -- oldest reader: {OWN + 3}\nALTER TABLE sessions DROP COLUMN title;",
]
COPIED = "SELECT COUNT(*) FROM messages_by_role WHERE seq <= 100"
LOCKS = """
SELECT l.mode, l.granted FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE c.relname = $1 AND l.pid <> ALL($2::int[])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The migrations of the next version: those of this one, and more."""
    made = tmp_path / "migrations"
    with resources.as_file(resources.files("lango.store") / "migrations") as own:
        shutil.copytree(own, made)
    for number, text in enumerate(FILES, OWN + 1):
        name, _, sql = text.partition(": ")
        (made / f"{number:04}_{name}").write_text(sql + "\n", "utf-8")
    return made


@pytest.fixture
def newer(folder: Path) -> Migrations:
    """What the next version knows."""
    return load_migrations(folder)


@pytest.fixture
async def used_url(store_url: str) -> str:
    """A store of this version, with a session."""
    async with Store(store_url) as store:
        session = await store.write(create_session, NAME, None, time.time())
        await store.append(session.key, NAME, 0, entry("w", 1))
    return store_url


def up_to(migrations: Migrations, count: int) -> Migrations:
    return replace(migrations, steps=migrations.steps[:count])


async def applied(url: str) -> list[int]:
    async with Store(url) as store:
        return [version for [version] in await store.read(select, "SELECT version FROM lango_schema ORDER BY version")]


def select(sql: str) -> Operation[list[Row]]:
    return (yield sql, ())


def test_the_migrations_of_these_tests_follow_the_rules(newer: Migrations) -> None:
    assert [broken for step in newer.steps for broken in violations(step)] == []


async def test_an_older_process_appends_while_each_migration_runs(used_url: str, newer: Migrations) -> None:
    older = Worker(append_for_ever, used_url)
    stored = 0
    for count in range(OWN + 1, len(newer.steps) + 1):
        stored = older.recv()
        async with Store(used_url, migrations=up_to(newer, count)) as store:
            assert await store.due_migrations() == []
        for number in [*older.drain(), older.recv()]:  # the last was sent after this migration
            assert number > stored
            stored = number
    older.kill()
    async with Store(used_url, migrations=newer) as store:
        found = await store.read(read_session_events, NAME)
        rows = await store.read(select, "SELECT DISTINCT weight, label FROM messages")
    assert found
    record, events = found
    assert [event.seq for event in events] == list(range(1, record.last_seq + 1))
    assert record.last_seq >= stored
    assert [tuple(row) for row in rows] == [(7, None)], "the older process wrote rows with the default"
    assert await applied(used_url) == list(range(1, OWN + 4)), "the contract step waits for `--contract`"


async def test_a_table_in_place_of_an_index_is_filled_in_batches_beside_an_older_process(
    sqlite_url: str, newer: Migrations
) -> None:
    async with Store(sqlite_url) as old:
        session = await old.write(create_session, NAME, None, time.time())
        for number in range(1, 101):
            await old.append(session.key, NAME, number - 1, entry("w", number))
        older = Worker(append_for_ever, sqlite_url)
        older.recv()
        async with Store(sqlite_url, migrations=up_to(newer, OWN + 2)) as new:
            copied = [0]
            while await new.write(index_tables.fill_batch, "role", 10):
                copied += [count for [count] in await new.read(select, COPIED)]
                at = older.recv()  # it appends between two batches
                seqs, is_by_table = await new.read(index_tables.read_by, "role", session.key, "user")
                assert not is_by_table
                assert set(range(1, at + 1)) <= set(seqs), "a reader finds all, although few are copied"
            older.kill()
            assert copied[1:11] == list(range(10, 101, 10)), "so many rows in each transaction"
            seqs, is_by_table = await new.read(index_tables.read_by, "role", session.key, "user")
            assert is_by_table
            found = await new.read(find_session, NAME)
            assert found
            assert seqs == list(range(1, found.last_seq + 1))
            await old.write(select, "UPDATE messages SET role = 'event' WHERE seq = 3")
            await old.write(select, "DELETE FROM messages WHERE seq = 2")
            seqs, _ = await new.read(index_tables.read_by, "role", session.key, "user")
            assert seqs == [1, *range(4, found.last_seq + 1)]


async def test_an_older_version_starts_on_a_store_that_was_expanded(used_url: str, newer: Migrations) -> None:
    async with Store(used_url, migrations=newer):
        pass
    older = Worker(open_on_request)
    assert older.recv() == "ready"
    older.send(used_url)
    assert older.recv() == f"schema {OWN + 3}"
    older.kill()
    async with Store(used_url) as store:
        assert await store.due_migrations() == []
        session = await store.read(find_session, NAME)
        assert session
        await store.append(session.key, NAME, session.revision, entry("w", 2))


async def test_an_older_version_refuses_a_contracted_store_with_one_sentence(
    used_url: str, folder: Path, newer: Migrations
) -> None:
    contracting = load_migrations(folder, contract=True)
    async with Store(used_url) as running:
        session = await running.read(find_session, NAME)
        assert session
        async with Store(used_url, migrations=newer) as store:
            assert [step.version for step in await Store(used_url, migrations=contracting).due_migrations()] == [
                OWN + 4
            ]
            await store.probe()
        async with Store(used_url, migrations=contracting) as store:
            assert await store.due_migrations() == []
        with pytest.raises(SchemaError, match=r"was changed by another version of Lango \(.*title.*\): install"):
            await running.read(find_session, NAME)
        sentence = rf"upgraded by a newer Lango \(schema {OWN + 4}, this one supports {OWN}\): install a newer version"
        with pytest.raises(SchemaError, match=sentence):
            await running.probe()
    with pytest.raises(SchemaError, match=sentence):
        async with Store(used_url):
            pass
    async with Store(used_url, migrations=newer) as store:
        await store.probe()


async def test_a_new_store_gets_contract_steps_at_once(tmp_path: Path, newer: Migrations) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    assert await Store(url, migrations=newer).due_migrations() == list(newer.steps)
    assert not (tmp_path / "new.db").exists()
    async with Store(url, migrations=newer) as store:
        assert await store.schema_version() == OWN + 4


async def test_values_that_only_a_newer_version_knows_stop_nothing_else(store: Store) -> None:
    session = await store.write(create_session, NAME, None, time.time())
    await store.append(session.key, NAME, 0, entry("w", 1))
    for sql in BY_A_NEWER_VERSION:
        await store.write(select, sql.format(session.key))
    with pytest.raises(WaitNotOpen, match=r"the wait 'w' of session 'shared' was closed") as refused:
        await store.read(get_wait, session.key, NAME, "w")
    assert refused.value.reason == "postponed"
    service = SqlArtifactService("", store=store)
    of_session: Any = {"app_name": "app", "user_id": "user", "session_id": "shared"}
    assert await service.list_artifact_keys(**of_session) == ["a"]
    with pytest.raises(SchemaError, match=r"a newer Lango stored an artifact 'stream' .*: install a newer version"):
        await service.load_artifact(**of_session, filename="a")
    session = await store.read(find_session, NAME)
    assert session
    turn = await store.submit_turn(session, entry("w", 2), "owner")
    assert (turn.turn, turn.status) == (2, "running"), "a status that is not known is one of an ended turn"
    assert await store.read(check_session, NAME) == []


BY_A_NEWER_VERSION = [
    "INSERT INTO waits (session_key, id, kind, seq, opened_at, closed) VALUES ({}, 'w', 'input', 1, 1, 'postponed')",
    "INSERT INTO turns (session_key, turn, status, first_seq, epoch, created_at) VALUES ({}, 1, 'skipped', 1, 0, 1)",
    "INSERT INTO artifacts (app_name, user_id, session_id, name, version, kind, created_at) "
    "VALUES ('app', 'user', 'shared', 'a', 0, 'stream', 1)",
    "INSERT INTO tool_journal (session_key, call_id, epoch, name, effect, status, arguments, intended_at) "
    "VALUES ({}, 'c', 0, 'pay', 'once', 'postponed', '', 1)",
]


async def test_due_migrations_change_nothing(used_url: str, newer: Migrations) -> None:
    due = await Store(used_url, migrations=newer).due_migrations()
    assert [step.version for step in due] == [OWN + 1, OWN + 2, OWN + 3]
    assert await applied(used_url) == list(range(1, OWN + 1))


# -- locks of PostgreSQL ----------------------------------------------------------------------------------------------


@pytest.fixture
async def connect(postgres_url: str) -> AsyncIterator[Any]:
    """Open connections to the database of a test; the tables are in their search path."""
    address, _, schema = postgres_url.partition("&schema=")
    driver: Any = importlib.import_module("asyncpg")  # it ships no types
    opened: list[Any] = []

    async def connect() -> Any:
        opened.append(await driver.connect(address, server_settings={"search_path": schema}))
        return opened[-1]

    yield connect
    for connection in opened:
        await connection.close()


async def locks_on(connection: Any, table: str, *others: Any) -> list[tuple[str, bool]]:
    """Return the locks of other connections on a table: mode, and whether it is granted."""
    pids = [one.get_server_pid() for one in (connection, *others)]
    return [tuple(row) for row in await connection.fetch(LOCKS, table, pids)]


async def wait_for_lock(connection: Any, table: str, mode: str, holder: Any) -> list[tuple[str, bool]]:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            locks = await locks_on(connection, table, holder)
            if mode in [found for found, _ in locks]:
                return locks
            await asyncio.sleep(0.01)


async def migrate(url: str, migrations: Migrations) -> None:
    async with Store(url, migrations=migrations):
        pass


async def append_one(url: str) -> None:
    """Append as the older version does."""
    async with Store(url) as store:
        session = await store.read(find_session, NAME)
        assert session
        await store.append(session.key, NAME, session.revision, entry("w", session.last_seq + 1))


@pytest.mark.postgres
class TestLocks:
    """On PostgreSQL."""

    @pytest.fixture
    def store_url(self, postgres_url: str) -> str:
        return postgres_url

    async def test_a_statement_locks_one_table_and_rewrites_none(
        self, used_url: str, connect: Any, newer: Migrations
    ) -> None:
        connection = await connect()
        files = "SELECT relname, pg_relation_filenode(oid) FROM pg_class WHERE relnamespace = 'test'::regnamespace"
        before = dict(await connection.fetch(files))
        strong = """
            SELECT DISTINCT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            WHERE l.pid = pg_backend_pid() AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                'AccessExclusiveLock')
        """
        for step, changed in zip(newer.steps[OWN:], [{"messages"}, None, set[str](), {"sessions"}], strict=True):
            if changed is None:  # an index: no transaction, see below
                continue
            async with connection.transaction():
                await connection.execute(";".join(step.for_dialect("postgres")))
                locked = {name for [name] in await connection.fetch(strong)}
            assert locked & before.keys() == changed, step.file_name
        after = dict(await connection.fetch(files))
        assert {name: after[name] for name in before} == before
        await connection.execute("DROP TABLE labels")

    async def test_a_migration_gives_way_to_writers_while_its_table_is_in_use(
        self, used_url: str, connect: Any, newer: Migrations, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "lango.store")
        user, watcher = await connect(), await connect()
        async with user.transaction(), asyncio.TaskGroup() as tasks:
            await user.execute("LOCK TABLE messages IN ROW EXCLUSIVE MODE")  # as a long transaction that appends
            upgrade = tasks.create_task(migrate(used_url, newer))
            locks = await wait_for_lock(watcher, "messages", "AccessExclusiveLock", user)
            assert ("AccessExclusiveLock", False) in locks
            await append_one(used_url)
            assert not upgrade.done()
            await user.execute("ROLLBACK")
        assert "waits for a table that is in use" in caplog.text
        assert await applied(used_url) == list(range(1, OWN + 4))

    async def test_an_index_is_built_beside_writers(self, used_url: str, connect: Any, newer: Migrations) -> None:
        await migrate(used_url, up_to(newer, OWN + 1))
        user, watcher = await connect(), await connect()
        async with asyncio.TaskGroup() as tasks, user.transaction():
            await user.execute("UPDATE messages SET weight = 8")  # the build waits for the end of this
            upgrade = tasks.create_task(migrate(used_url, newer))
            await wait_for_lock(watcher, "messages", "ShareUpdateExclusiveLock", user)
            tasks.create_task(migrate(used_url, newer))  # of a second replica, which waits for the first
            await append_one(used_url)
            modes = {mode for mode, _ in await locks_on(watcher, "messages", user)}
            assert modes == {"ShareUpdateExclusiveLock"}, "it conflicts with no read and no write"
            assert not upgrade.done()
        assert await applied(used_url) == list(range(1, OWN + 4))

    async def test_an_index_whose_build_was_killed_is_built_again(
        self, used_url: str, connect: Any, folder: Path, newer: Migrations
    ) -> None:
        await migrate(used_url, up_to(newer, OWN + 1))
        user, watcher = await connect(), await connect()
        async with user.transaction():
            await user.execute("UPDATE messages SET weight = 8")
            killed = Worker(migrate_in_process, used_url, str(folder))
            await wait_for_lock(watcher, "messages", "ShareUpdateExclusiveLock", user)
            killed.kill()
            await watcher.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%'"
            )
        is_valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('messages_role')"
        assert await watcher.fetchval(is_valid) is False
        await migrate(used_url, newer)
        assert await watcher.fetchval(is_valid) is True
        assert await applied(used_url) == list(range(1, OWN + 4))


def migrate_in_process(pipe: Connection, url: str, folder: str) -> None:
    """Migrate as the newer version does."""
    del pipe
    asyncio.run(migrate(url, load_migrations(Path(folder))))


async def test_a_store_without_the_columns_of_this_version_is_refused_with_one_sentence(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    connection: Any = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE lango_schema (version BIGINT PRIMARY KEY)")
    connection.close()
    with pytest.raises(
        SchemaError, match=r"other\.db was changed by another version of Lango \(no such column: oldest"
    ):
        await Store(url).open()
