"""Agents of every shape, whose models and tools do the same in each run."""

import itertools
import random
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.context import Context
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event, EventActions
from google.adk.models.llm_request import LlmRequest
from google.adk.tools import ToolContext
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow, node
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from tests.support.kill_points import Journal, MakeAgent, PlannedModel, PlanStep


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


def agent(journal: Journal, name: str, *plan: PlanStep, tools: Any = (), **more: Any) -> LlmAgent:
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


def ends_with_functions(j: Journal) -> Any:
    one, two, three = nodes(j)
    first = agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)])
    return Workflow(name="r", edges=[(START, one, first, two, three)])


class Order(BaseModel):
    size: int = 1
    paid: bool = False


def nested_workflows(j: Journal) -> Any:
    one, two, three = nodes(j)

    def order(node_input: Any) -> Order:
        j.effects.append("order")
        return Order(paid=True)

    def fill(node_input: Any) -> Order:
        j.effects.append("fill")
        return Order(size=node_input.size if isinstance(node_input, Order) else node_input["size"])

    inner = Workflow(name="inner", edges=[(START, one, two)])
    last = Workflow(name="last", edges=[(START, order, fill)])
    return Workflow(name="r", edges=[(START, inner, three, last)])


def loop_with_route(j: Journal) -> Any:
    _, _, three = nodes(j)

    def count(ctx: Context, node_input: Any) -> Event:
        j.effects.append("count")
        number = ctx.state.get("number", 0) + 1
        ctx.state["number"] = number
        return Event.model_validate({"output": number, "route": "again" if number < 3 else "enough"})

    counting = node(count)
    return Workflow(name="r", edges=[(START, counting), (counting, {"again": counting, "enough": three})])


def retried_node(j: Journal) -> Any:
    def flaky(ctx: Context, node_input: Any) -> str:
        j.effects.append("flaky")
        if ctx.attempt_count == 1:
            raise ConnectionError("try again")
        return "from flaky"

    retry = RetryConfig(max_attempts=3, initial_delay=0.01, jitter=0, exceptions=["OSError"])
    return Workflow(name="r", edges=[(START, node(flaky, retry_config=retry), agent(j, "e", "end"))])


class Narrator(BaseAgent):
    """Says something itself, changes the state, and lets its agent speak."""

    @override
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        text = types.Content(role="model", parts=[types.Part(text="Let us begin.")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, branch=ctx.branch, content=text)
        delta = EventActions(state_delta={"chapter": 1})
        yield Event(author=self.name, invocation_id=ctx.invocation_id, branch=ctx.branch, actions=delta)
        for sub in self.sub_agents:
            async for event in sub.run_async(ctx):
                yield event


def with_callbacks(j: Journal) -> Any:
    def count_model_calls(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        callback_context.state["model_calls"] = callback_context.state.get("model_calls", 0) + 1

    def say_more(callback_context: CallbackContext) -> types.Content:
        return types.Content(role="model", parts=[types.Part(text="That was all.")])

    def change_result(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> dict[str, Any]:
        tool_context.state["paid"] = args
        return {**tool_response, "checked": True}

    return agent(
        j,
        "r",
        call("pay", x="2"),
        "done",
        tools=[pay(j)],
        output_key="answer",
        before_model_callback=count_model_calls,
        after_tool_callback=change_result,
        after_agent_callback=say_more,
    )


SHAPES: dict[str, MakeAgent] = {
    "workflow that ends with functions": ends_with_functions,
    "nested workflows of functions": nested_workflows,
    "workflow with a loop": loop_with_route,
    "workflow with a node that is retried": retried_node,
    "callbacks": with_callbacks,
    "own agent with text and state of its own": lambda j: Narrator(name="r", sub_agents=a_and_b(j)),
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


class Mixture:
    """Draws nested agents at random, the same each time for the same seed."""

    def __init__(self, journal: Journal, seed: int) -> None:
        self._journal = journal
        self._dice = random.Random(seed)
        self._names = itertools.count(1)

    def draw(self, depth: int = 2) -> Any:
        kinds = ["agent"] if depth == 0 else ["agent", "sequence", "parallel", "loop", "own", "agent tool"]
        kind = self._dice.choice(kinds)
        name = f"{kind[0]}{next(self._names)}"
        match kind:
            case "sequence":
                return SequentialAgent(name=name, sub_agents=self._several(depth))  # pyright: ignore[reportDeprecated]
            case "parallel":
                return ParallelAgent(name=name, sub_agents=self._several(depth))  # pyright: ignore[reportDeprecated]
            case "loop":
                return LoopAgent(  # pyright: ignore[reportDeprecated]
                    name=name, max_iterations=2, sub_agents=self._several(depth, most=1)
                )
            case "own":
                return Own(name=name, sub_agents=self._several(depth))
            case "agent tool":
                inner = self._agent(f"i{next(self._names)}")
                return agent(self._journal, name, call(inner.name, request="go"), "done", tools=[AgentTool(inner)])
            case _:
                return self._agent(name)

    def workflow(self) -> Any:
        """Draw a graph of functions and drawn agents, in a row, with an agent at the end."""
        nodes: list[Any] = []
        for _ in range(self._dice.randint(2, 4)):
            nodes.append(self._function() if self._dice.random() < 0.5 else self._agent(f"w{next(self._names)}"))
        return Workflow(name="graph", edges=[(START, *nodes, agent(self._journal, "last", "end"))])

    def _several(self, depth: int, most: int = 2) -> list[Any]:
        return [self.draw(depth - 1) for _ in range(self._dice.randint(1, most))]

    def _agent(self, name: str) -> LlmAgent:
        steps: list[PlanStep] = [
            self._dice.choice([call("fetch", x=name), call("pay", x=name), [call("fetch", x="1"), call("pay", x="2")]])
            for _ in range(self._dice.randint(0, 2))
        ]
        return agent(
            self._journal,
            name,
            *steps,
            f"{name} is done",
            tools=[fetch(self._journal), pay(self._journal)],
            output_key=f"said_{name}",
        )

    def _function(self) -> Any:
        name = f"f{next(self._names)}"

        def function(node_input: Any) -> str:
            self._journal.effects.append(name)
            return f"from {name}"

        function.__name__ = name
        return function


NESTED = (1, 4, 5, 6, 8)
"""Seeds that nest agents, and together draw each kind. Others draw a single agent, or one shape again."""
MIXTURES: dict[str, MakeAgent] = {
    **{f"mixture {seed}": lambda j, seed=seed: Mixture(j, seed).draw() for seed in NESTED},
    **{f"graph {seed}": lambda j, seed=seed: Mixture(j, seed).workflow() for seed in range(3)},
}
