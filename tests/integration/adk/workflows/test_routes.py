"""Scenarios of ADK's own tests of its graph, node runner, scheduler and utilities, run as whole workflows."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.events import RequestInput
from google.adk.workflow import DEFAULT_ROUTE, START, BaseNode, Edge, JoinNode, RetryConfig, Workflow, node
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from tests.support.workflow_scenarios import (
    Scenario,
    asking,
    double,
    event,
    flow,
    join_values,
    listed,
    note,
    run_scenario,
    text,
)


class Order(BaseModel):
    size: int


def chooses(route: Any, name: str = "choose") -> Any:
    def choose(node_input: Any) -> Any:
        return event(output=name, route=route)

    return node(choose, name=name)


def chain(*nodes: Any) -> Callable[[], Workflow]:
    return flow((START, *nodes))


def beside(route: Any) -> Callable[[], Workflow]:
    """One edge without a route, one with it, and one for every other route."""

    def make() -> Workflow:
        choosing, always, chosen, other = chooses(route), text("always"), text("chosen"), text("other")
        edges: list[Any] = [Edge(from_node=START, to_node=choosing), Edge(from_node=choosing, to_node=always)]
        edges += [
            Edge(from_node=choosing, to_node=chosen, route="chosen"),
            Edge(from_node=choosing, to_node=other, route=DEFAULT_ROUTE),
        ]
        return Workflow(name="flow", edges=edges)

    return make


def two_sources() -> Workflow:
    first, second, end = chooses("left", "first"), chooses("right", "second"), JoinNode(name="join")
    ends: Any = {"left": text("left"), "right": text("right")}
    return Workflow(
        name="flow",
        edges=[(START, (first, second)), ((first, second), ends), ((ends["left"], ends["right"]), end, join_values)],
    )


class SetsRoute(BaseNode):
    """Sets its route by the context."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        ctx.route = "right"
        yield "set"


class Twice(BaseNode):
    """Sets its output twice, or after it was put out."""

    yields: bool = False

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        if self.yields:
            yield "first"
        else:
            ctx.output = "first"
        ctx.output = "second"


class Works(BaseNode):
    """Says something before the output that it has set."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        ctx.output = "set"
        yield event(content=types.Content(role="model", parts=[types.Part(text="working ")]))


class PutsOutAndAsks(BaseNode):
    """Puts out a value, and asks."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield "first"
        yield RequestInput(message="And?", response_schema=str)


def attempts(**settings: Any) -> Callable[[], Workflow]:
    def flaky(ctx: Context, node_input: Any) -> int:
        note("try")
        raise ConnectionError("again")

    return chain(node(flaky, retry_config=RetryConfig(initial_delay=0.001, jitter=0, **settings)))


def manager(body: Any) -> Callable[[], Workflow]:
    async def manage(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield await body(ctx)

    return chain(node(manage, rerun_on_resume=True))


class Sized(BaseNode):
    """A dynamic node that takes an order."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        yield node_input.size if isinstance(node_input, Order) else node_input["size"]


def takes_order(value: Any) -> Callable[[], Workflow]:
    async def body(ctx: Context) -> Any:
        return await ctx.run_node(Sized(name="child", input_schema=Order), value)

    return manager(body)


async def twice_at_once(ctx: Context) -> Any:
    def work(node_input: int) -> int:
        note("work")
        return 2 * node_input

    child = node(work, name="child")
    return await asyncio.gather(*(ctx.run_node(child, 2, run_id="mine") for _ in range(2)))


JSON = types.Content(role="user", parts=[types.Part(text='{"size": 3}')])

ROUTES: dict[str, Scenario] = {
    "a route that is a number": Scenario(
        chain(chooses(2), {1: text("one"), 2: text("two")}, listed), ["two"], ran=("two",)
    ),
    "a route that is yes or no": Scenario(
        chain(chooses(False), {True: text("yes"), False: text("no")}, listed), ["no"], ran=("no",)
    ),
    "several routes at once": Scenario(
        chain(chooses(["a", "b"]), {"a": text("one"), "b": text("two"), "c": text("three")}, JoinNode(name="join")),
        error="",
        ran=("one", "two"),
    ),
    "a route to several nodes": Scenario(
        chain(chooses("a"), {"a": (text("one"), text("two"))}, JoinNode(name="join"), join_values),
        ["one=one", "two=two"],
    ),
    "a map of routes after several nodes": Scenario(two_sources, ["left=left", "right=right"]),
    "an edge without a route, and a route": Scenario(
        beside("chosen"), error="multiple terminal nodes", ran=("always", "chosen")
    ),
    "an edge without a route, and another route": Scenario(
        beside("unknown"), error="multiple terminal nodes", ran=("always", "other")
    ),
    "an edge without a route, and no route": Scenario(
        beside(None), error="multiple terminal nodes", ran=("always", "other")
    ),
    "a route that is set": Scenario(
        chain(SetsRoute(name="sets"), {"left": text("left"), "right": text("right")}, listed), ["right"]
    ),
    "an output that is set twice": Scenario(chain(Twice(name="twice")), error="already"),
    "an output that is set after another": Scenario(chain(Twice(name="twice", yields=True)), error="already"),
    "a text before an output that is set": Scenario(chain(Works(name="works"), listed), ["set"]),
    "no attempts": Scenario(attempts(max_attempts=0), error="again", ran=("try",)),
    "one attempt": Scenario(attempts(max_attempts=1), error="again", ran=("try",)),
    "five attempts if none are given": Scenario(attempts(), error="again", ran=("try",) * 5),
    "a dynamic node with a schema": Scenario(takes_order({"size": 3}), 3),
    "a dynamic node with a schema, and a content": Scenario(takes_order(JSON), 3),
    "a dynamic node with a schema that does not fit": Scenario(takes_order({"size": "large"}), error="valid integer"),
    "a dynamic node, twice at once": Scenario(manager(twice_at_once), [4, 4], ran=("work",)),
}

ANSWERS: dict[str, Scenario] = {
    "an answer that is a number as a text": Scenario(chain(asking("a", int), double), 84, ("42",)),
    "an answer that is a fraction as a text": Scenario(chain(asking("a", float), listed), [42.5], ("42.5",)),
    "an answer that is yes as a number": Scenario(chain(asking("a", bool), listed), [True], ("1",)),
    "an answer that is no as a number": Scenario(chain(asking("a", bool), listed), [False], ("0",)),
    "an answer that is a list as a text": Scenario(chain(asking("a", list[int]), listed), [[1, 2]], ("[1, 2]",)),
    "an answer that is JSON for a text": Scenario(chain(asking("a"), listed), ['{"a": 1}'], ('{"a": 1}',)),
    "an output and a question of one node": Scenario(
        chain(PutsOutAndAsks(name="both"), listed), ["second"], ("second",)
    ),
}


@pytest.mark.parametrize("name", ROUTES)
async def test_routes_and_contexts_work_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, ROUTES[name])


@pytest.mark.parametrize("resumable", [False, True], ids=["", "resumable"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_are_read_as_in_adk(sqlite_url: str, name: str, resumable: bool) -> None:
    await run_scenario(sqlite_url, ANSWERS[name], resumable=resumable)
