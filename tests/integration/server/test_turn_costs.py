"""The cost of a turn and a stream, in commits, reads, threads and memory."""

import asyncio
import itertools
import math
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lango import events, open_runtime
from lango.errors import StoreUnavailable
from lango.events import IDS_PER_TURN
from lango.messages import Message
from lango.providers.protocol import Finish, TextDelta, UsageDelta
from lango.runtime.execution import event_log, replicas, take_over
from lango.runtime.execution.event_log import EventLogWriter
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine.database import Dialect, Operation
from lango.store.engine.sqlite import writer as sqlite_writer
from lango.store.engine.sqlite.sqlite_database import SqliteDatabase
from lango.store.sessions.sessions import create_session
from lango.store.turns.event_log import EventBatch, LoggedEvent, accepted_event, append_log_batches, read_event_log
from lango.testing import ScriptedProvider
from lango.turns import lease_holder
from lango.turns.turn_log import TurnLog
from tests.agents.parts import TIMEOUT_S, settings_for
from tests.support.servers.server_process import send, serving, text_of


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: list[str]) -> None:
    """Record every call of a coroutine function, and pass it on."""
    real = getattr(owner, name)

    async def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return await real(*args, **kwargs)

    monkeypatch.setattr(owner, name, noted)


async def test_a_turn_takes_three_writes_three_reads_and_no_thread_of_its_own(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the turn may be slow on a busy machine
    monkeypatch.setattr(event_log, "UNREAD_INTERVAL_S", 3600.0)
    monkeypatch.setattr(take_over, "POLL_S", 3600.0)
    monkeypatch.setattr(replicas, "_INTERVAL_S", 3600.0)
    monkeypatch.setattr(lease_holder, "HEARTBEAT_S", 3600.0)
    answers = itertools.repeat([TextDelta("yes"), UsageDelta(10, 5), Finish("stop")])
    calls: list[str] = []
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider(answers)) as runtime:
        await runtime.run("s", "the first turn makes the session, and loads what turns need")
        counted(monkeypatch, SqliteDatabase, "write", calls)
        counted(monkeypatch, SqliteDatabase, "read", calls)
        counted(monkeypatch, asyncio, "to_thread", calls)
        assert await runtime.run("s", "and now?") == "yes"
        monkeypatch.undo()
    assert sorted(calls) == ["read"] * 3 + ["write"] * 3  # one of the reads looks for messages that steer it


async def turns_under_way(store: Store, writer: EventLogWriter, count: int) -> list[TurnLog]:
    """Start turns whose events a writer writes."""
    logs: list[TurnLog] = []
    for number in range(count):
        session = await store.write(create_session, SessionId("app", "alice", f"s{number}"), None, time.time())
        entry = NewEvent(f"e{number}", 1.0, Message("user", "hi"), invocation_id="inv")
        turn = await store.submit_turn(session, entry, "owner")
        logs.append(TurnLog(turn, [accepted_event(turn, "inv")], writer.note_event))
    return logs


@asynccontextmanager
async def writing(writer: EventLogWriter) -> AsyncGenerator[None]:
    task = asyncio.create_task(writer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def emit(log: TurnLog, text: str = "text") -> None:
    log.emit(events.TextDelta(log.next_id(), text))


async def stored(log: TurnLog, count: int = 2) -> list[LoggedEvent]:
    """Return the events of a turn once so many are stored."""
    async with asyncio.timeout(TIMEOUT_S), aclosing(log.follow_stored(0, math.inf)) as followed:
        read: list[LoggedEvent] = []
        async for logged in followed:
            read += [logged] if logged else []
            if len(read) == count:
                break
    return read


async def test_events_of_concurrent_streams_are_stored_in_one_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, writes = EventLogWriter(store, "owner"), list[str]()
    logs = await turns_under_way(store, writer, 20)
    counted(monkeypatch, store, "write", writes)
    for log in logs:
        for _ in range(3):
            emit(log)
    async with writing(writer):
        for read in await asyncio.gather(*map(stored, logs)):
            assert [one.id % IDS_PER_TURN for one in read] == [1, 4], "its pieces are joined"
    assert len(writes) == 1
    for log in logs:
        assert (await store.read(read_event_log, log.session_key, 1)).events == log.stored


async def test_a_failed_write_is_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EventLogWriter(store, "owner")
    logs = await turns_under_way(store, writer, 3)
    real, failed = store.write, list[str]()

    async def away(*args: Any) -> Any:
        if not failed:
            failed.append("once")
            raise StoreUnavailable("the store is away")
        return await real(*args)

    monkeypatch.setattr(store, "write", away)
    for log in logs:
        emit(log)
    async with writing(writer):
        assert [len(await stored(log)) for log in logs] == [2, 2, 2]


async def test_the_end_of_a_turn_takes_the_events_that_are_not_stored(store: Store) -> None:
    writer = EventLogWriter(store, "owner")
    [log] = await turns_under_way(store, writer, 1)
    emit(log, "stored, ")
    async with writing(writer):
        await stored(log)
        emit(log, "not ")
        emit(log, "yet")
        rest = await writer.take_rest(log)
    assert [getattr(one.event, "text", "") for one in (*log.stored, *rest)] == ["", "stored, ", "not yet"]


async def test_a_turn_that_ends_while_large_events_of_another_are_encoded_stops_no_writing(store: Store) -> None:
    writer = EventLogWriter(store, "owner")
    large, ending = await turns_under_way(store, writer, 2)
    large.readers = ending.readers = 1  # both are due at once
    async with writing(writer), asyncio.timeout(TIMEOUT_S):
        emit(large, "x" * 100_000)
        emit(ending)
        while large not in vars(writer)["_writing"]:
            await asyncio.sleep(0)
        assert len(await writer.take_rest(ending)) == 1
        assert len(await stored(large)) == 2
        emit(large, "more")
        assert len(await stored(large, 3)) == 3


async def test_a_turn_that_another_process_took_over_is_no_longer_written(store: Store) -> None:
    writer = EventLogWriter(store, "another owner")
    [log] = await turns_under_way(store, writer, 1)
    emit(log)
    async with writing(writer), asyncio.timeout(TIMEOUT_S), aclosing(log.follow_stored(0, math.inf)) as followed:
        assert len([one async for one in followed]) == 1
    assert log.is_closed


@pytest.mark.parametrize(("length", "on_loop"), [(10, True), (100_000, False)])
async def test_attack_16_large_events_are_encoded_and_logged_outside_the_event_loop(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, length: int, on_loop: bool
) -> None:
    """On a disk whose commits are fast, all else is written in the thread of the event loop."""
    monkeypatch.setattr(sqlite_writer, "_FAST_COMMIT_S", math.inf)
    monkeypatch.setattr(sqlite_writer, "_FAST_COMMITS_NEEDED", 0)
    threads: list[int] = []
    encode = LoggedEvent.of

    def noted_encode(event: events.TurnEvent) -> LoggedEvent:
        threads.append(threading.get_ident())
        return encode(event)

    def noted_append(batches: Sequence[EventBatch], dialect: Dialect) -> Operation[list[bool]]:
        threads.append(threading.get_ident())
        return (yield from append_log_batches(batches, dialect))

    async with Store(sqlite_url) as store:
        writer = EventLogWriter(store, "owner")
        [log] = await turns_under_way(store, writer, 1)
        monkeypatch.setattr(LoggedEvent, "of", noted_encode)
        monkeypatch.setattr(event_log, "append_log_batches", noted_append)
        emit(log, "a" * length)
        async with writing(writer):
            await stored(log)
    assert len(threads) >= 2
    assert (threading.get_ident() in threads) == on_loop


async def test_a_server_loads_the_tokenizer_with_its_first_message(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path, sqlite_url, fresh=True) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        if not maps.exists():
            pytest.skip("this system does not show the memory of a process")
        async with server.client() as client:
            assert (await client.get("/v1/sessions")).status_code == 200
            assert "/splintr/" not in maps.read_text()
            assert text_of(await send(client, "s", "hello there")) == "hello there"
            assert "/splintr/" in maps.read_text()
