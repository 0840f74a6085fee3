"""Timers that are due at once, on several replicas of which one is killed: each continues its turn once."""

import asyncio
from pathlib import Path
from typing import Any

from lango import open_runtime
from tests.agents.parts import TIMEOUT_S, collect, messages, rows, settings_for
from tests.support.runtimes import store_of
from tests.support.store_workers import Worker
from tests.support.timer_worker import alarm_clock, serve_alarm_clock

SESSIONS = [f"s{number}" for number in range(12)]


def due() -> Any:
    yield "UPDATE waits SET expires_at = 1.0 WHERE closed IS NULL", ()


async def test_each_timer_wakes_its_turn_once_while_a_replica_is_killed(store_url: str, tmp_path: Path) -> None:
    async with open_runtime(settings_for(store_url), root_agent=alarm_clock(tmp_path)) as runtime:
        for name in SESSIONS:
            await collect(runtime.stream(name, "wake me"))
    workers = [Worker(serve_alarm_clock, store_url, str(tmp_path)) for _ in range(2)]
    assert [worker.recv() for worker in workers] == ["ready", "ready"]
    async with open_runtime(settings_for(store_url), root_agent=alarm_clock(tmp_path), every_session=False) as runtime:
        await store_of(runtime).write(due)
        async with asyncio.timeout(TIMEOUT_S):
            while len([*tmp_path.iterdir()]) < 3:
                await asyncio.sleep(0.001)
            workers[0].kill()
            counted = "SELECT COUNT(*) FROM turns WHERE status = 'done'"
            while await rows(store_of(runtime), counted) != [(2 * len(SESSIONS),)]:
                await asyncio.sleep(0.05)
        workers[1].send("stop")
        workers[1].join()
        assert await rows(store_of(runtime), "SELECT DISTINCT COUNT(*) FROM turns GROUP BY session_key") == [(2,)]
        assert await rows(store_of(runtime), "SELECT closed, COUNT(*) FROM waits GROUP BY closed") == [
            ("answered", len(SESSIONS))
        ]
        for name in SESSIONS:
            found = await messages(runtime, name)
            assert [one.role for one in found] == ["user", "assistant", "tool", "assistant"]
            assert found[-1].content == "awake"
            rung = (tmp_path / name).read_text().count("ring")
            assert 1 <= rung <= 2, "a node that was killed runs again, once"
