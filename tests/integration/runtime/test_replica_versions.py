"""A turn goes on in a replica of the version that ran it while one lives, and else in any other."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from lango import open_runtime
from lango.events import ToolStart
from lango.messages import ToolCall
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
        self._settings = settings_for(url, drain_s=0.0, version=version)
        self._stays = stays

    async def open(self, stack: AsyncExitStack) -> Runtime:
        wait = Tool("wait", "Wait.", {"type": "object", "properties": {}}, self._wait, effect="idempotent")
        return await stack.enter_async_context(open_runtime(self._settings, tools=[wait], provider=self.provider))

    async def _wait(self) -> str:
        if self._stays:
            await asyncio.get_running_loop().create_future()
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
