"""An instruction that a request adds for its turn: after the agent's own, stored with the turn, never in another."""

import itertools
from pathlib import Path

import pytest
from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.tools.agent_tool import AgentTool

from lango import Tool, open_runtime
from lango.messages import ToolCall
from lango.providers import Request
from lango.submissions import ModelOptions
from lango.testing import Answer, ScriptedProvider
from tests.agents.answers import approve
from tests.agents.parts import collect, settings_for
from tests.support.kill_points import copy_after_each_commit, until_idle


def note(text: str) -> str:
    return text


NOTE = Tool("note", "Note a text.", {"type": "object", "properties": {"text": {"type": "string"}}}, note)


def answer(request: Request) -> Answer:
    return "done" if request.messages[-1].role == "tool" else ToolCall("c1", "note", {"text": "x"})


def model() -> ScriptedProvider:
    return ScriptedProvider(itertools.repeat(answer))


async def test_an_added_instruction_holds_for_its_turn_in_any_process(tmp_path: Path) -> None:
    provider = model()
    settings = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(settings, tools=[NOTE], provider=provider) as first:

        async def run() -> None:
            options = ModelOptions(instruction="Be brief.", client_request={"a": 1})
            await collect((await first.submit("s", "go", options=options)).follow())

        copies = await copy_after_each_commit(first, tmp_path, run)
        await collect((await first.submit("s", "and on")).follow())
    *of_turn, before_last, last = [request.system for request in provider.requests]
    assert len(of_turn) == 2
    assert all(system.endswith("Be brief.") for system in of_turn)
    assert before_last == last
    added = of_turn[0].removeprefix(last)
    assert added != of_turn[0], "after the agent's own"
    assert added.startswith("\n\nThe client that sent this request added these instructions."), "marked as the client's"
    left = set[int]()
    for copy in copies:
        provider = model()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), tools=[NOTE], provider=provider) as later:
            await until_idle(later)
        assert all(request.system.endswith("Be brief.") for request in provider.requests), copy.name
        left.add(len(provider.requests))
    assert {0, 1, 2} <= left, "killed before the first model call, between the two, and after both"


async def test_an_instruction_holds_after_a_pause_and_in_the_queue(tmp_path: Path) -> None:
    provider = ScriptedProvider(["first", ToolCall("c1", "send", {"text": "x"}), "sent"])
    settings = settings_for(f"sqlite:///{tmp_path}/pause.db")
    send = Tool("send", "Send a text.", NOTE.parameters, note, level="dangerous")
    async with open_runtime(settings, tools=[send], provider=provider) as runtime:
        first = await runtime.submit("s", "go", options=ModelOptions(instruction="Be brief."))
        queued = await runtime.submit("s", "and on", options=ModelOptions(instruction="Be kind."))
        await collect(first.follow())
        await collect(queued.follow())
        await collect(approve(runtime, "s", "c1", approved=True))
    assert [request.system.rpartition("\n\n")[2] for request in provider.requests] == [
        "Be brief.",
        "Be kind.",
        "Be kind.",
    ], "the answer continues the turn that paused"


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own use of it
@pytest.mark.filterwarnings("ignore:ParallelAgent")
async def test_agents_that_run_in_parallel_read_it_and_agents_that_are_tools_do_not(tmp_path: Path) -> None:
    options = ModelOptions(instruction="Be brief.")
    provider = ScriptedProvider([ToolCall("a1", "helper", {"request": "help"}), "helped", "done", "one", "two"])
    helper = LlmAgent(name="helper", model="any", description="Helps.")
    root = LlmAgent(name="root", model="any", tools=[AgentTool(helper)])
    sides = [LlmAgent(name=name, model="any") for name in ("left", "right")]
    both = ParallelAgent(name="both", sub_agents=[*sides])  # pyright: ignore[reportDeprecated]
    for agent in (root, both):
        settings = settings_for(f"sqlite:///{tmp_path}/{agent.name}.db")
        async with open_runtime(settings, provider=provider, root_agent=agent) as runtime:
            await collect((await runtime.submit("s", "go", options=options)).follow())
    assert ["Be brief." in request.system for request in provider.requests] == [True, False, True, True, True]
