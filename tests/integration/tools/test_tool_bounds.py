"""Bounds on the tools of a turn: how many run at the same time, and how long each may take."""

import asyncio

from lango import open_runtime, tool
from lango.adk import AdkTool
from tests.agents.parts import collect, settings_for
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, story
from tests.support.runtimes import store_of

_AT_ONCE = 32


async def test_of_many_calls_in_one_response_a_few_run_at_a_time_and_the_results_keep_their_order(
    sqlite_url: str,
) -> None:
    running: set[str] = set()
    most = 0
    full = asyncio.Event()

    async def work(number: str) -> dict[str, str]:
        """Work."""
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        if len(running) == _AT_ONCE:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running.discard(number)
        return {"worked": number}

    numbers = [str(number) for number in range(3 * _AT_ONCE)]
    root = agent(Journal(), "r", [call("work", number=number) for number in numbers], "done", tools=[work])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
        results = (await story(store_of(runtime)))[2]
    assert most == _AT_ONCE
    places = [results.index(f'"worked": "{number}"') for number in numbers]
    assert places == sorted(places)


async def test_a_tool_in_a_users_module_has_the_time_limit_of_the_settings(sqlite_url: str) -> None:
    @tool(level="safe")
    async def wait() -> str:
        """Wait for something that never comes."""
        await asyncio.Event().wait()
        return ""

    root = agent(Journal(), "r", call("wait"), "done", tools=[AdkTool(wait)])
    async with open_runtime(settings_for(sqlite_url, tool_timeout_s=0.2), root_agent=root) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
        assert "timed out after 0.2 s" in (await story(store_of(runtime)))[2]
