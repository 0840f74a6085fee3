"""A deploy between two runs of a turn: what has taken effect never does so again."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import (
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.events import TurnDone, TurnError
from tests.agents.answers import open_inputs, submit_input
from tests.agents.parts import collect, rows, settings_for
from tests.integration.resume.test_input_legs import asking
from tests.support.agent_shapes import Own, a_and_b, agent, call, fetch, nodes, pay
from tests.support.kill_points import Journal, MakeAgent, left_behind, run_and_copy, until_idle
from tests.support.runtimes import store_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents


def shop(j: Journal, name: str = "shop") -> Any:
    return agent(
        j, name, call("pay", x="1"), call("fetch", x="2"), call("pay", x="3"), "done", tools=[pay(j), fetch(j)]
    )


def sequence(j: Journal, *names: str) -> Any:
    subs: list[Any] = [agent(j, name, call("pay", x=name[0]), f"{name} done", tools=[pay(j)]) for name in names]
    return SequentialAgent(name="r", sub_agents=subs)  # pyright: ignore[reportDeprecated]


def parallel(j: Journal) -> Any:
    return ParallelAgent(name="r", sub_agents=a_and_b(j))  # pyright: ignore[reportDeprecated]


def in_sequence(j: Journal) -> Any:
    return SequentialAgent(name="r", sub_agents=a_and_b(j))  # pyright: ignore[reportDeprecated]


def wrapped(j: Journal) -> Any:
    return SequentialAgent(name="outer", sub_agents=[shop(j)])  # pyright: ignore[reportDeprecated]


def graph(j: Journal, name: str = "r", first: str = "one") -> Any:
    one, two, three = nodes(j)
    one.__name__ = first
    return Workflow(
        name=name, edges=[(START, one, two, agent(j, "e", call("pay", x="1"), "end", tools=[pay(j)]), three)]
    )


def with_agent_tool(j: Journal, inner: str) -> Any:
    helper = SequentialAgent(name="helper", sub_agents=[shop(j, inner)])  # pyright: ignore[reportDeprecated]
    return agent(j, "r", call("helper", request="go"), "done", tools=[AgentTool(helper)])


CHANGES: dict[str, tuple[MakeAgent, MakeAgent]] = {
    "renamed root": (shop, lambda j: shop(j, "store")),
    "renamed sub-agent": (lambda j: sequence(j, "a", "b"), lambda j: sequence(j, "a2", "b")),
    "second sub-agent renamed": (lambda j: sequence(j, "a", "b"), lambda j: sequence(j, "a", "b2")),
    "sub-agents in another order": (lambda j: sequence(j, "a", "b"), lambda j: sequence(j, "b", "a")),
    "a sequence instead of an agent": (
        shop,
        lambda j: SequentialAgent(name="shop", sub_agents=[shop(j, "till")]),  # pyright: ignore[reportDeprecated]
    ),
    "an own agent instead of an agent": (shop, lambda j: Own(name="shop", sub_agents=[shop(j, "till")])),
    "agent wrapped": (shop, wrapped),
    "agent wrapped in an own one": (shop, lambda j: Own(name="outer", sub_agents=[shop(j)])),
    "sequence made parallel": (in_sequence, parallel),
    "parallel made a sequence": (parallel, in_sequence),
    "renamed workflow": (graph, lambda j: graph(j, "store")),
    "renamed node": (graph, lambda j: graph(j, first="first")),
    "a workflow instead of an agent": (shop, lambda j: Workflow(name="r", edges=[(START, shop(j))])),
    "renamed agent inside a tool": (lambda j: with_agent_tool(j, "shop"), lambda j: with_agent_tool(j, "store")),
}


LOST = ("renamed workflow", "renamed node")
"""The workflow of the record no longer exists, or a node that has run."""


def asks(j: Journal, *, name: str = "r", first: str = "one", question: str = "ask", more: tuple[Any, ...] = ()) -> Any:
    """Make a workflow that asks a person after its first node; without a name, the node is not there."""
    one, two, _ = nodes(j)
    one.__name__ = first
    steps = [*([one] if first else []), *([asking(question)] if question else []), two, *more]
    return Workflow(name=name, edges=[(START, *steps)])


PAUSED_CHANGES: dict[str, MakeAgent] = {
    "renamed workflow": lambda j: asks(j, name="store"),
    "node that asked renamed": lambda j: asks(j, question="question"),
    "node that asked removed": lambda j: asks(j, question=""),
    "earlier node renamed": lambda j: asks(j, first="first"),
    "earlier node removed": lambda j: asks(j, first=""),
    "an agent instead of a workflow": lambda j: agent(j, "r", call("pay", x="1"), "done", tools=[pay(j)]),
}


@pytest.mark.parametrize("change", PAUSED_CHANGES)
async def test_an_answer_to_a_node_that_is_gone_ends_the_turn_before_anything_runs(tmp_path: Path, change: str) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/first.db", name="app")
    async with open_runtime(settings, root_agent=asks(Journal())) as runtime:
        await runtime.sessions.create("s")
        await collect((await runtime.submit("s", "go")).follow())
    journal = Journal()
    async with open_runtime(settings, root_agent=PAUSED_CHANGES[change](journal)) as runtime:
        [request] = await open_inputs(runtime, "s")
        *_, error = await collect((await submit_input(runtime, "s", request.id, "3")).follow())
        assert isinstance(error, TurnError)
        assert (error.error, journal.effects) == ("TurnDiverged", [])
        *_, last = await collect((await runtime.submit("s", "next")).follow())
        assert isinstance(last, TurnDone), "the next message is answered"


async def test_a_paused_turn_continues_when_nodes_were_added_at_the_end(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/first.db", name="app")
    async with open_runtime(settings, root_agent=asks(Journal())) as runtime:
        await runtime.sessions.create("s")
        await collect((await runtime.submit("s", "go")).follow())
    journal = Journal()
    async with open_runtime(settings, root_agent=asks(journal, more=(nodes(journal)[2],))) as runtime:
        [request] = await open_inputs(runtime, "s")
        await collect((await submit_input(runtime, "s", request.id, "3")).follow())
        assert journal.effects == ["two", "three"]


async def go_on(make: MakeAgent, copy: Path) -> tuple[str, Counter[str]]:
    """Go on from a copy of the store with a new version; return how the turn ended, and what took effect."""
    journal = Journal()
    settings = settings_for(f"sqlite:///{copy}", name="app")
    async with open_runtime(settings, root_agent=make(journal)) as runtime:
        await until_idle(runtime)
        [[status, extra]] = await rows(store_of(runtime), "SELECT status, extra FROM turns")
    return json.loads(extra)["error"]["type"] if status == "failed" else status, journal.effects_by_name


@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_takes_effect_twice_when_the_code_changed(tmp_path: Path, change: str) -> None:
    old, new = CHANGES[change]
    whole, copies = await run_and_copy(
        old, tmp_path, settings=settings_for(f"sqlite:///{tmp_path}/first.db", name="app")
    )
    left = {copy: left_behind(copy) for copy in copies}
    begun = [copy for copy in copies if left[copy].responses or left[copy].finished]
    ends = await asyncio.gather(*(go_on(new, copy) for copy in begun))
    names = whole.journal.effects_by_name
    for copy, (end, effects) in zip(begun, ends, strict=True):
        done = effects + Counter({name: left[copy].finished[name] for name in names})
        assert end == "done" or (end == "TurnDiverged" and change in LOST), copy.name
        assert done <= names, f"{copy.name}: {end}, {done}"
