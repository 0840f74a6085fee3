"""Attack 21: SQLite's log and pages are damaged, truncated or replaced, and no stored row is lost silently."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from lango.errors import StoreDamaged, StoreUnavailable
from lango.store import SessionId, Store
from lango.store.engine.sqlite_log import problem_of
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import create_session, list_sessions
from tests.support.servers.server_process import lango

SESSIONS = 120  # their writes fill more of the log than those of the schema did
_WRITER = f"""
import asyncio, sys
from lango.store import SessionId, Store
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
Harm = Callable[[Path, Path], None]


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
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two stores whose processes were killed after their writes: all rows are in the log."""
    folder = tmp_path_factory.mktemp("killed")
    files = [folder / "lango.db", folder / "other.db"]
    for file in files:
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "written\n"
            process.kill()
    return files


@pytest.fixture
def database(originals: list[Path], tmp_path: Path) -> Path:
    for beside in ("", "-wal", "-shm"):
        shutil.copy2(f"{originals[0]}{beside}", f"{tmp_path}/lango.db{beside}")
    return tmp_path / "lango.db"


async def stored(database: Path) -> int:
    async with Store(f"sqlite:///{database}") as store:
        await store.probe()
        assert await store.read(check_database, store.dialect) == []
        return len(await store.read(list_sessions))


async def test_attack_21_the_log_of_a_killed_process_is_read_completely(database: Path) -> None:
    assert await stored(database) == SESSIONS


def _header(database: Path, _: Path) -> None:
    flip(log_of(database), 10)


def _middle(database: Path, _: Path) -> None:
    flip(log_of(database), HEADER + 5 * FRAME + 300)


def _frame_header(database: Path, _: Path) -> None:
    flip(log_of(database), HEADER + 8 * FRAME + 9)


def _last_page(database: Path, _: Path) -> None:
    flip(log_of(database), log_of(database).stat().st_size - 100)


def _middle_without_index(database: Path, _: Path) -> None:
    _middle(database, _)
    index_of(database).unlink()


def _header_without_index(database: Path, _: Path) -> None:
    _header(database, _)
    index_of(database).unlink()


def _cut(database: Path, _: Path) -> None:
    os.truncate(log_of(database), HEADER + 10 * FRAME)


def _cut_in_a_frame(database: Path, _: Path) -> None:
    os.truncate(log_of(database), log_of(database).stat().st_size - 10)


def _empty(database: Path, _: Path) -> None:
    os.truncate(log_of(database), 0)


def _delete(database: Path, _: Path) -> None:
    log_of(database).unlink()


def _foreign_log(database: Path, other: Path) -> None:
    shutil.copy(log_of(other), log_of(database))


HARMS = [
    *(_header, _middle, _frame_header, _last_page, _middle_without_index, _header_without_index),
    *(_cut, _cut_in_a_frame, _empty, _delete, _foreign_log),
]


@pytest.mark.parametrize("harm", HARMS)
async def test_attack_21_a_damaged_log_is_refused_each_time_it_is_opened(
    database: Path, originals: list[Path], harm: Harm
) -> None:
    harm(database, originals[1])
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"lango\.db-wal.*backup.*accept-loss") as refused:
            await stored(database)
        assert str(database.parent) not in str(refused.value)


async def test_attack_21_a_damaged_or_missing_index_loses_nothing(database: Path) -> None:
    """SQLite rebuilds it from the log."""
    flip(index_of(database), 0, 32_768)
    assert await stored(database) == SESSIONS


async def test_attack_21_an_index_of_another_database_is_not_trusted(database: Path, originals: list[Path]) -> None:
    shutil.copy(index_of(originals[1]), index_of(database))
    with pytest.raises(StoreDamaged, match="do not belong together"):
        await stored(database)
    index_of(database).unlink()
    assert await stored(database) == SESSIONS


async def test_attack_21_a_log_that_names_another_store_is_refused_without_an_index(
    database: Path, originals: list[Path], tmp_path: Path
) -> None:
    """The first page, with the store's number, is in the log whenever the database grows."""
    other = tmp_path / "grown.db"
    async with Store(f"sqlite:///{other}") as store:
        for number in range(200):
            await store.write(
                create_session, SessionId("lango", "user", f"g{number}"), {"text": "x" * 500}, time.time()
            )
        shutil.copy(log_of(other), log_of(database))
    index_of(database).unlink()
    assert problem_of(str(database)) == "belongs to another database"


async def test_attack_21_a_transaction_cut_by_a_power_failure_is_not_damage(database: Path) -> None:
    """Only the last transaction can be: it was not synced, nor confirmed to its client. The index is lost, too."""
    index_of(database).unlink()
    flip(log_of(database), log_of(database).stat().st_size - 100)
    assert await stored(database) == SESSIONS - 1


async def test_attack_21_a_file_that_is_being_written_from_its_log_is_not_damaged(tmp_path: Path) -> None:
    """SQLite writes the first page first: the header says how many pages there will be, and the file is still short."""
    database = tmp_path / "lango.db"
    async with Store(f"sqlite:///{tmp_path}/open.db") as store:
        await store.write(create_session, SessionId("lango", "user", "s"), {"grows": "x" * 500_000}, time.time())
        for beside in ("", "-wal", "-shm"):
            shutil.copy2(f"{tmp_path}/open.db{beside}", f"{database}{beside}")
    log = log_of(database).read_bytes()
    frames = [log[at : at + FRAME] for at in range(HEADER, len(log) - FRAME + 1, FRAME)]
    first = next(frame for frame in reversed(frames) if frame[:4] == b"\0\0\0\1")
    with database.open("r+b") as file:
        file.write(first[24:])
    assert problem_of(str(database)) is None
    assert await stored(database) == 1


async def test_attack_21_frames_of_an_earlier_log_are_not_damage(tmp_path: Path) -> None:
    """A log is overwritten from its beginning once it is checkpointed: later frames are old."""
    database = tmp_path / "lango.db"
    async with Store(f"sqlite:///{database}") as store:
        for number in range(40):
            await store.write(create_session, SessionId("lango", "user", f"a{number}"), None, time.time())
        cast("Any", vars(vars(store)["_database"])["_writer"]).execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        await store.write(create_session, SessionId("lango", "user", "after"), None, time.time())
        copy = tmp_path / "copy"
        copy.mkdir()
        for beside in ("", "-wal", "-shm"):
            shutil.copy2(f"{database}{beside}", copy / f"lango.db{beside}")
    with log_of(copy / "lango.db").open("rb") as log:
        log.seek(HEADER + 8)
        salts = [log.read(FRAME)[:8] for _ in range(20)]
    assert len(set(salts)) == 2, "old frames behind new ones: the case that this is about"
    assert await stored(copy / "lango.db") == 41


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
        harm(database, database)
        with pytest.raises(StoreUnavailable, match=r"lango\.db-wal was"):
            await store.probe()
        if harm is _delete:
            with pytest.raises(StoreUnavailable, match=r"(deleted|replaced by another file) while it was in use"):
                await store.write(create_session, SessionId("lango", "user", "late"), None, time.time())


def test_attack_21_doctor_explains_how_to_recover(database: Path) -> None:
    _middle(database, database)
    folder = database.parent
    (folder / "lango.toml").write_text('[store]\nurl = "sqlite:///lango.db"\n')
    output = lango("doctor", "--offline", cwd=folder)
    assert output.returncode == 1
    assert "FAIL store: lango.db-wal is damaged" in output.stdout
    assert "accept-loss" in output.stdout
    mended = lango("db", "accept-loss", cwd=folder)
    assert mended.returncode == 0, mended.stderr
    assert (folder / "lango.db-wal.damaged").stat().st_size > FRAME
    assert "ok   store" in lango("doctor", "--offline", cwd=folder).stdout
    assert "nothing was changed" in lango("db", "accept-loss", cwd=folder).stdout


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
