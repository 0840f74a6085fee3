"""Databases of every released schema open with all their data; foreign databases and newer schemas are refused."""

import hashlib
import importlib
import json
import re
import shutil
import uuid
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest
from google.adk.events import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lango.adk.services.session_service import SqlSessionService
from lango.errors import SchemaError
from lango.runtime.sessions.session_transfer import import_session
from lango.store import Store
from lango.store.engine.schema import RECORD, load_migrations, upgrade
from tests.frozen.make import APP, FOLDER, SCHEMA, SESSION, USER, as_json
from tests.support.store_workers import Worker

NEWEST = load_migrations().newest
FROZEN = sorted(FOLDER.glob("schema_*.db"))
DUMPS = sorted(FOLDER.glob("schema_*.sql"))
EXPORTS = sorted(FOLDER.glob("schema_*.jsonl"))

RELEASED = {1: "951e0f66a38f210e18f50398ffae3f48f3b942ddbeb86b82094d2dca1aa9d1ef"}
"""Digests of the statements of each released migration: a change of the schema is a new migration."""


def test_a_released_migration_is_never_edited() -> None:
    steps = load_migrations().steps
    digests = {step.version: hashlib.sha256("\n".join(step.statements).encode()).hexdigest() for step in steps}
    assert {number: digests[number] for number in RELEASED} == RELEASED


@pytest.fixture(params=FROZEN, ids=[file.stem for file in FROZEN])
def frozen(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a frozen file, beside the JSON of its expected contents."""
    for source in (request.param, request.param.with_suffix(".json")):
        shutil.copy(source, tmp_path)
    return tmp_path / request.param.name


async def read(path: Path, *, write: bool = False) -> dict[str, object]:
    return await read_store(f"sqlite:///{path}", write=write)


async def read_store(url: str, *, write: bool = False) -> dict[str, object]:
    async with SqlSessionService(url) as service:
        session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert session
        shown = as_json(session)
        assert len((await service.list_sessions(app_name=APP)).sessions) == 2
        if write:
            content = types.Content(role="user", parts=[types.Part(text="still here")])
            await service.append_event(session, Event(author="user", content=content))
            window = SqlSessionService("", store=service.store, budget_tokens=1_000)
            again = await window.get_session(app_name=APP, user_id=USER, session_id=session.id)
            assert again
            assert again.events[-1].content == content
        assert await service.store.schema_version() == NEWEST
    return shown


def expected(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text("utf-8"))


async def test_a_file_of_a_released_schema_opens_with_all_its_events_and_state(frozen: Path) -> None:
    assert await read(frozen, write=True) == expected(frozen)


@pytest.mark.parametrize("dump", DUMPS, ids=[file.stem for file in DUMPS])
async def test_a_postgresql_of_a_released_schema_opens_with_all_its_events_and_state(
    dump: Path, postgres_server: str
) -> None:
    name = f"old_{uuid.uuid4().hex[:12]}"
    connection: Any = await importlib.import_module("asyncpg").connect(postgres_server)
    await connection.execute(dump.read_text("utf-8").replace(SCHEMA, name))
    await connection.close()
    assert await read_store(f"{postgres_server}&schema={name}", write=True) == expected(dump)


def test_every_released_schema_has_its_frozen_files() -> None:
    for files in (FROZEN, DUMPS, EXPORTS):
        assert [file.stem for file in files] == [f"schema_{number}" for number in sorted(RELEASED)]


@pytest.mark.parametrize("export", EXPORTS, ids=[file.stem for file in EXPORTS])
async def test_an_export_of_a_released_version_imports_with_all_its_events_and_state(
    export: Path, store: Store
) -> None:
    async with SqlSessionService("", store=store) as service:
        await import_session(store, lines_of(export))
        session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert session
    assert as_json(session)["events"] == expected(export)["events"]


async def lines_of(file: Path) -> AsyncIterator[bytes]:
    for line in file.read_bytes().splitlines(keepends=True):
        yield line


async def test_replayed_migrations_give_the_schema_of_a_new_file(frozen: Path, tmp_path: Path) -> None:
    await read(frozen)
    async with Store(f"sqlite:///{tmp_path}/new.db"):
        pass
    assert schema(frozen) == schema(tmp_path / "new.db")


def schema(path: Path) -> dict[str, str]:
    connection: Any = apsw.Connection(str(path))
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: re.sub(r"\s+", " ", sql) for name, sql in rows}


@pytest.mark.parametrize("statements", range(2, 56, 6))
async def test_a_kill_while_the_schema_is_created_leaves_the_file_empty(tmp_path: Path, statements: int) -> None:
    path = tmp_path / "new.db"
    worker = Worker(migrate_halfway, str(path), statements)
    worker.recv()
    worker.kill()
    assert schema(path) == {}
    async with Store(f"sqlite:///{path}") as store:
        assert await store.schema_version() == NEWEST


def migrate_halfway(pipe: Connection, path: str, statements: int) -> None:
    """Run some statements of the migrations, report it, and wait to be killed."""
    connection: Any = apsw.Connection(path)
    connection.execute("PRAGMA cache_size = 1")  # so that pages reach the disk before there is a commit
    connection.execute("BEGIN IMMEDIATE")
    operation = upgrade(path)
    sql, values = next(operation)
    try:
        for _ in range(statements):
            sql, values = operation.send(connection.execute(sql, values).fetchall())
    except StopIteration:
        pass  # every statement ran, without a commit
    pipe.send("halfway")
    pipe.recv()


async def test_a_database_of_a_newer_version_is_refused(store_url: str) -> None:
    async with Store(store_url):
        pass
    await execute(store_url, RECORD.format(NEWEST + 7, NEWEST + 2))
    before = digest(store_url)
    with pytest.raises(
        SchemaError, match=rf"upgraded by a newer Lango \(schema {NEWEST + 7}, this one supports {NEWEST}\)"
    ):
        async with Store(store_url):
            pass
    assert digest(store_url) == before
    await execute(store_url, f"DELETE FROM lango_schema WHERE version > {NEWEST}")
    async with Store(store_url) as store:
        assert await store.schema_version() == NEWEST


async def execute(url: str, sql: str) -> None:
    if url.startswith("sqlite"):
        connection: Any = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute(sql)
        connection.close()
    else:
        address, _, schema = url.partition("&schema=")
        driver: Any = importlib.import_module("asyncpg")  # it ships no types
        connection = await driver.connect(address, server_settings={"search_path": schema})
        await connection.execute(sql)
        await connection.close()


def digest(url: str) -> str:
    """Hash the file, and add the names of the files beside it."""
    if not url.startswith("sqlite"):
        return ""
    path = Path(url.removeprefix("sqlite:///"))
    names = sorted(file.name for file in path.parent.iterdir())
    return hashlib.sha256(path.read_bytes()).hexdigest() + " ".join(names)


async def test_the_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "adk.db"
    theirs = SqliteSessionService(str(path))
    await theirs.create_session(app_name="app", user_id="user", session_id="s")
    await theirs.close()
    url = f"sqlite:///{path}"
    before = digest(url)
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"adk\.db is the database of another program: use another file"):
            async with Store(url):
                pass
    assert digest(url) == before


async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("this is no database\n" * 1_000)
    url = f"sqlite:///{path}"
    before = digest(url)
    with pytest.raises(SchemaError, match=r"notes\.db is not a SQLite database: use another file"):
        async with Store(url):
            pass
    assert digest(url) == before
