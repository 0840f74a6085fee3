"""Real processes on one database: S10, and two that start at the same moment."""

import time
import uuid
from pathlib import Path

import pytest

from lango.adk.services.session_service import SqlSessionService
from lango.store import Store
from lango.store.engine.schema import load_migrations
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import read_session_events
from tests.support.store_workers import (
    NAME,
    Worker,
    hold_a_session,
    load,
    numbered_event,
    open_on_request,
    write_with_reload,
)

WRITES = 300
NEWEST = load_migrations().newest


async def make_session(url: str) -> None:
    async with Store(url) as store:
        await store.write(create_session, NAME, None, time.time())


async def test_s10_two_processes_write_300_events_each_and_nothing_is_lost(store_url: str) -> None:
    await make_session(store_url)
    workers = {name: Worker(write_with_reload, store_url, name, WRITES) for name in ("a", "b")}
    for worker in workers.values():
        assert worker.recv() == "ready"
    for worker in workers.values():
        worker.send("go")
    outcomes = {name: worker.recv() for name, worker in workers.items()}
    for worker in workers.values():
        worker.join()

    async with SqlSessionService(store_url) as service:
        session = await load(service)
        found = await service.store.read(read_session_events, NAME)
    assert found
    record, stored = found
    assert [one.seq for one in stored] == list(range(1, 2 * WRITES + 1)), "no gap, no double"
    assert record.revision == record.last_seq == 2 * WRITES
    said = [event.content.parts[0].text for event in session.events]
    assert sum(stale for _, stale in outcomes.values()) > 0, "the two never met: this shows nothing"
    for name, (accepted, _) in outcomes.items():
        # each write was accepted by a session that showed all that stood before it, and nothing was accepted twice
        assert [number for number, _ in accepted] == list(range(WRITES))
        for number, seen in accepted:
            assert said[seen] == f"{name}:{number}", "accepted while stale"
    for name in workers:
        for number in range(WRITES):
            assert session.state[f"{name}{number}"] == number
            assert session.state[f"user:{name}{number}"] == number


async def test_s10_a_stale_writer_in_another_process_gets_adks_error(store_url: str) -> None:
    await make_session(store_url)
    other = Worker(hold_a_session, store_url)
    assert other.recv() == 0
    async with SqlSessionService(store_url) as service:
        session = await load(service)
        await service.append_event(session, numbered_event("here", 1))
        other.send("write now")
        assert other.recv().startswith("StaleSessionError: session 'shared' was written by another writer")
        assert other.recv() == 2, "loaded again, it can write"
        texts = [event.content.parts[0].text for event in (await load(service)).events]
    other.join()
    assert texts == ["here:1", "held:2"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_that_open_a_fresh_database_at_the_same_time_all_get_in(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres_server") if kind == "postgres" else ""
    workers = [Worker(open_on_request) for _ in range(4)]
    for worker in workers:
        assert worker.recv() == "ready"
    for n in range(15):
        url = f"{server}&schema=race_{uuid.uuid4().hex[:12]}" if server else f"sqlite:///{tmp_path}/{n}.db"
        for worker in workers:
            worker.send(url)
        assert [worker.recv() for worker in workers] == [f"schema {NEWEST}"] * 4
    for worker in workers:
        worker.send(None)
        worker.join()
