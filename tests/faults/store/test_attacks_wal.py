"""Attack 21: SQLite's log is damaged, truncated or deleted while it is in use, and pages are damaged."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lango.errors import StoreUnavailable
from lango.sessions import SessionId
from lango.store import Store
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import create_session, list_sessions
from tests.support.servers.server_process import lango

SESSIONS = 120  # their writes fill more of the log than those of the schema did
_WRITER = f"""
import asyncio, sys
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import create_session

async def write():
    store = Store("sqlite:///" + sys.argv[1])
    for number in range({SESSIONS}):
        await store.write(create_session, SessionId("lango", "user", f"s{{number}}"), None, 0.0)
    print("written", flush=True)
    await asyncio.Event().wait()

asyncio.run(write())
"""
HEADER, FRAME = 32, 24 + 4096
Harm = Callable[[Path], None]


def flip(file: Path, at: int, length: int = 1) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        before = opened.read(length)
        opened.seek(at)
        opened.write(bytes(byte ^ 0xFF for byte in before))


def log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def index_of(database: Path) -> Path:
    return database.with_name(database.name + "-shm")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed after its writes: all rows are in the log."""
    file = tmp_path_factory.mktemp("killed") / "lango.db"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "written\n"
        process.kill()
    return file


@pytest.fixture
def database(original: Path, tmp_path: Path) -> Path:
    for beside in ("", "-wal", "-shm"):
        shutil.copy2(f"{original}{beside}", f"{tmp_path}/lango.db{beside}")
    return tmp_path / "lango.db"


async def stored(database: Path) -> int:
    async with Store(f"sqlite:///{database}") as store:
        await store.probe()
        assert await store.read(check_database, store.dialect) == []
        return len(await store.read(list_sessions))


async def test_attack_21_the_log_of_a_killed_process_is_read_completely(database: Path) -> None:
    assert await stored(database) == SESSIONS


def _cut(database: Path) -> None:
    os.truncate(log_of(database), HEADER + 10 * FRAME)


def _empty(database: Path) -> None:
    os.truncate(log_of(database), 0)


def _delete(database: Path) -> None:
    log_of(database).unlink()


async def test_attack_21_a_damaged_or_missing_index_loses_nothing(database: Path) -> None:
    """SQLite rebuilds it from the log."""
    flip(index_of(database), 0, 32_768)
    assert await stored(database) == SESSIONS


async def test_attack_21_a_transaction_cut_by_a_power_failure_is_not_damage(database: Path) -> None:
    """Only the last transaction can be: it was not synced, nor confirmed to its client. The index is lost, too."""
    index_of(database).unlink()
    flip(log_of(database), log_of(database).stat().st_size - 100)
    assert await stored(database) == SESSIONS - 1


async def test_attack_21_two_stores_in_one_process_keep_their_locks(database: Path) -> None:
    async with Store(f"sqlite:///{database}") as first, Store(f"sqlite:///{database}") as second:
        await first.write(create_session, SessionId("lango", "user", "first"), None, time.time())
        await second.write(create_session, SessionId("lango", "user", "second"), None, time.time())
        assert len(await first.read(list_sessions)) == SESSIONS + 2


@pytest.mark.parametrize("harm", [_delete, _cut, _empty])
async def test_attack_21_a_log_that_is_deleted_in_use_is_detected(database: Path, harm: Harm) -> None:
    async with Store(f"sqlite:///{database}") as store:
        for number in range(10):
            await store.write(create_session, SessionId("lango", "user", f"more{number}"), None, time.time())
        await store.probe()
        harm(database)
        with pytest.raises(StoreUnavailable, match=r"lango\.db-wal was"):
            await store.probe()
        if harm is _delete:
            with pytest.raises(StoreUnavailable, match=r"(deleted|replaced by another file) while it was in use"):
                await store.write(create_session, SessionId("lango", "user", "late"), None, time.time())


def test_attack_21_doctor_finds_a_damaged_page(database: Path) -> None:
    """The page belongs to an index that listing sessions does not read: only looking at every page finds it."""
    folder = database.parent
    (folder / "lango.toml").write_text('[store]\nurl = "sqlite:///lango.db"\n')
    assert lango("db", "upgrade", cwd=folder).returncode == 0  # everything is in the file now
    assert "ok   store" in lango("doctor", "--offline", cwd=folder).stdout
    with closing(sqlite3.connect(database)) as connection:
        [[root]] = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'messages' ORDER BY name LIMIT 1"
        )
    flip(database, (root - 1) * 4096)  # the byte that says what kind of page it is
    output = lango("doctor", "--offline", cwd=folder)
    assert output.returncode == 1
    assert "FAIL store: schema" in output.stdout
    assert "sessions, but it is damaged: SQLite finds" in output.stdout
    assert "backup" in output.stdout
    assert "Traceback" not in output.stdout + output.stderr
