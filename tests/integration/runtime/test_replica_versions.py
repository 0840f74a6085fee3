"""A turn goes on in a replica of the version that ran it while one lives, and else in any other."""

import asyncio
import importlib
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lango import open_runtime
from lango.events import ToolStart
from lango.messages import ToolCall
from lango.runtime.execution import take_over
from lango.runtime.execution.replicas import Replicas
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import TIMEOUT_S, settings_for, statuses, until

OLD, NEW = "1", "2"


class Replica:
    """A runtime with a version of the app, and the model that it asks."""

    def __init__(self, url: str, version: str, answers: list[str | ToolCall], *, stays: bool = False) -> None:
        """With `stays`, its tool never returns."""
        self.provider = ScriptedProvider(answers)
        self._settings = settings_for(url, drain_s=0.0 if stays else TIMEOUT_S, version=version)
        self._stays = stays
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, stack: AsyncExitStack) -> Runtime:
        wait = Tool("wait", "Wait.", {"type": "object", "properties": {}}, self._wait, effect="idempotent")
        return await stack.enter_async_context(open_runtime(self._settings, tools=[wait], provider=self.provider))

    async def _wait(self) -> str:
        if self._stays:
            await asyncio.get_running_loop().create_future()
        await self.gate.wait()
        return "waited"


async def all_listed(runtime: Runtime, count: int) -> None:
    """Wait until so many replicas are listed."""
    while len(await runtime.replicas()) != count:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("order", [(NEW, OLD), (OLD, NEW)])
async def test_a_released_turn_goes_to_a_replica_of_its_version(store_url: str, order: tuple[str, str]) -> None:
    async with AsyncExitStack() as others, AsyncExitStack() as own, asyncio.timeout(TIMEOUT_S):
        replicas = {version: Replica(store_url, version, [f"from version {version}"]) for version in order}
        opened = {version: await replica.open(others) for version, replica in replicas.items()}
        first = Replica(store_url, OLD, [ToolCall("c1", "wait", {})], stays=True)
        runtime = await first.open(own)
        await all_listed(runtime, 3)
        turn = await runtime.submit("s", "wait, then answer")
        await until(turn.follow(), ToolStart)
        await own.aclose()
        while await statuses(opened[OLD]) != ["done"]:
            await asyncio.sleep(0.01)
        assert [len(replicas[version].provider.requests) for version in (OLD, NEW)] == [1, 0]


async def test_a_released_turn_goes_to_another_version_when_none_of_its_own_is_left(store_url: str) -> None:
    async with AsyncExitStack() as others, AsyncExitStack() as own, asyncio.timeout(TIMEOUT_S):
        newer = Replica(store_url, NEW, ["from version 2"])
        there = await newer.open(others)
        first = Replica(store_url, OLD, [ToolCall("c1", "wait", {})], stays=True)
        runtime = await first.open(own)
        await all_listed(runtime, 2)
        turn = await runtime.submit("s", "wait, then answer")
        await until(turn.follow(), ToolStart)
        await own.aclose()
        while await statuses(there) != ["done"]:
            await asyncio.sleep(0.01)
        assert len(newer.provider.requests) == 1
        assert [one.version for one in await there.replicas()] == [NEW]


async def test_a_turn_released_before_the_last_replica_of_its_version_left_is_taken_over_once_it_has_left(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    class Watched(Replicas):
        async def versions_elsewhere(self) -> set[str]:
            found = await super().versions_elsewhere()
            looked.set()
            return found

    monkeypatch.setattr("lango.runtime.execution.turn_supervisor.Replicas", Watched)
    driver: Any = importlib.import_module("asyncpg")  # it ships no types
    first, newer = Replica(postgres_url, OLD, [ToolCall("c1", "wait", {})]), Replica(postgres_url, NEW, ["answered"])
    first.gate.clear()
    async with AsyncExitStack() as others, AsyncExitStack() as own, asyncio.timeout(TIMEOUT_S):
        there, runtime = await newer.open(others), await first.open(own)
        await all_listed(runtime, 2)
        turn = await runtime.submit("s", "wait, then answer")
        await until(turn.follow(), ToolStart)
        monkeypatch.setattr(take_over, "POLL_S", 1e9)  # only a notification leads to the take-over
        locker = await driver.connect(postgres_url.partition("&schema")[0])
        try:
            await locker.execute("BEGIN; LOCK TABLE test.replicas IN SHARE MODE")  # so that it cannot leave
            stopping = asyncio.create_task(own.aclose())
            await asyncio.sleep(0)
            first.gate.set()
            await looked.wait()
            assert await statuses(there) == ["running"], "a replica of its version is still listed"
        finally:
            await locker.close()
        await stopping
        while await statuses(there) != ["done"]:
            await asyncio.sleep(0.01)
