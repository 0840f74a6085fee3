"""The SQLite file: private, without deleted text, and checked for deletion, replacement, overwriting and damage."""

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from lango import Settings, open_runtime
from lango.config import StoreSettings
from lango.errors import StoreError, StoreUnavailable
from lango.messages import ToolCall
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import create_session, find_session
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.support.servers.server_process import configure, send, serving

CANARY = "zq7canary"
NAME = SessionId("lango", "user", "secret")
Harm = Callable[[Path, Path], None]


def copies(folder: Path) -> dict[str, int]:
    """Count the canary in each file of a folder, also in unused parts."""
    return {file.name: file.read_bytes().count(CANARY.encode()) for file in folder.iterdir() if file.is_file()}


def _looked(arguments: dict[str, Any]) -> str:
    return f"{CANARY} three {arguments}"


async def talk(url: str, *sessions: str) -> None:
    """Hold conversations that put the canary everywhere: messages, arguments, results, titles, state and index."""
    for session in sessions:
        calls = [ToolCall("c1", "look", {"for": f"{CANARY} one"}), f"it is {CANARY} two"]
        tool = Tool("look", "Look.", {"type": "object"}, _looked)
        settings = Settings(store=StoreSettings(url=url))
        async with open_runtime(settings, provider=ScriptedProvider(calls), tools=[tool]) as runtime:
            for event in [event async for event in runtime.stream(session, f"what is {CANARY}four {session}")]:
                assert event
            await runtime.sessions.rename(session, f"about {CANARY} five")
            assert await runtime.sessions.search(CANARY)


async def test_no_file_holds_the_text_of_a_deleted_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    await talk(url, "secret", "other-secret")
    async with open_runtime(Settings(store=StoreSettings(url=url)), provider=ScriptedProvider([])) as runtime:
        await runtime.sessions.create("kept")
        await runtime.sessions.rename("kept", "nothing of it")
        assert sum(copies(tmp_path).values()) > 0
        for session in ("secret", "other-secret"):
            assert await runtime.sessions.delete(session)
        assert copies(tmp_path)["lango.db"] == 0
        assert copies(tmp_path)["lango.db-wal"] == 0
        assert not await runtime.sessions.search(CANARY)
        assert [hit.session_id for hit in await runtime.sessions.search("nothing")] == ["kept"]


async def test_text_that_a_reader_holds_is_purged_after_it_closes(tmp_path: Path) -> None:
    await talk(f"sqlite:///{tmp_path}/lango.db", "secret")
    reader: Any = apsw.Connection(str(tmp_path / "lango.db"), flags=apsw.SQLITE_OPEN_READONLY)
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM messages").fetchall()
        assert await store.delete_session(NAME)
        reader.execute("COMMIT")
        reader.close()
        await store.write(create_session, SessionId("lango", "user", "next"), None, time.time())
        await store.purge()
        assert sum(copies(tmp_path).values()) == 0


async def test_the_files_of_a_store_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
            await store.write(create_session, NAME, None, time.time())
            made = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert made == {"lango.db": 0o600, "lango.db-wal": 0o600, "lango.db-shm": 0o600}


def _delete(path: Path, other: Path) -> None:
    del other
    path.unlink()


def _replace(path: Path, other: Path) -> None:
    other.replace(path)


def _replace_by_a_copy(path: Path, other: Path) -> None:
    del other
    shutil.copy(path, f"{path}.copy")
    Path(f"{path}.copy").replace(path)


def _overwrite(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _empty(path: Path, other: Path) -> None:
    del other
    os.truncate(path, 0)


def _damage(path: Path, other: Path) -> None:
    del other
    with path.open("r+b") as file:
        file.write(os.urandom(200))


@pytest.mark.parametrize("harm", [_delete, _replace, _replace_by_a_copy])
async def test_a_replaced_file_is_not_written(tmp_path: Path, harm: Harm) -> None:
    async with Store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.write(create_session, NAME, None, time.time())
    path = tmp_path / "lango.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.write(create_session, NAME, None, time.time())
        for number in range(20):  # writes in the caller's thread and in the writer's
            await store.write(create_session, SessionId("lango", "user", f"s{number}"), None, time.time())
        await store.probe()
        harm(path, tmp_path / "other.db")
        await asyncio.sleep(0.01)  # the files are checked every 5 ms
        for number in range(10):
            with pytest.raises(StoreUnavailable, match="while it was in use"):
                await store.write(create_session, SessionId("lango", "user", f"late{number}"), None, time.time())
        with pytest.raises(StoreUnavailable):
            await store.probe()
        with pytest.raises(StoreUnavailable, match="while it was in use"):
            await store.read(find_session, NAME)
    async with Store(f"sqlite:///{path}") as store:
        await store.write(create_session, SessionId("lango", "user", "again"), None, time.time())


@pytest.mark.parametrize("harm", [_overwrite, _empty, _damage])
async def test_readiness_detects_an_overwritten_file(tmp_path: Path, harm: Harm) -> None:
    async with Store(f"sqlite:///{tmp_path}/other.db") as other:
        await other.write(create_session, NAME, None, time.time())
    path = tmp_path / "lango.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.write(create_session, NAME, None, time.time())
        await store.probe()
        whole = path.read_bytes()
        harm(path, tmp_path / "other.db")
        with pytest.raises(StoreError):
            await store.probe()
        path.write_bytes(whole)  # restored: no restart is needed
        await store.probe()


async def test_a_server_reports_a_deleted_store(tmp_path: Path) -> None:
    configure(tmp_path, f"sqlite:///{tmp_path}/lango.db")
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await send(client, "s", "say hello"))[-1].type == "done"
            (tmp_path / "lango.db").unlink()
            ready = await client.get("/readyz")
            assert ready.status_code == 503
            assert ready.json()["checks"]["database"].startswith("StoreUnavailable: lango.db was deleted")
            answer = await client.post("/v1/sessions/s/messages", json={"text": "say hello"})
            assert answer.status_code == 503, answer.text
            assert str(tmp_path) not in answer.text, "errors to clients name no path of the machine"
