"""A turn that is killed after any of its commits goes on, for every shape of agent."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, JoinNode, Workflow
from typing_extensions import override

from tests.support.kill_points import Journal, MakeAgent, PlannedModel, Step, go_on, left_behind, run_and_copy


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def fetch(journal: Journal) -> Any:
    def fetch(x: str = "") -> dict[str, str]:
        """Fetch something."""
        journal.effects.append(f"fetch {x}")
        return {"fetched": x}

    return fetch


def pay(journal: Journal) -> Any:
    def pay(x: str = "") -> dict[str, str]:
        """Pay something."""
        journal.effects.append(f"pay {x}")
        return {"paid": x}

    return pay


def agent(journal: Journal, name: str, *plan: Step, tools: Any = (), **more: Any) -> LlmAgent:
    model = PlannedModel(model="planned", plan=list(plan), agent=name, journal=journal)
    return LlmAgent(name=name, model=model, tools=list(tools), **more)


class Own(BaseAgent):
    @override
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for sub in self.sub_agents:
            async for event in sub.run_async(ctx):
                yield event


def a_and_b(j: Journal) -> list[Any]:
    return [
        agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)]),
        agent(j, "b", call("pay", x="2"), "B done", tools=[pay(j)]),
    ]


def with_transfer(j: Journal) -> Any:
    sub = agent(
        j,
        "b",
        call("pay", x="2"),
        "B done",
        tools=[pay(j)],
        disallow_transfer_to_parent=True,
        disallow_transfer_to_peers=True,
    )
    return agent(j, "r", call("transfer_to_agent", agent_name="b"), "never", sub_agents=[sub])


def nodes(j: Journal) -> tuple[Any, Any, Any]:
    def one(node_input: str) -> str:
        j.effects.append("one")
        return "from one"

    def two(node_input: str) -> str:
        j.effects.append("two")
        return "from two"

    def three(node_input: Any) -> str:
        j.effects.append("three")
        return "from three"

    return one, two, three


def functions(j: Journal) -> Any:
    one, two, _ = nodes(j)
    return Workflow(name="r", edges=[(START, one), (one, two), (two, agent(j, "e", "end"))])


def function_agent_function(j: Journal) -> Any:
    one, two, _ = nodes(j)
    middle = agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)])
    return Workflow(name="r", edges=[(START, one), (one, middle), (middle, two), (two, agent(j, "e", "end"))])


def fan_out(j: Journal) -> Any:
    one, two, three = nodes(j)
    join = JoinNode(name="join")
    return Workflow(
        name="r",
        edges=[(START, (one, two)), ((one, two), join), (join, three), (three, agent(j, "e", "end"))],
    )


SHAPES: dict[str, MakeAgent] = {
    "workflow of functions": functions,
    "workflow of function, agent, function": function_agent_function,
    "workflow with fan-out and join": fan_out,
    "one tool": lambda j: agent(j, "r", call("fetch", x="1"), "done", tools=[fetch(j)]),
    "three calls": lambda j: agent(
        j,
        "r",
        call("fetch", x="1"),
        call("pay", x="2"),
        call("fetch", x="3"),
        "done",
        tools=[fetch(j), pay(j)],
    ),
    "parallel calls": lambda j: agent(
        j, "r", [call("fetch", x="1"), call("pay", x="2")], "done", tools=[fetch(j), pay(j)]
    ),
    "transfer": with_transfer,
    "agent tool": lambda j: agent(
        j,
        "r",
        call("b", request="go"),
        "done",
        tools=[AgentTool(agent(j, "b", call("pay", x="2"), "B done", tools=[pay(j)]))],
    ),
    "sequence": lambda j: SequentialAgent(name="r", sub_agents=a_and_b(j)),  # pyright: ignore[reportDeprecated]
    "parallel": lambda j: ParallelAgent(name="r", sub_agents=a_and_b(j)),  # pyright: ignore[reportDeprecated]
    "parallel in a sequence": lambda j: SequentialAgent(  # pyright: ignore[reportDeprecated]
        name="r",
        sub_agents=[
            ParallelAgent(name="p", sub_agents=a_and_b(j)),  # pyright: ignore[reportDeprecated]
            agent(j, "c", "C done"),
        ],
    ),
    "loop": lambda j: LoopAgent(  # pyright: ignore[reportDeprecated]
        name="r", max_iterations=2, sub_agents=[agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)])]
    ),
    "own agent": lambda j: Own(name="r", sub_agents=a_and_b(j)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_goes_on_after_a_kill_at_each_commit(tmp_path: Path, shape: str) -> None:
    make = SHAPES[shape]
    whole, copies = await run_and_copy(make, tmp_path)
    assert whole.status == "done"
    assert len(copies) > 4
    for copy in copies:
        before = await left_behind(copy)
        resumed = await go_on(make, copy)
        assert resumed.status == "done", f"{copy.name}: {resumed}"
        assert resumed.event_ids[: len(before.event_ids)] == before.event_ids, f"{copy.name}: what was stored stays"
        # a tool that had begun, and may or may not have taken effect, is never run again: the model is told
        if not any("outcome is unknown" in line for line in resumed.story):
            assert sorted(resumed.story) == sorted(whole.story), copy.name
            asked = resumed.journal.calls_by_agent + before.responses
            assert asked == whole.journal.calls_by_agent, f"{copy.name}: no stored response is asked for again"
        before.finished.pop("b", None)  # an agent that is a tool has no effect of its own
        done = resumed.journal.effects_by_name + before.finished
        assert done <= whole.journal.effects_by_name, f"{copy.name}: nothing that finished runs again"
