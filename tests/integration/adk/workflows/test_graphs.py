"""Scenarios of ADK's own tests of graphs that do not pause: loops, joins, retries, workers and dynamic nodes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.events import Event
from google.adk.workflow import START, BaseNode, Edge, FunctionNode, JoinNode, RetryConfig, Workflow, node
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from tests.support.workflow_scenarios import (
    Scenario,
    broken,
    double,
    event,
    flow,
    join_values,
    listed,
    note,
    numbers,
    run_scenario,
    text,
)


class Order(BaseModel):
    size: int
    color: str = "red"


def chain(*functions: Any) -> Callable[[], Workflow]:
    return flow((START, *functions))


def gives(value: Any) -> Any:
    def give() -> Any:
        return value

    return node(give)


# -- the graph ------------------------------------------------------------------------------------------------------


class Silent(BaseNode):
    """Puts out nothing; with `wait_for_output` the next node does not run."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield event(state={"seen": True})


class Gate(BaseNode):
    """Opens with the second input."""

    wait_for_output: bool = True

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        count = (ctx.state.get("count") or 0) + 1
        yield event(state={"count": count}) if count < 2 else event(output="open", state={"count": None})


class TwoOutputs(BaseNode):
    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield event(output=1)
        yield event(output=2)


class Streams(BaseNode):
    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        for word in ("half ", "done"):
            yield Event(content=types.Content(parts=[types.Part(text=word)]), partial=True)
        yield event(output="final")


class SetsOutput(BaseNode):
    """Puts out a value by its context, beside a change of the state."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        ctx.state["a"] = 1
        ctx.output = "set"
        return
        yield


def loops() -> Workflow:
    def again(ctx: Context, node_input: Any) -> Event:
        count = ctx.state.get("rounds", 0) + 1
        ctx.state["rounds"] = count
        note(f"round {count}")
        return event(output=count, route="again" if count < 3 else "done")

    looping = node(again)
    edges: Any = [(START, looping), Edge(from_node=looping, to_node=looping, route="again")]
    return Workflow(name="flow", edges=[*edges, (looping, {"done": listed})])


def collects_in_state(ctx: Context, node_input: Any) -> list[str]:
    earlier: list[str] = ctx.state.get("got") or []
    got = sorted([*earlier, str(node_input)])
    ctx.state["got"] = got
    return got


def asymmetric() -> Workflow:
    """A node that two branches of different lengths lead to: it runs twice."""

    def passes(node_input: Any) -> Any:
        return node_input

    last = node(collects_in_state, name="last")
    return Workflow(name="flow", edges=[(START, text("a"), last), (START, text("b"), passes, last)])


def joined(*before: Any, after: Any = join_values, **more: Any) -> Callable[[], Workflow]:
    return lambda: Workflow(name="flow", edges=[(START, before, JoinNode(name="join", **more), after)])


def named(name: str, value: Any) -> Any:
    return node(gives(value), name=name)


def joins_start() -> Workflow:
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, text("a"), join), (START, join), (join, sorted_names)])


def sorted_names(node_input: dict[str, Any]) -> list[str]:
    return sorted(node_input)


def joins_in_a_loop() -> Workflow:
    """The join waits in each round for both, though one of them is a step further away."""

    def count(ctx: Context, node_input: Any) -> str:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return f"a{ctx.state['n']}"

    def late(ctx: Context, node_input: Any) -> str:
        return f"b{ctx.state['n']}"

    def check(ctx: Context, node_input: Any) -> Event:
        earlier: list[Any] = ctx.state.get("seen") or []
        seen = [*earlier, sorted(node_input.values())]
        return event(output=seen, state={"seen": seen}, route="again" if len(seen) == 1 else "done")

    a, x, b, join = node(count, name="a"), text("x"), node(late, name="b"), JoinNode(name="join")
    checks = node(check)
    edges: Any = [(START, a, join), (START, x, b, join), (join, checks)]
    edges += [Edge(from_node=checks, to_node=to, route="again") for to in (a, x)]
    return Workflow(name="flow", edges=[*edges, (checks, {"done": last_value})])


def last_value(node_input: Any) -> Any:
    return node_input


def cancelled_sibling(inner: bool) -> Callable[[], Workflow]:
    def make() -> Workflow:
        started = asyncio.Event()

        async def slow(node_input: Any) -> str:
            started.set()
            try:
                await asyncio.sleep(60)
            finally:
                note("cancelled")
            return "late"

        async def fails(node_input: Any) -> str:
            await started.wait()
            raise ValueError("it failed")

        sibling: Any = Workflow(name="inner", edges=[(START, slow)]) if inner else slow
        return Workflow(name="flow", edges=[(START, sibling), (START, fails)])

    return make


def retried(exceptions: Any) -> Callable[[], Workflow]:
    def flaky(ctx: Context, node_input: Any) -> int:
        note("try")
        if ctx.attempt_count == 1:
            raise ConnectionError("again")
        return ctx.attempt_count

    retry = RetryConfig(initial_delay=0.01, jitter=0, exceptions=exceptions)
    return chain(node(flaky, retry_config=retry))


GRAPHS: dict[str, Scenario] = {
    "edges as objects, and START by its name": Scenario(
        lambda: Workflow(name="flow", edges=[("START", a := text("a")), Edge(from_node=a, to_node=node(listed))]), ["a"]
    ),
    "a loop of one node": Scenario(loops, [3], ran=("round 1", "round 2", "round 3")),
    "branches of different lengths to one node": Scenario(asymmetric, ["a", "b"]),
    "a node that waits for an output": Scenario(
        chain(text("a"), Silent(name="silent", wait_for_output=True), text("never")), ran=("a",)
    ),
    "a gate that opens with the second input": Scenario(
        lambda: Workflow(
            name="flow", edges=[(START, text("a"), gate := Gate(name="gate"), text("end")), (START, text("b"), gate)]
        ),
        "end",
    ),
    "two outputs of one node": Scenario(chain(TwoOutputs(name="two")), error="at most one output"),
    "a stream before the output": Scenario(chain(Streams(name="streams")), "final"),
    "an output that is set": Scenario(chain(SetsOutput(name="sets")), "set"),
    "a join of nothing": Scenario(joined(named("a", None), named("b", None)), ["a=None", "b=None"]),
    "a join with a schema": Scenario(
        joined(named("a", {"size": 1}), named("b", {"size": 2}), after=sorted_names, input_schema=Order), ["a", "b"]
    ),
    "a join with a schema that does not fit": Scenario(
        joined(named("a", {"size": 1}), named("b", {"no": 2}), input_schema=Order), error="size"
    ),
    "a join with a schema and nothing": Scenario(
        joined(named("a", None), named("b", {"size": 2}), after=sorted_names, input_schema=Order), ["a", "b"]
    ),
    "a join with the start": Scenario(joins_start, ["__START__", "a"]),
    "a join in a loop": Scenario(joins_in_a_loop, [["a1", "b1"], ["a2", "b2"]]),
    "a failure cancels its siblings": Scenario(cancelled_sibling(inner=False), error="it failed", ran=("cancelled",)),
    "a failure cancels workflows beside it": Scenario(
        cancelled_sibling(inner=True), error="it failed", ran=("cancelled",)
    ),
    "a retry by the name of an error": Scenario(retried(["ConnectionError"]), 2, ran=("try", "try")),
    "a retry by an error and a name": Scenario(retried([ConnectionError, "KeyError"]), 2, ran=("try", "try")),
    "a retry of any error": Scenario(retried(None), 2, ran=("try", "try")),
    "no retry of other errors": Scenario(retried([KeyError]), error="ConnectionError: again", ran=("try",)),
}


# -- parallel workers and dynamic nodes -----------------------------------------------------------------------------


def worker(function: Any, **more: Any) -> Any:
    return node(function, parallel_worker=True, **more)


async def slower_first(node_input: int) -> int:
    await asyncio.sleep(0.05 / node_input)
    return node_input


def limited_workers() -> Workflow:
    busy: list[int] = []

    async def work(node_input: int) -> int:
        busy.append(node_input)
        most = len(busy)
        await asyncio.sleep(0.01)
        busy.remove(node_input)
        return most

    return Workflow(name="flow", edges=[(START, numbers, worker(work, max_parallel_workers=1))])


def received(node_input: Any) -> Any:
    return node_input


def received_text(node_input: str) -> str:
    return node_input


def received_order(node_input: Order) -> int:
    return node_input.size


def manager(body: Any) -> Callable[[], Workflow]:
    async def manage(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield await body(ctx)

    return chain(node(manage, rerun_on_resume=True))


async def survives_failure(ctx: Context) -> Any:
    try:
        await ctx.run_node(node(broken, name="child"), 1)
    except Exception as error:  # noqa: BLE001 - ADK's class is private
        return [str(getattr(error, "error", error)), await ctx.run_node(node(double, name="other"), 2)]


async def runs_by_id(ctx: Context) -> Any:
    return await ctx.run_node(node(double, name="child"), 2, run_id="mine")


async def runs_workflow(ctx: Context) -> Any:
    return await ctx.run_node(Workflow(name="inner", edges=[(START, double, listed)]), 2)


def delegates(depth: int = 1, inner: Any = None, times: int = 1) -> Callable[[], Workflow]:
    """Make nodes whose output is that of a node that they run."""

    def level(number: int) -> Any:
        if number == 0:
            return inner or text("deep")

        async def delegate(ctx: Context) -> Any:
            for _ in range(times):
                result = await ctx.run_node(level(number - 1), use_as_output=True)
            return result  # pyright: ignore[reportPossiblyUnboundVariable]

        return FunctionNode(func=delegate, name=f"level{number}", rerun_on_resume=True)

    return lambda: Workflow(name="flow", edges=[(START, level(depth), listed)])


WORKERS: dict[str, Scenario] = {
    "workers that end in another order": Scenario(chain(numbers, worker(slower_first)), [1, 2, 3]),
    "workers for nothing": Scenario(chain(gives([]), worker(double)), []),
    "a worker for one item": Scenario(chain(gives(4), worker(double)), [8]),
    "a workflow as a worker": Scenario(
        chain(numbers, worker(Workflow(name="inner", edges=[(START, double)]))), [2, 4, 6]
    ),
    "a limit on workers": Scenario(limited_workers, [1, 1, 1]),
    "workers for the message as JSON": Scenario(chain(worker(received)), [{"a": 1}, 2], message='[{"a": 1}, 2]'),
    "workers for models in the message": Scenario(chain(worker(received_order)), [1], message='[{"size": 1}]'),
    "a worker for the message as a text": Scenario(chain(worker(received_text)), ['{"a": 1}'], message='{"a": 1}'),
    "a dynamic node that fails": Scenario(manager(survives_failure), ["it is broken", 4]),
    "a dynamic node with an id": Scenario(manager(runs_by_id), 4),
    "a dynamic workflow": Scenario(manager(runs_workflow), [4]),
    "an output of a dynamic node": Scenario(delegates(), ["deep"]),
    "an output of a dynamic node of a dynamic node": Scenario(delegates(2), ["deep"]),
    "an output of a dynamic workflow": Scenario(
        delegates(inner=Workflow(name="inner", edges=[(START, text("a"), text("b"))])), ["b"]
    ),
    "two outputs of dynamic nodes": Scenario(delegates(times=2), error="use_as_output"),
}

SCENARIOS = GRAPHS | WORKERS


@pytest.mark.parametrize("name", SCENARIOS)
async def test_graphs_run_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name])
