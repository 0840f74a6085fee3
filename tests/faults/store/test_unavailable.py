"""A database that cannot be written for a while: a typed error in time, reads continue, and no restart is needed."""

import asyncio
import contextlib
import ctypes
import functools
import os
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from lango.errors import LangoError, StoreError, StoreUnavailable
from lango.messages import Message
from lango.sessions import SessionId, SessionInfo
from lango.store import AppendResult, NewEvent
from lango.store.engine.database import Operation, SingleStatementWrite
from lango.store.engine.schema import load_migrations
from lango.store.engine.sqlite.sqlite_database import SqliteDatabase
from lango.store.lifecycle import integrity
from lango.store.sessions import sessions, window
from lango.store.sessions.append import append, append_statement
from tests.support.store_workers import NAME, TIMEOUT_S, Worker

BUSY_TIMEOUT_S = 0.2


class Session:
    """A session on a SQLite file, with a short timeout for locks."""

    def __init__(self, path: Path, *, in_thread: bool = False, at_once: bool = False) -> None:
        self.database = SqliteDatabase(str(path), busy_timeout_s=BUSY_TIMEOUT_S)
        self.in_thread = in_thread
        self.at_once = at_once

    async def create(self) -> None:
        await self.database.write(lambda: sessions.create_session(NAME, {}, 0.0))

    async def append(self, size: int = 10) -> int:
        record = await self.record()
        number = record.last_seq + 1
        delta = None if self.at_once else {"newest": number}
        entry = NewEvent(f"e{number}", 0.0, Message("user", f"{number}" + "x" * size), state_delta=delta)
        operation = functools.partial(append, record.key, NAME, record.revision, entry)
        return (
            await self.database.write(
                operation, long=self.in_thread, single_statement=self._single_statement(record, entry)
            )
        ).seq

    def _single_statement(
        self, record: SessionInfo, entry: NewEvent
    ) -> Callable[[], SingleStatementWrite[AppendResult] | None] | None:
        if not self.at_once:
            return None
        return lambda: append_statement(record.key, record.revision, record.last_seq, entry, None)

    async def record(self) -> SessionInfo:
        record = await self.database.read(lambda: sessions.find_session(NAME))
        assert record
        return record

    async def check(self) -> int:
        """Check F3 and F4; return the number of events."""
        record = await self.record()
        stored = await self.database.read(lambda: window.read_events(record))
        assert [one.seq for one in stored] == list(range(1, record.last_seq + 1))
        assert record.revision == record.last_seq
        assert self.at_once or record.state.get("newest", 0) == record.last_seq
        assert await self.database.read(lambda: integrity.check_session(NAME)) == []
        return len(stored)


@pytest.fixture(params=["as it is", "in the thread", "by one statement"])
def session(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session for each thread that writes."""
    at_once = request.param == "by one statement"
    if at_once:
        monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMIT_S", float("inf"))
        monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMITS_NEEDED", 0)
    return Session(tmp_path / "lango.db", in_thread=request.param == "in the thread", at_once=at_once)


# -- locked ---------------------------------------------------------------------------------------------------------


def hold_the_lock(pipe: Connection, path: str) -> None:
    """Take and release the write lock on request."""
    connection: Any = apsw.Connection(path)
    while pipe.recv():
        connection.execute("BEGIN EXCLUSIVE")
        pipe.send("locked")
        pipe.recv()
        connection.execute("ROLLBACK")
        pipe.send("free")


async def test_f7_a_locked_database_is_waited_for_and_then_a_typed_error(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "lango.db"
    await session.create()
    await session.append()
    other = Worker(hold_the_lock, str(path))
    for locked in range(2):
        other.send("lock")
        assert other.recv() == "locked"
        with pytest.raises(StoreUnavailable, match="is locked by another program") as caught:
            async with asyncio.timeout(TIMEOUT_S):
                await session.append()
        assert caught.value.retry_after_s
        assert await session.check() == 1 + locked, "reads go on"
        other.send("free")
        assert other.recv() == "free"
        assert await session.append() == 2 + locked, "no restart needed"
    await session.database.close()

    # a store that opens while the file is locked raises, and opens once it is free
    other.send("lock")
    assert other.recv() == "locked"
    late = Session(path, in_thread=session.in_thread, at_once=session.at_once)
    with pytest.raises(StoreUnavailable, match="is locked"):
        await late.database.write(lambda: sessions.create_session(NAME, {}, 0.0))
    other.send("free")
    assert other.recv() == "free"
    assert await late.check() == 3
    assert await late.append() == 4
    await late.database.close()
    other.kill()


async def test_a_short_lock_only_delays_a_write(tmp_path: Path) -> None:
    path = tmp_path / "lango.db"
    session = Session(path)
    session.database = SqliteDatabase(str(path), busy_timeout_s=TIMEOUT_S)
    await session.create()
    other = Worker(hold_the_lock, str(path))
    other.send("lock")
    assert other.recv() == "locked"
    waiting = asyncio.create_task(session.append())
    await session.check()
    other.send("free")
    assert await asyncio.wait_for(waiting, TIMEOUT_S) == 1
    await session.database.close()
    other.kill()


# -- full -----------------------------------------------------------------------------------------------------------


def pragma(text: str) -> Operation[None]:
    yield f"PRAGMA {text}", ()


async def fill_up(session: Session) -> StoreError:
    """Append until it fails, then once more."""
    for _ in range(2_000):
        try:
            await session.append(20_000)
        except StoreError as error:
            with contextlib.suppress(StoreError):
                await session.append(20_000)
            return error
    raise AssertionError("there was room for everything")


async def test_f7_a_full_database_is_a_typed_error_and_reads_go_on(session: Session) -> None:
    await session.create()
    await session.database.write(lambda: pragma("max_page_count = 150"))
    error = await fill_up(session)
    assert isinstance(error, StoreUnavailable)
    assert "is full: free up space; nothing was written" in str(error)
    count = await session.check()
    assert count > 0
    await session.database.write(lambda: pragma("max_page_count = 1073741823"))
    assert await session.append(20_000) == count + 1, "no restart needed"
    await session.database.close()


async def test_f7_a_full_database_loses_nothing_of_concurrent_writes(tmp_path: Path) -> None:
    """Writes of one group fail together, and each writer gets the error."""
    database = SqliteDatabase(str(tmp_path / "lango.db"), busy_timeout_s=BUSY_TIMEOUT_S)
    names = [replace(NAME, id=f"s{n}") for n in range(6)]
    records = {name: await database.write(lambda name=name: sessions.create_session(name, {}, 0.0)) for name in names}
    acknowledged = dict.fromkeys(names, 0)

    async def one(name: SessionId) -> None:
        entry = NewEvent(f"e{acknowledged[name]}", 0.0, Message("user", "x" * 20_000))
        operation = functools.partial(append, records[name].key, name, acknowledged[name], entry)
        await database.write(operation, long=True)  # through the writer's thread, grouped with others
        acknowledged[name] += 1

    async def stored() -> dict[SessionId, int]:
        found = {name: await database.read(lambda name=name: sessions.find_session(name)) for name in names}
        return {name: record.last_seq if record else -1 for name, record in found.items()}

    await database.write(lambda: pragma("max_page_count = 300"))
    errors: list[BaseException] = []
    while len(errors) < 3 * len(names):
        outcomes = await asyncio.gather(*map(one, names), return_exceptions=True)
        errors += [outcome for outcome in outcomes if outcome is not None]
        assert await stored() == acknowledged
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert all("is full: free up space; nothing was written" in str(error) for error in errors)
    await database.write(lambda: pragma("max_page_count = 1073741823"))
    await asyncio.gather(*map(one, names))
    assert await stored() == acknowledged, "no restart needed"
    await database.close()


def fill_up_behind_a_limit(pipe: Connection, path: str) -> None:
    """The kernel refuses writes beyond the file size limit of this process."""

    async def run() -> None:
        session = Session(Path(path))
        await session.create()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        error = await fill_up(session)
        pipe.send((type(error).__name__, str(error), await session.check()))
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        pipe.send((await session.append(20_000), await session.check()))
        await session.database.close()

    asyncio.run(run())


def test_f7_a_write_error_of_the_system_is_a_typed_error(tmp_path: Path) -> None:
    worker = Worker(fill_up_behind_a_limit, str(tmp_path / "lango.db"))
    name, sentence, count = worker.recv()
    assert name == "StoreUnavailable"
    assert "cannot be read or written" in sentence or "is full" in sentence
    assert count > 0
    assert worker.recv() == (count + 1, count + 1), "no restart needed"
    worker.join()


def fill_up_a_disk(pipe: Connection, folder: str) -> None:
    """A disk of two megabytes, in a namespace of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mount = 0x10000000, 0x00020000
    may = libc.unshare(new_mount | (0 if os.geteuid() == 0 else new_user)) == 0
    may = may and libc.mount(b"none", b"/", None, 0x44000, None) == 0  # private: no other process sees the next mount
    may = may and libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"size=2m") == 0
    pipe.send("mounted" if may else os.strerror(ctypes.get_errno()))

    async def run() -> None:
        ballast = Path(folder) / "ballast"
        ballast.write_bytes(b"x" * 1_000_000)
        session = Session(Path(folder) / "lango.db")
        await session.create()
        error = await fill_up(session)
        pipe.send((type(error).__name__, str(error), await session.check()))
        ballast.unlink()
        pipe.send((await session.append(20_000), await session.check()))
        await session.database.close()

    if may:
        asyncio.run(run())


def test_f7_a_full_disk_is_a_typed_error_and_reads_go_on(tmp_path: Path) -> None:
    worker = Worker(fill_up_a_disk, str(tmp_path))
    mounted = worker.recv()
    if mounted != "mounted":
        pytest.skip(f"no right to mount a small disk ({mounted}); the two tests before stand for it")
    name, sentence, count = worker.recv()
    assert name == "StoreUnavailable"
    assert "is full: free up space; nothing was written" in sentence
    assert count > 0
    assert worker.recv() == (count + 1, count + 1), "no restart needed"
    worker.join()


# -- read-only ------------------------------------------------------------------------------------------------------


def use_a_read_only_file(pipe: Connection, path: str) -> None:
    """Root may write anything, so this process becomes another user first."""
    load_migrations()  # imports files that the other user may not read
    if os.geteuid() == 0:
        os.chown(Path(path).parent, 65534, 65534)
        os.chown(path, 65534, 65534)
        os.setgid(65534)
        os.setuid(65534)

    async def run() -> None:
        Path(path).chmod(0o444)
        session = Session(Path(path))
        pipe.send(await session.check())
        try:
            await session.append()
        except LangoError as error:
            pipe.send((type(error).__name__, str(error)))
        pipe.send(await session.check())
        try:
            await session.database.probe()
        except StoreUnavailable as error:
            pipe.send(str(error))
        Path(path).chmod(0o644)
        await session.database.probe()
        pipe.send((await session.append(), await session.check()))
        await session.database.close()

    asyncio.run(run())


async def test_f7_a_read_only_file_is_read_and_is_written_once_it_is_writable(tmp_path: Path) -> None:
    path = tmp_path / "store" / "lango.db"
    path.parent.mkdir()
    for folder in path.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)  # the other user must get there
    session = Session(path)
    await session.create()
    await session.append()
    await session.database.close()
    worker = Worker(use_a_read_only_file, str(path))
    assert worker.recv() == 1, "reads go on"
    assert worker.recv() == (
        "StoreUrlError",
        f"no permission to read and write {path}: change its permissions, or use another path",
    )
    assert worker.recv() == 1
    assert worker.recv() == "lango.db is read-only: change its permissions or those of its disk; reads still work"
    assert worker.recv() == (2, 2), "no restart needed"
    worker.join()
