"""A turn that is killed after any of its commits goes on, for every shape of agent."""

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
from google.adk.tools.agent_tool import AgentTool

from tests.support.kill_points import Journal, PlannedModel, Step, go_on, run_and_copy


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
    async def _run_async_impl(self, ctx: Any) -> Any:
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


SHAPES: dict[str, Any] = {
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


@pytest.mark.filterwarnings("ignore:.*Agent is deprecated:DeprecationWarning")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_goes_on_after_a_kill_at_each_commit(tmp_path: Path, shape: str) -> None:
    make = SHAPES[shape]
    whole, copies = await run_and_copy(make, tmp_path)
    assert whole.status == "done"
    assert len(copies) > 4
    for copy in copies:
        resumed = await go_on(make, copy)
        unknown = [line for line in resumed.story if "outcome is unknown" in line]
        assert resumed.status == "done", f"{copy.name}: {resumed}"
        if not unknown:
            assert sorted(resumed.story) == sorted(whole.story), copy.name
        assert len(resumed.journal.effects) <= len(whole.journal.effects), copy.name
