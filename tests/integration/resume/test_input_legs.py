"""Kills around a pause for a person's input: before the question, between question and answer, and after the answer."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.events import RequestInput
from google.adk.workflow import START, BaseNode, JoinNode, Workflow, node
from typing_extensions import override

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.runtime.runtime import Runtime
from tests.agents.answers import open_inputs, submit_input
from tests.agents.parts import collect, settings_for, statuses
from tests.support.agent_shapes import agent, call, fetch, nodes, pay
from tests.support.kill_points import (
    Journal,
    MakeAgent,
    copy_after_each_commit,
    left_behind,
    story,
    until_idle,
)
from tests.support.runtimes import store_of


def asking(name: str = "ask", schema: Any = str) -> Any:
    async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
        yield RequestInput(message="How many?", response_schema=schema)

    return node(ask, name=name)


def asking_again(journal: Journal) -> Any:
    """Make a node that runs again with the answer."""

    async def ask(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        if "how_many" not in ctx.resume_inputs:
            yield RequestInput(interrupt_id="how_many", message="How many?", response_schema=str)
            return
        journal.effects.append("ask")
        yield f"{ctx.resume_inputs['how_many']} wanted"

    return node(ask, rerun_on_resume=True)


class OwnNode(BaseNode):
    """A node that ADK knows nothing about: its input request has another id in each run."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield RequestInput(message="How many?", response_schema=str)


def between(j: Journal) -> Any:
    one, two, three = nodes(j)
    return Workflow(name="r", edges=[(START, one, asking(), two, three)])


def between_agents(j: Journal) -> Any:
    first = agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)])
    last = agent(j, "b", call("pay", x="2"), "B done", tools=[pay(j)])
    return Workflow(name="r", edges=[(START, first, asking(), last)])


def in_parallel(j: Journal) -> Any:
    one, _, three = nodes(j)
    return Workflow(name="r", edges=[(START, (one, asking()), JoinNode(name="join"), three)])


def nested(j: Journal) -> Any:
    one, two, three = nodes(j)
    inner = Workflow(name="inner", edges=[(START, two, asking())])
    return Workflow(name="r", edges=[(START, one, inner, three)])


def rerun(j: Journal) -> Any:
    one, two, _ = nodes(j)
    return Workflow(name="r", edges=[(START, one, asking_again(j), two)])


def own_node(j: Journal) -> Any:
    one, two, _ = nodes(j)
    return Workflow(name="r", edges=[(START, one, OwnNode(name="own"), two)])


def tool_with_approval(j: Journal) -> Any:
    def wipe(text: str) -> dict[str, str]:
        """Wipe a disk."""
        j.effects.append("wipe")
        return {"wiped": text}

    def disk(node_input: Any) -> dict[str, str]:
        return {"text": "disk"}

    _, _, three = nodes(j)
    return Workflow(name="r", edges=[(START, disk, AdkTool(tool(level="dangerous")(wipe)), three)])


SHAPES: dict[str, MakeAgent] = {
    "a tool that needs approval": tool_with_approval,
    "functions": between,
    "agents": between_agents,
    "parallel": in_parallel,
    "nested": nested,
    "a node that runs again": rerun,
    "a node of one's own": own_node,
}


async def ask(runtime: Runtime) -> None:
    await collect((await runtime.submit("s", "go")).follow())


async def give(runtime: Runtime) -> None:
    for request in await open_inputs(runtime, "s"):
        value = "yes" if "confirmed" in (request.schema or {}).get("properties", {}) else "3 of them"
        await collect((await submit_input(runtime, "s", request.id, value)).follow())


async def conversation(runtime: Runtime) -> list[str]:
    """Return the conversation without the ids that ADK gives to input requests."""
    return [re.sub(r'"interruptId": "[^"]*"', '"interruptId": ""', line) for line in await story(store_of(runtime))]


@pytest.mark.parametrize("leg", ["the question", "the answer"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_workflow_that_asks_goes_on_after_a_kill_at_each_commit(tmp_path: Path, shape: str, leg: str) -> None:
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=SHAPES[shape](journal)) as runtime:
        await runtime.sessions.create("s")
        if leg == "the question":
            copies = await copy_after_each_commit(runtime, tmp_path, lambda: ask(runtime))
            await give(runtime)
        else:
            await ask(runtime)
            copies = await copy_after_each_commit(runtime, tmp_path, lambda: give(runtime))
        whole = await conversation(runtime)
        assert await statuses(runtime) == ["done", "done"]
    assert len(copies) >= 3
    for copy in copies:
        before, again = left_behind(copy), Journal()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=SHAPES[shape](again)) as runtime:
            await until_idle(runtime)
            await give(runtime)
            ended = await conversation(runtime)
            assert await statuses(runtime) == ["done", "done"], copy.name
        if any("outcome is unknown" in line for line in ended):
            continue  # a tool that had begun is never run again: the model reads that its outcome is unknown
        unordered = shape == "parallel"
        assert (sorted(ended) if unordered else ended) == (sorted(whole) if unordered else whole), copy.name
        names = journal.effects_by_name
        for name in names:
            done = again.effects_by_name[name] + before.finished[name]
            # a node that asks finishes once with its question, and once with its answer
            assert done <= names[name] + (name == "ask"), f"{copy.name}: {name} ran again"
        assert again.calls_by_agent + before.responses == journal.calls_by_agent, copy.name
