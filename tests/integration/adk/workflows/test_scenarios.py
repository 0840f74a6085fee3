"""The scenarios of ADK's own tests of workflows that go through its public interface, run by the runtime.

Each pause is answered in another runtime. What an ADK Runner puts out, the runtime puts out, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.workflow import DEFAULT_ROUTE, START, BaseNode, JoinNode, RetryConfig, Workflow, node
from pydantic import BaseModel
from typing_extensions import override

from lango.messages import ToolCall
from tests.support.agent_shapes import agent
from tests.support.kill_points import Journal
from tests.support.workflow_scenarios import (
    Scenario,
    asking,
    broken,
    double,
    flow,
    join_values,
    listed,
    numbers,
    run_scenario,
    text,
)

QUICK = {"initial_delay": 0.01, "jitter": 0}


class Order(BaseModel):
    size: int


class OwnNode(BaseNode):
    """A node of the user's own class."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield Event.model_validate({"output": f"own {self.name}"})


class Closing(BaseNode):
    """Puts out a value, and asks for another one."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        if "more" in ctx.resume_inputs:
            yield f"and {ctx.resume_inputs['more']}"
        else:
            yield RequestInput(interrupt_id="more", message="More?", response_schema=str)


def routed(route: Any) -> Any:
    def choose(node_input: Any) -> Event:
        return Event.model_validate({"output": "chosen", "route": route})

    return node(choose)


async def slow(node_input: Any) -> str:
    await asyncio.sleep(30)
    return "too late"


def routes(route: Any) -> Callable[[], Workflow]:
    def make() -> Workflow:
        choosing = routed(route)
        ends: Any = {"left": text("left"), "right": text("right"), DEFAULT_ROUTE: text("other")}
        return Workflow(name="flow", edges=[(START, choosing), (choosing, ends)])

    return make


def loop_until_answered() -> Workflow:
    """Ask again until the answer is yes: each round is a run of its own."""
    asks = asking("sure")

    def check(node_input: Any) -> Event:
        return Event.model_validate({"output": node_input, "route": "end" if node_input == "yes" else "again"})

    checks = node(check)
    return Workflow(name="flow", edges=[(START, asks, checks), (checks, {"again": asks, "end": text("agreed")})])


def dynamic() -> Workflow:
    async def manager(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        first = await ctx.run_node(node(double, name="first"), 4)
        results = await asyncio.gather(*(ctx.run_node(node(double, name=f"n{n}"), n) for n in range(3)))
        yield [first, *results]

    return Workflow(name="flow", edges=[(START, node(manager, rerun_on_resume=True))])


def dynamic_that_asks() -> Workflow:
    async def manager(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        first = await ctx.run_node(node(double, name="first"), 4)
        answer = await ctx.run_node(asking("inner"), None)
        yield [first, answer]

    return Workflow(name="flow", edges=[(START, node(manager, rerun_on_resume=True))])


def dynamic_loop() -> Workflow:
    async def manager(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        value = 1
        while value < 20:
            value = await ctx.run_node(node(double, name="twice"), value)
        yield value

    return Workflow(name="flow", edges=[(START, node(manager, rerun_on_resume=True))])


def retried(times: int, attempts: int, **more: Any) -> Callable[[], Workflow]:
    def make() -> Workflow:
        def flaky(ctx: Context, node_input: Any) -> str:
            if ctx.attempt_count <= times:
                raise ConnectionError(f"attempt {ctx.attempt_count}")
            return f"attempt {ctx.attempt_count}"

        retry = RetryConfig(max_attempts=attempts, **QUICK, **more)
        return Workflow(name="flow", edges=[(START, node(flaky, retry_config=retry))])

    return make


def parallel_workers(worker: Any) -> Callable[[], Workflow]:
    return flow((START, numbers, node(worker, parallel_worker=True)))


def agents() -> Workflow:
    first = LlmAgent(name="first", model="openai/x", output_key="said")
    second = LlmAgent(name="second", model="openai/x", instruction="Earlier: {said}")
    return Workflow(name="flow", edges=[(START, first, second)])


def structured() -> Workflow:
    def size(node_input: Any) -> int:
        return Order.model_validate(node_input).size

    clerk = LlmAgent(name="clerk", model="openai/x", output_schema=Order)
    return Workflow(name="flow", edges=[(START, clerk, size)])


def tool_node() -> Workflow:
    def arguments(node_input: Any) -> dict[str, int]:
        return {"left": 2, "right": 3}

    def add(left: int, right: int) -> int:
        """Add."""
        return left + right

    return Workflow(name="flow", edges=[(START, arguments, FunctionTool(add))])


def long_running_node() -> Workflow:
    def order(item: str) -> None:
        """Order."""

    clerk = LlmAgent(name="clerk", model="openai/x", tools=[LongRunningFunctionTool(order)])
    return Workflow(name="flow", edges=[(START, text("one"), clerk, text("end"))])


def state_and_parameters() -> Workflow:
    def write(ctx: Context, node_input: Any) -> None:
        ctx.state["size"] = 7

    def read(size: int) -> int:
        return size + 1

    return Workflow(name="flow", edges=[(START, write, read)])


def with_task_agent() -> LlmAgent:
    """An agent that delegates a task to another one, beside a tool of its own."""

    def note(text: str) -> dict[str, str]:
        """Note something."""
        return {"noted": text}

    child = LlmAgent(name="child", model="openai/x", mode="task")
    return LlmAgent(name="root", model="openai/x", sub_agents=[child], tools=[note])


def dynamic_task_agent() -> Workflow:
    finish = {"name": "finish_task", "args": {"result": "child output"}}
    child = agent(Journal(), "child", finish, mode="task")  # with its own model: it is in no graph

    async def manager(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield {"wrapped": await ctx.run_node(child, node_input="go")}

    return Workflow(name="flow", edges=[(START, node(manager, rerun_on_resume=True))])


FINISH = ToolCall("f1", "finish_task", {"result": "child output"})
DELEGATE = ToolCall("t1", "child", {"request": "do it"})

SCENARIOS: dict[str, Scenario] = {
    "functions in a row": Scenario(flow((START, numbers, text("last"))), "last"),
    "a node of one's own class": Scenario(flow((START, OwnNode(name="mine"))), "own mine"),
    "a route": Scenario(routes("right"), "right"),
    "a default route": Scenario(routes("unknown"), "other"),
    "fan-out and join": Scenario(
        flow((START, (text("a"), text("b"), text("c")), JoinNode(name="join"), join_values)), ["a=a", "b=b", "c=c"]
    ),
    "nested workflows": Scenario(
        flow((START, Workflow(name="inner", edges=[(START, numbers, text("deep"))]), text("end"))), "end"
    ),
    "state and parameters by name": Scenario(state_and_parameters, 8),
    "a tool as a node": Scenario(tool_node, 5),
    "parallel workers": Scenario(parallel_workers(double), [2, 4, 6]),
    "a failing parallel worker": Scenario(parallel_workers(broken), error="ValueError: it is broken"),
    "dynamic nodes": Scenario(dynamic, [8, 0, 2, 4]),
    "a dynamic loop": Scenario(dynamic_loop, 32),
    "a retry that succeeds": Scenario(retried(2, 3), "attempt 3"),
    "a retry that gives up": Scenario(retried(5, 2), error="ConnectionError: attempt 2"),
    "a retry of other errors only": Scenario(
        retried(1, 3, exceptions=[ValueError]), error="ConnectionError: attempt 1"
    ),
    "a node that fails": Scenario(flow((START, broken, text("never"))), error="ValueError: it is broken"),
    "a node that fails in a nested workflow": Scenario(
        flow((START, Workflow(name="inner", edges=[(START, broken)]), text("never"))), error="it is broken"
    ),
    "a node that takes too long": Scenario(flow((START, node(slow, timeout=0.05))), error="NodeTimeoutError"),
    "agents in a row": Scenario(agents, None, script=("one", "two")),
    "an agent with an output schema": Scenario(structured, 3, script=('{"size": 3}',)),
    "a task for a sub-agent": Scenario(with_task_agent, script=(DELEGATE, FINISH, "All done.")),
    "a task beside a tool": Scenario(
        with_task_agent, script=([ToolCall("n1", "note", {"text": "x"}), DELEGATE], FINISH, "All done.")
    ),
    "a task agent in a dynamic node": Scenario(dynamic_task_agent, {"wrapped": {"result": "child output"}}),
    # as in ADK, a workflow that ends with a question puts nothing out: it is the person who spoke last
    "a question at the end": Scenario(flow((START, asking("a"))), None, ("yes",)),
    "a question": Scenario(flow((START, asking("a"), text("end"))), "end", ("yes",)),
    "a question with a schema": Scenario(flow((START, asking("a", Order), listed)), [{"size": 4}], ({"size": 4},)),
    "two questions in a row": Scenario(flow((START, asking("a"), asking("b"), listed)), ["two"], ("one", "two")),
    "questions in parallel": Scenario(
        flow((START, (asking("a"), asking("b")), JoinNode(name="join"), join_values)),
        ["a=one", "b=two"],
        ("one", "two"),
    ),
    "a question in a nested workflow": Scenario(
        flow((START, Workflow(name="inner", edges=[(START, asking("a"))]), text("end"))), "end", ("yes",)
    ),
    "a question of a dynamic node": Scenario(dynamic_that_asks, [8, "yes"], ("yes",)),
    "a question that is asked again": Scenario(loop_until_answered, "agreed", ("no", "no", "yes")),
    "a node that runs again with the answer": Scenario(
        flow((START, Closing(name="closing", rerun_on_resume=True))), "and tea", ("tea",)
    ),
    "a long-running tool in an agent": Scenario(
        long_running_node, "end", ({"at": "home"},), script=(ToolCall("c1", "order", {"item": "boat"}), "It came.")
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_workflow_runs_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.answers])
async def test_a_paused_workflow_of_a_resumable_app_runs_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name], resumable=True)
