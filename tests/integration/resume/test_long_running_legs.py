"""Kills around the results of long-running tools: every commit of the call, of an update and of the final result."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import LongRunningFunctionTool

from lango import open_runtime
from lango.errors import WaitNotOpen
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from tests.agents.answers import submit_results
from tests.agents.parts import collect, rows, settings_for
from tests.support.kill_points import copy_after_each_commit, left_behind, story, until_idle
from tests.support.runtimes import store_of


def answer(request: Request) -> Any:
    """Order once, then say what the newest result is."""
    results = [call.output for message in request.messages if message.role == "tool" for call in message.tool_calls]
    return f"now: {dict(results[-1] or {})}" if results else ToolCall("c1", "order", {"item": "boat"})


class Shop:
    """A runtime with a long-running tool, and a model that answers by what it is sent."""

    def __init__(self, first_report: dict[str, str] | None) -> None:
        self.orders = 0
        self._first_report = first_report

    def open(self, file: Path) -> Any:
        def order(item: str) -> dict[str, str] | None:
            """Order something."""
            self.orders += 1
            return self._first_report

        agent = LlmAgent(name="clerk", tools=[LongRunningFunctionTool(order)])
        provider = ScriptedProvider(answer for _ in range(20))
        return open_runtime(settings_for(f"sqlite:///{file}"), provider=provider, root_agent=agent)


async def ask(runtime: Runtime) -> None:
    await collect((await runtime.submit("s", "order a boat")).follow())


async def update(runtime: Runtime) -> None:
    await collect((await submit_results(runtime, "s", {"c1": {"at": "sea"}}, will_continue=True)).follow())


async def finish(runtime: Runtime) -> None:
    await collect((await submit_results(runtime, "s", {"c1": {"at": "home"}})).follow())


LEGS: list[Callable[[Runtime], Awaitable[None]]] = [ask, update, finish]


@pytest.mark.parametrize("first_report", [None, {"status": "pending"}], ids=["returns nothing", "returns a ticket"])
@pytest.mark.parametrize("killed", [0, 1, 2], ids=["the call", "the update", "the result"])
async def test_each_leg_goes_on_after_a_kill_at_each_commit(
    tmp_path: Path, killed: int, first_report: dict[str, str] | None
) -> None:
    async with Shop(first_report).open(tmp_path / "first.db") as runtime:
        await runtime.sessions.create("s")
        copies: list[Path] = []
        for number, leg in enumerate(LEGS):
            if number == killed:
                copies = await copy_after_each_commit(runtime, tmp_path, lambda leg=leg: leg(runtime))
            else:
                await leg(runtime)
        whole = await story(store_of(runtime))
    assert len(copies) >= 3
    for copy in copies:
        before = left_behind(copy)
        shop = Shop(first_report)
        async with shop.open(copy) as runtime:
            await until_idle(runtime)
            if any("outcome is unknown" in line for line in await story(store_of(runtime))):
                assert killed == 0
                with pytest.raises(WaitNotOpen):  # whether the order was made is not known
                    await update(runtime)
                continue
            for leg in LEGS[killed + 1 :]:
                await leg(runtime)
            assert await story(store_of(runtime)) == whole, copy.name
            assert set(await rows(store_of(runtime), "SELECT status FROM turns")) == {("done",)}, copy.name
            assert shop.orders + before.finished["order"] == 1, copy.name
            with pytest.raises(WaitNotOpen):
                await finish(runtime)
