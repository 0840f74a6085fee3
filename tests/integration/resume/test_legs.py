"""Kills in a turn that continues after a pause: an approval, or the result of a client's tool."""

from pathlib import Path
from typing import Any

import pytest

from lango import open_runtime
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool, client_tool
from tests.agents.answers import submit_approval, submit_results
from tests.agents.parts import collect, settings_for
from tests.support.kill_points import copy_after_each_commit, left_behind, story, until_idle
from tests.support.runtimes import store_of

PICK = client_tool("pick", "Pick a color.", {"type": "object", "properties": {}})


def answer(request: Request) -> Any:
    """Pay once and let the client pick once, then say what came of it."""
    results = [call.name for message in request.messages if message.role == "tool" for call in message.tool_calls]
    if "pay" not in results:
        return ["I pay. ", ToolCall("p1", "pay", {})]
    if "pick" not in results:
        return ToolCall("c1", "pick", {})
    return "all is done"


class Teller:
    """A runtime whose tool needs approval, with a model that answers by what it is sent."""

    def __init__(self) -> None:
        self.paid = 0
        self.provider = ScriptedProvider(answer for _ in range(20))

    def open(self, file: Path) -> Any:
        def pay() -> str:
            self.paid += 1
            return "paid"

        tool = Tool("pay", "Pay.", None, pay, level="dangerous", effect="once")
        settings = settings_for(f"sqlite:///{file}", tools={"approval": "ask"})
        return open_runtime(settings, provider=self.provider, tools=[tool])


async def approve(runtime: Runtime) -> None:
    await collect((await submit_approval(runtime, "s", "p1", approved=True, client_tools=[PICK])).follow())


async def bring_result(runtime: Runtime) -> None:
    await collect((await submit_results(runtime, "s", {"c1": {"color": "red"}})).follow())


@pytest.mark.parametrize("leg", ["the approval", "the client's result"])
async def test_a_leg_after_a_pause_goes_on_after_a_kill_at_each_commit(tmp_path: Path, leg: str) -> None:
    teller = Teller()
    async with teller.open(tmp_path / "first.db") as runtime:
        await collect((await runtime.submit("s", "go", client_tools=[PICK])).follow())
        if leg == "the approval":
            copies = await copy_after_each_commit(runtime, tmp_path, lambda: approve(runtime))
            await bring_result(runtime)
        else:
            await approve(runtime)
            copies = await copy_after_each_commit(runtime, tmp_path, lambda: bring_result(runtime))
        whole = await story(store_of(runtime))
    assert len(copies) >= 3
    for copy in copies:
        before = left_behind(copy)
        again = Teller()
        async with again.open(copy) as runtime:
            await until_idle(runtime)
            if leg == "the approval":
                await bring_result(runtime)
            ended = await story(store_of(runtime))
        assert again.paid + before.finished["pay"] <= 1, copy.name
        if not any("outcome is unknown" in line for line in ended):
            assert ended == whole, copy.name
            assert again.paid + before.finished["pay"] == 1, copy.name
