"""A process that stops hands its turns over."""

import asyncio
import importlib
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import TurnReleased
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.agents.parts import TIMEOUT_S, Gate, collect, settings_for
from tests.support.runtimes import supervisor_of


async def test_no_step_begins_while_the_stopping_process_leaves_the_list_of_replicas(postgres_url: str) -> None:
    driver: Any = importlib.import_module("asyncpg")  # it ships no types
    provider, gate = ScriptedProvider([ToolCall("c1", "wait_here", {}), "too late"]), Gate()
    async with open_runtime(settings_for(postgres_url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "go")
        await gate.wait()
        locker = await driver.connect(postgres_url.partition("&schema")[0])
        try:
            await locker.execute("BEGIN; LOCK TABLE test.replicas IN SHARE MODE")  # so that it cannot leave
            stopping = asyncio.create_task(supervisor_of(runtime).hand_over(TIMEOUT_S))
            await asyncio.sleep(0)
            gate.may_end.set()
            with pytest.raises(TurnReleased):
                await collect(turn.follow())
            assert not stopping.done()
        finally:
            await locker.close()
        await stopping
    assert len(provider.requests) == 1, "the model was not called after the tool"
