"""A database that is away for a while: a running turn waits, a new request is refused, no session stays busy."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from lango import open_runtime
from lango.errors import OutcomeUnknown, StoreUnavailable
from lango.events import TurnDone
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.engine.outages import Outages, wait_for_database
from lango.store.engine.sqlite.sqlite_database import SqliteDatabase
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.sessions import create_session, find_session
from lango.testing import ScriptedProvider
from tests.agents.parts import (
    TIMEOUT_S,
    Gate,
    Leaps,
    broken_for,
    collect,
    last_error,
    messages,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.faults.store.test_unavailable import BUSY_TIMEOUT_S, Session, hold_the_lock
from tests.support.postgres_proxy import Proxy
from tests.support.runtimes import store_of
from tests.support.store_workers import NAME, Worker, ordinary

LONGER_THAN_A_REQUEST_S = 15.0
LONGER_THAN_A_TURN_S = 61.0
STEP_S = 10.0


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncGenerator[Proxy]:
    async with Proxy.before(postgres_url) as proxy:
        yield proxy


async def whole(runtime: Runtime, session: str = "s") -> None:
    assert await runtime.sessions.check(session) == []


async def pass_by(leaps: Leaps, proxy: Proxy, seconds: float) -> None:
    """Advance the clock past the time to wait while the database is away, with attempts in between."""
    while seconds > 0:
        await proxy.has_refused()
        leaps.leap(min(seconds, STEP_S))
        seconds -= STEP_S
    await proxy.has_refused()


@pytest.mark.postgres
async def test_a_turn_waits_for_postgres_as_long_as_store_wait_s_says(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, leaps = Gate(), Leaps(monkeypatch)
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "here I am"])
    async with open_runtime(settings_for(proxy.url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await proxy.go_away()
        gate.may_end.set()
        reading = asyncio.create_task(store_of(runtime).read(find_session, NAME))
        await pass_by(leaps, proxy, LONGER_THAN_A_REQUEST_S)
        with pytest.raises(StoreUnavailable) as refused:
            await reading
        assert refused.value.retry_after_s, "a request is refused, and may come again"
        assert not turn.finished
        await pass_by(leaps, proxy, LONGER_THAN_A_REQUEST_S)
        assert not turn.finished
        proxy.come_back()
        events = await collect(turn.follow())
        assert isinstance(events[-1], TurnDone), events
        assert text_of(events) == "here I am"
        assert gate.runs == 1
        assert store_of(runtime).outages.recovered_at > 0
        assert await statuses(runtime) == ["done"]
        await whole(runtime)


@pytest.mark.postgres
async def test_a_turn_that_waited_in_vain_ends_with_a_typed_error_and_frees_its_session(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, leaps = Gate(), Leaps(monkeypatch)
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "never said", "free again"])
    async with open_runtime(settings_for(proxy.url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await proxy.go_away()
        gate.may_end.set()
        await pass_by(leaps, proxy, LONGER_THAN_A_TURN_S)
        events = await collect(turn.follow())
        assert last_error(events).error == "StoreUnavailable"
        with pytest.raises(StoreUnavailable):  # at once: the outage has lasted long enough
            await runtime.submit("s", "too early")
        proxy.come_back()
        assert await asyncio.wait_for(runtime.run("s", "and now?"), TIMEOUT_S) == "never said"
        assert await statuses(runtime) == ["failed", "done"]
        await whole(runtime)
    assert not [broken for request in provider.requests for broken in broken_for(request)]


@pytest.mark.postgres
async def test_a_message_that_timed_out_does_not_block_later_ones(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, leaps = Gate(), Leaps(monkeypatch)
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "first", "third"])
    async with open_runtime(settings_for(proxy.url), provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.submit("s", "one")
        await gate.wait()
        second = await runtime.submit("s", "two")
        await proxy.go_away()
        await pass_by(leaps, proxy, LONGER_THAN_A_TURN_S)
        assert last_error(await collect(second.follow())).error == "StoreUnavailable"
        proxy.come_back()
        gate.may_end.set()
        assert text_of(await collect(first.follow())) == "first"
        assert await asyncio.wait_for(runtime.run("s", "three"), TIMEOUT_S) == "third"
        assert await statuses(runtime) == ["done", "interrupted", "done"]
        assert [one.content for one in await messages(runtime) if one.role == "user"] == ["one", "two", "three"]
        await whole(runtime)


@pytest.mark.postgres
@pytest.mark.parametrize("key", [None, "a key"])
async def test_a_message_with_unknown_outcome_does_not_block_its_session(
    proxy: Proxy, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaps = Leaps(monkeypatch)
    provider = ScriptedProvider(["one", "three"] if key is None else ["one", "two", "three"])
    async with open_runtime(settings_for(proxy.url), provider=provider) as runtime:
        assert await runtime.run("s", "first") == "one"
        proxy.lose(1, "answer", then_away=True)
        sent = asyncio.create_task(runtime.submit("s", "second", idempotency_key=key))
        await pass_by(leaps, proxy, LONGER_THAN_A_REQUEST_S)
        with pytest.raises(OutcomeUnknown, match="its outcome is unknown") as unknown:
            await sent
        assert unknown.value.retry_after_s
        proxy.come_back()
        if key is not None:
            again = asyncio.wait_for(runtime.run("s", "second", idempotency_key=key), TIMEOUT_S)
            assert await again == "two", "the key leads to the turn that was stored, which runs"
        assert await asyncio.wait_for(runtime.run("s", "third"), TIMEOUT_S) == "three"
        assert await statuses(runtime) == ["done", "interrupted" if key is None else "done", "done"]
        assert [one.content for one in await messages(runtime) if one.role == "user"] == ["first", "second", "third"]
        await whole(runtime)


@pytest.mark.postgres
async def test_an_ordinary_event_with_unknown_outcome_is_recognised_later(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaps = Leaps(monkeypatch)
    async with Store(proxy.url) as store:
        session = await store.write(create_session, NAME, None, time.time())
        one = ordinary(1)
        proxy.lose(1, "answer", then_away=True)
        writing = asyncio.create_task(store.append(session.key, NAME, 0, one, last_seq=0))
        await proxy.has_refused()
        leaps.leap(LONGER_THAN_A_REQUEST_S)
        with pytest.raises(OutcomeUnknown):
            await writing
        proxy.come_back()
        again = await store.append(session.key, NAME, 0, one, last_seq=0)
        assert (again.seq, again.repeated) == (1, True)
        assert await store.read(check_session, NAME) == []


async def test_an_outage_is_logged_when_it_begins_and_ends_and_seldom_in_between(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.engine.outages._DELAYS_S", (0.0,))
    monkeypatch.setattr("lango.store.engine.outages._WARNING_INTERVAL_S", float("inf"))
    outages, attempts = Outages(TIMEOUT_S, TIMEOUT_S), iter(range(100))

    async def attempt() -> str:
        match next(attempts):
            case 49:
                monkeypatch.setattr("lango.store.engine.outages._WARNING_INTERVAL_S", 0.0)
            case 50:
                monkeypatch.setattr("lango.store.engine.outages._WARNING_INTERVAL_S", float("inf"))
            case 99:
                return "there"
            case _:
                pass
        raise StoreUnavailable("it is away", retry_after_s=1.0)

    assert await outages.retry(attempt, writes=True) == "there"
    first, in_between, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("it is away; retrying for another")
    assert in_between.endswith("(48 more failures before)")
    assert last == "the database is available again (49 failures were not logged)"


async def test_reads_that_succeed_do_not_end_an_outage_of_writes() -> None:
    outages = Outages(0.0, 0.0)

    async def attempt() -> None:
        raise StoreUnavailable("the disk is full", retry_after_s=1.0)

    with pytest.raises(StoreUnavailable):
        await outages.retry(attempt, writes=True)
    outages.database_available(wrote=False)
    assert (outages.is_away, outages.recovered_at) == (True, 0.0)
    outages.database_available(wrote=True)
    assert not outages.is_away
    assert outages.recovered_at > 0


# -- rows of transactions -----------------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_rows_of_commits_are_few_and_are_deleted(postgres_url: str) -> None:
    async with Store(postgres_url) as store:
        await asyncio.gather(
            *(store.write(create_session, SessionId("app", "user", f"s{n}"), None, time.time()) for n in range(50))
        )
        assert len(await rows(store, "SELECT slot FROM commits")) <= 10, "one for each connection that was used"
        await store.write(_long_ago)
    async with Store(postgres_url) as store:
        assert len(await rows(store, "SELECT slot FROM commits")) == 1, "that of opening the store just now"


def _long_ago() -> Operation[None]:
    yield "UPDATE commits SET used_at = now() - interval '8 days'", ()


@pytest.mark.postgres
async def test_a_process_frozen_in_a_transaction_does_not_block_others_forever(postgres_url: str) -> None:
    def limit() -> Operation[str]:
        [[limit]] = yield "SHOW idle_in_transaction_session_timeout", ()
        return limit

    async with Store(postgres_url) as store:
        assert await store.write(limit) == "15s"


@pytest.mark.postgres
async def test_a_server_that_is_briefly_read_only_is_retried(postgres_url: str) -> None:
    """As during a failover."""
    attempts = 0

    def write() -> Operation[int]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            yield "SET TRANSACTION READ ONLY", ()
        yield "UPDATE sessions SET epoch = epoch", ()
        return attempts

    async with Store(postgres_url) as store:
        assert await store.write(write) == 2


# -- SQLite ----------------------------------------------------------------------------------------------------------


async def test_a_turn_waits_for_a_locked_file_as_long_as_store_wait_s_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lango.db"
    session = Session(path)
    session.database = SqliteDatabase(str(path), busy_timeout_s=BUSY_TIMEOUT_S, wait_s=TIMEOUT_S)
    await session.create()
    other = Worker(hold_the_lock, str(path))
    other.send("lock")
    assert other.recv() == "locked"
    with wait_for_database(), caplog.at_level(logging.WARNING):
        waiting = asyncio.create_task(session.append())
        while "retrying for another" not in caplog.text:
            assert not waiting.done(), "it gave up"
            await asyncio.sleep(0.01)
    other.send("free")
    assert other.recv() == "free"
    assert await asyncio.wait_for(waiting, TIMEOUT_S) == 1
    assert await session.check() == 1
    await session.database.close()

    other.send("lock")
    assert other.recv() == "locked"
    session.database = SqliteDatabase(str(path), busy_timeout_s=BUSY_TIMEOUT_S, wait_s=0.1)
    with wait_for_database(), pytest.raises(StoreUnavailable, match="is locked"):
        await session.append()
    await session.database.close()
    other.kill()
