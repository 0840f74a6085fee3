"""Scenarios of ADK's own tests of nodes that ask a person.

Each answer goes to another runtime, with and without ADK's resumability.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.workflow import START, BaseNode, JoinNode, Workflow, node
from typing_extensions import override

from tests.support.workflow_scenarios import (
    Scenario,
    asking,
    asking_again,
    event,
    flow,
    join_values,
    listed,
    note,
    run_scenario,
    text,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of ADK: experimental features


def chain(*nodes: Any) -> Callable[[], Workflow]:
    return flow((START, *nodes))


# -- questions ------------------------------------------------------------------------------------------------------


def returns_question(node_input: Any) -> RequestInput:
    return RequestInput(interrupt_id="q", message="Data?", response_schema=None)


class AsksTwo(BaseNode):
    """Asks two questions at once, and runs again with both answers."""

    rerun_on_resume: bool = True

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        open_questions = [name for name in ("q1", "q2") if name not in ctx.resume_inputs]
        for name in open_questions:
            yield RequestInput(interrupt_id=name, message=name, response_schema=str)
        if not open_questions:
            yield [ctx.resume_inputs["q1"], ctx.resume_inputs["q2"]]


class AsksInTurn(BaseNode):
    """Asks a second question when the first one is answered."""

    rerun_on_resume: bool = True

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        for name in ("q1", "q2"):
            if name not in ctx.resume_inputs:
                yield RequestInput(interrupt_id=name, message=name, response_schema=str)
                return
        yield [node_input, ctx.resume_inputs["q1"], ctx.resume_inputs["q2"]]


def reviews() -> Workflow:
    """A review that asks with the same id in each round."""

    def draft(node_input: Any) -> str:
        note("draft")
        return "draft"

    def review(ctx: Context, node_input: Any) -> Any:
        answer = ctx.resume_inputs.get("review")
        if not answer:
            yield RequestInput(interrupt_id="review", message="Good?", response_schema=str)
        elif answer == "good":
            yield event(output="approved", route="good")
        else:
            yield event(route="again")

    drafts, reviewing = node(draft), node(review, rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, drafts, reviewing), (reviewing, {"again": drafts, "good": listed})])


def routed_then_asks(**fields: Any) -> Callable[[], Workflow]:
    def choose(node_input: Any) -> Event:
        note("choose")
        return event(route="next", **fields)

    choosing = node(choose)
    return lambda: Workflow(name="flow", edges=[(START, choosing), (choosing, {"next": asking_again("q")})])


class RoutesAndAsks(BaseNode):
    """Chooses a route before it asks; it does not run again."""

    @override
    async def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        ctx.route = "go"
        yield RequestInput(interrupt_id="q", message="Sure?", response_schema=str)


def route_is_kept() -> Workflow:
    asks = RoutesAndAsks(name="asks")
    return Workflow(name="flow", edges=[(START, asks), (asks, {"go": text("reached")})])


def join_in_a_loop() -> Workflow:
    """In the second round one of the joined nodes asks."""

    def first(ctx: Context, node_input: Any) -> str:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return f"a{ctx.state['n']}"

    def second(ctx: Context, node_input: Any) -> Any:
        if ctx.state["rounds"] and "q" not in ctx.resume_inputs:
            return RequestInput(interrupt_id="q", message="Go on?", response_schema=str)
        return f"b{ctx.state['rounds'] + 1}"

    def begin(ctx: Context, node_input: Any) -> str:
        ctx.state["rounds"] = ctx.state.get("rounds", -1) + 1
        return "begun"

    def check(ctx: Context, node_input: Any) -> Event:
        earlier: list[Any] = ctx.state.get("seen") or []
        seen = [*earlier, sorted(node_input.values())]
        return event(output=seen, state={"seen": seen}, route="again" if len(seen) == 1 else "done")

    begins, checks = node(begin), node(check)
    a, b, join = node(first, name="a"), node(second, name="b", rerun_on_resume=True), JoinNode(name="join")
    edges: Any = [(START, begins, (a, b), join, checks), (checks, {"again": begins, "done": last_value})]
    return Workflow(name="flow", edges=edges)


def last_value(node_input: Any) -> Any:
    return node_input


def two_lead_to_one() -> Workflow:
    """Two nodes lead to one that asks: it asks for each of them, one after the other, in any order."""

    def ask(ctx: Context, node_input: Any) -> Any:
        name = f"for {node_input}"
        if name in ctx.resume_inputs:
            earlier: list[str] = ctx.state.get("got") or []
            got = sorted([*earlier, f"{node_input} {ctx.resume_inputs[name]}"])
            yield event(output=got, state={"got": got})
        else:
            yield RequestInput(interrupt_id=name, message=name, response_schema=str)

    asks = node(ask, rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, (text("a"), text("b")), asks)])


QUESTIONS: dict[str, Scenario] = {
    "a question that a function returns": Scenario(chain(returns_question, listed), [{"a": 1}], ({"a": 1},)),
    "two questions of a node at once": Scenario(chain(AsksTwo(name="two"), listed), [["x", "y"]], ("x", "y")),
    "two questions of a node in turn": Scenario(
        chain(text("a"), AsksInTurn(name="two"), listed), [["a", "x", "y"]], ("x", "y"), ran=("a",)
    ),
    "the same question in each round": Scenario(reviews, ["approved"], ("bad", "good"), ran=("draft", "draft")),
    "a route without an output before a question": Scenario(
        routed_then_asks(), "q yes", ("yes",), ran=("choose", "q", "q")
    ),
    "a route with an output before a question": Scenario(
        routed_then_asks(output="x"), "q yes", ("yes",), ran=("choose", "q", "q")
    ),
    "a route of a node that asks": Scenario(route_is_kept, "reached", ("yes",)),
    "a question beside a node that has ended": Scenario(
        flow((START, (text("a"), asking_again("b")), JoinNode(name="join"), join_values)),
        ["a=a", "b=b yes"],
        ("yes",),
        ran=("a", "b", "b"),
    ),
    "a question in a join in a loop": Scenario(join_in_a_loop, [["a1", "b1"], ["a2", "b2"]], ("yes",)),
    "two nodes that lead to one question": Scenario(two_lead_to_one, ["a x", "b x"], ("x", "x")),
}


# -- dynamic nodes and workers --------------------------------------------------------------------------------------


def manager(*steps: Any, output: bool = False) -> Any:
    """Make a node that runs others, one after the other, and puts out what they put out."""

    async def manage(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
        results = [await ctx.run_node(step, use_as_output=output) for step in steps]
        if not output:
            yield results

    return node(manage, rerun_on_resume=True, name=f"manage{len(steps)}")


def silent(name: str) -> Any:
    def run(node_input: Any) -> None:
        note(name)

    return node(run, name=name)


def nested(*nodes: Any) -> Workflow:
    return Workflow(name="inner", edges=[(START, *nodes)])


def same_names() -> Workflow:
    def manage(name: str, child: Any) -> Any:
        async def run(ctx: Context, node_input: Any) -> AsyncGenerator[Any, None]:
            yield await ctx.run_node(child)

        return node(run, name=name, rerun_on_resume=True)

    ended, asks = node(text("ended"), name="child"), node(asking_again("q"), name="child")
    edges: Any = [(START, (manage("a", ended), manage("b", asks)), JoinNode(name="join"), join_values)]
    return Workflow(name="flow", edges=edges)


def items(node_input: Any) -> list[str]:
    return ["ask 1", "work", "ask 2"]


async def work(ctx: Context, node_input: str) -> AsyncGenerator[Any, None]:
    if not node_input.startswith("ask"):
        note(node_input)
        yield node_input
    elif node_input in ctx.resume_inputs:
        yield f"{node_input} {ctx.resume_inputs[node_input]}"
    else:
        yield RequestInput(interrupt_id=node_input, message=node_input, response_schema=str)


def workers(**more: Any) -> Callable[[], Workflow]:
    return chain(items, node(work, rerun_on_resume=True, parallel_worker=True, **more))


DYNAMIC: dict[str, Scenario] = {
    "dynamic nodes that ask in turn": Scenario(
        chain(manager(asking_again("a"), asking_again("b"))), ["a x", "b y"], ("x", "y")
    ),
    "a dynamic node that has ended does not run again": Scenario(
        chain(manager(text("done"), asking_again("a"))), ["done", "a x"], ("x",), ran=("done", "a", "a")
    ),
    "a dynamic node without an output does not run again": Scenario(
        chain(manager(silent("quiet"), asking_again("a"))), [None, "a x"], ("x",), ran=("quiet", "a", "a")
    ),
    "a dynamic node that does not run again": Scenario(chain(manager(asking("a"))), ["x"], ("x",)),
    "a dynamic node in a nested workflow": Scenario(chain(nested(manager(asking_again("a")))), ["a x"], ("x",)),
    "a dynamic workflow that asks": Scenario(chain(manager(nested(asking_again("a")))), ["a x"], ("x",)),
    "a dynamic node in a dynamic workflow": Scenario(
        chain(manager(nested(manager(asking_again("a"))), text("end"))), [["a x"], "end"], ("x",)
    ),
    "dynamic nodes of the same name": Scenario(same_names, ["a=ended", "b=q x"], ("x",), ran=("ended", "q", "q")),
    "an output of a dynamic node that asks": Scenario(chain(manager(asking_again("a"), output=True)), "a x", ("x",)),
    "workers that ask": Scenario(workers(), ["ask 1 x", "work", "ask 2 y"], ("x", "y"), ran=("work",)),
    "workers that ask, one at a time": Scenario(
        workers(max_parallel_workers=1), ["ask 1 x", "work", "ask 2 y"], ("x", "y"), ran=("work",)
    ),
}

SCENARIOS = QUESTIONS | DYNAMIC


@pytest.mark.parametrize("resumable", [False, True], ids=["plain", "resumable"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_question_goes_on_as_in_adk(sqlite_url: str, name: str, resumable: bool) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name], resumable=resumable)
