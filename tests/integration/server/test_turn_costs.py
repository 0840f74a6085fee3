"""The cost of a turn and a stream, in commits, reads, threads and memory."""

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lango import events, open_runtime
from lango.errors import StoreUnavailable
from lango.event_ids import IDS_PER_TURN
from lango.messages import Message
from lango.providers.protocol import Finish, TextDelta, UsageDelta
from lango.server.streaming import recorder
from lango.server.streaming.recorder import EventLogWriter
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine import sqlite
from lango.store.engine.database import Dialect, Operation
from lango.store.engine.sqlite import SqliteDatabase
from lango.store.sessions.sessions import create_session
from lango.store.turns.event_log import EventBatch, LoggedEvent, append_log_batches, append_log_events, read_event_log
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for
from tests.support.servers.server_process import send, serving, text_of


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: list[str]) -> None:
    """Record every call of a coroutine function, and pass it on."""
    real = getattr(owner, name)

    async def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return await real(*args, **kwargs)

    monkeypatch.setattr(owner, name, noted)


async def test_a_turn_takes_three_writes_two_reads_and_no_thread_of_its_own(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.repeat([TextDelta("yes"), UsageDelta(10, 5), Finish("stop")])
    calls: list[str] = []
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider(answers)) as runtime:
        await runtime.run("s", "the first turn makes the session, and loads what turns need")
        counted(monkeypatch, SqliteDatabase, "write", calls)
        counted(monkeypatch, SqliteDatabase, "read", calls)
        counted(monkeypatch, asyncio, "to_thread", calls)
        assert await runtime.run("s", "and now?") == "yes"
        monkeypatch.undo()
    assert sorted(calls) == ["read"] * 2 + ["write"] * 3


async def turns_under_way(store: Store, count: int) -> list[EventBatch]:
    """Start turns, and return the next event of each."""
    batches: list[EventBatch] = []
    for number in range(count):
        session = await store.write(create_session, SessionId("app", "alice", f"s{number}"), None, time.time())
        entry = NewEvent(f"e{number}", 1.0, Message("user", "hi"), invocation_id="inv")
        await store.submit_turn(session, entry, "owner")
        await store.write(append_log_events, session.key, 1, [event(1)])
        batches.append(EventBatch(session.key, 1, [event(2)]))
    return batches


def event(number: int) -> LoggedEvent:
    return LoggedEvent.of(events.TextDelta(IDS_PER_TURN + number, str(number)))


async def test_events_of_concurrent_streams_are_stored_in_one_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = await turns_under_way(store, 20)
    log, writes = EventLogWriter(store), list[str]()
    counted(monkeypatch, store, "write", writes)
    assert all(await asyncio.gather(*(log.append(batch) for batch in batches)))
    assert len(writes) == 1
    for batch in batches:
        assert (await store.read(read_event_log, batch.session_key, 1, IDS_PER_TURN + 1)).events == batch.events


async def test_a_failed_write_fails_for_every_stream_and_the_next_write_works(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = await turns_under_way(store, 3)
    log = EventLogWriter(store)

    async def away(*_: object) -> list[bool]:
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(store, "write", away)
        failed = await asyncio.gather(*(log.append(batch) for batch in batches), return_exceptions=True)
    assert [type(one) for one in failed] == [StoreUnavailable] * 3
    assert await asyncio.gather(*(log.append(batch) for batch in batches)) == [True] * 3


async def test_a_cancelled_append_does_not_cancel_others(store: Store) -> None:
    batches = await turns_under_way(store, 2)
    log = EventLogWriter(store)
    first, second = (asyncio.create_task(log.append(batch)) for batch in batches)
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    assert (await store.read(read_event_log, batches[1].session_key, 1, IDS_PER_TURN + 1)).events == batches[1].events


@pytest.mark.parametrize(("length", "on_loop"), [(10, True), (100_000, False)])
async def test_attack_16_large_events_are_encoded_and_logged_outside_the_event_loop(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, length: int, on_loop: bool
) -> None:
    """On a disk whose commits are fast, all else is written in the thread of the event loop."""
    monkeypatch.setattr(sqlite, "_FAST_COMMIT_S", math.inf)
    monkeypatch.setattr(sqlite, "_FAST_COMMITS_NEEDED", 0)
    threads: list[int] = []
    encode = LoggedEvent.of

    def noted_encode(event: events.TurnEvent) -> LoggedEvent:
        threads.append(threading.get_ident())
        return encode(event)

    def noted_append(batches: Sequence[EventBatch], dialect: Dialect) -> Operation[list[bool]]:
        threads.append(threading.get_ident())
        return (yield from append_log_batches(batches, dialect))

    async with Store(sqlite_url) as store:
        [batch] = await turns_under_way(store, 1)
        monkeypatch.setattr(LoggedEvent, "of", noted_encode)
        monkeypatch.setattr(recorder, "append_log_batches", noted_append)
        text = events.TextDelta(batch.events[0].id, "a" * length)
        logged = await recorder.encode_events([text])
        assert await EventLogWriter(store).append(replace(batch, events=logged))
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
