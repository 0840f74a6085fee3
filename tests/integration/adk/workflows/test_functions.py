"""Scenarios of ADK's own tests of function nodes: parameters, state, schemas and outputs."""

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from google.adk.agents.context import Context
from google.adk.events import Event
from google.adk.workflow import START, FunctionNode, Workflow, node
from google.genai import types
from pydantic import BaseModel, Field

from tests.support.workflow_scenarios import (
    Scenario,
    event,
    flow,
    note,
    run_scenario,
    text,
)


class Order(BaseModel):
    size: int
    color: str = "red"


class Limits(BaseModel):
    counter: int = Field(ge=1)


# -- functions and their parameters ---------------------------------------------------------------------------------


def chain(*functions: Any) -> Callable[[], Workflow]:
    return flow((START, *functions))


def gives(value: Any) -> Any:
    def give() -> Any:
        return value

    return node(give)


async def asynchronous(node_input: Any) -> str:
    return f"{node_input}, async"


def generating(node_input: Any) -> Generator[Any, None, None]:
    yield event(output=f"{node_input}, generator")


async def generating_async(node_input: Any) -> AsyncGenerator[Any, None]:
    yield f"{node_input}, async generator"


def nothing(node_input: Any) -> None:
    note("nothing")


def sets_state(**values: Any) -> Any:
    async def change(ctx: Context) -> AsyncGenerator[Any, None]:
        yield event(state=values)

    return node(change)


def by_name(size: int, color: str = "blue") -> str:
    return f"{size} {color}"


def order_size(node_input: Order) -> str:
    return f"{node_input.size} {node_input.color}"


def order_in_state(order: Order) -> int:
    return order.size


def sizes(node_input: list[Order]) -> list[int]:
    return [order.size for order in node_input]


def sizes_by_name(node_input: dict[str, Order]) -> dict[str, int]:
    return {name: order.size for name, order in node_input.items()}


def list_or_dict(node_input: list[Any] | dict[str, Any]) -> str:
    return type(node_input).__name__


def text_or_nothing(node_input: str | None) -> str:
    return f"got {node_input}"


def text_or_number(node_input: str | int) -> str:
    return f"got {node_input}"


def content_text(node_input: Any) -> str:
    return type(node_input).__name__


def makes_order(value: Any) -> Any:
    def make() -> Order:
        return value

    return node(make)


def speaks(node_input: Any) -> Generator[Any, None, None]:
    for word in ("one ", "two"):
        yield Event(author="a", content=types.Content(parts=[types.Part(text=word)]))


def yields_content(node_input: Any) -> types.Content:
    return types.Content(parts=[types.Part(text="some content")])


def speaks_first(node_input: Any) -> Generator[Any, None, None]:
    yield Event(content=types.Content(parts=[types.Part(text="working")]))
    yield event(output="ready")


def writes_twice(ctx: Context, node_input: Any) -> Event:
    ctx.state["a"] = 1
    return event(output="x", state={"b": 2})


def writes_in_steps(ctx: Context) -> Generator[Any, None, None]:
    ctx.state["a"] = 1
    yield event(state={"a": 1})
    ctx.state["b"] = 2
    yield "x"


def writes_untyped(ctx: Any = None) -> str:
    ctx.state["a"], ctx.state["b"] = 1, 2
    return "x"


def reads_both(a: int, b: int) -> list[int]:
    return [a, b]


def prefixed(prefix: str, node_input: Any) -> str:
    return f"{prefix} {node_input}"


def bound(function: Any) -> Any:
    return FunctionNode(func=function, name="bound", parameter_binding="node_input")


def add(x: int, y: int = 10) -> int:
    return x + y


def add_required(x: int, y: int) -> int:
    return x + y


def with_context(x: int, ctx: Context) -> str:
    return f"{x} {type(ctx).__name__}"


def with_others(x: int, **others: Any) -> dict[str, Any]:
    return {"x": x, "others": others}


FUNCTIONS: dict[str, Scenario] = {
    "functions of every kind": Scenario(
        chain(text("a"), asynchronous, generating, generating_async), "a, async, generator, async generator"
    ),
    "functions without an output": Scenario(chain(nothing, text("end")), "end", ran=("nothing", "end")),
    "a function made of another one": Scenario(chain(text("a"), functools.partial(prefixed, "so")), "so a"),
    "a parameter of the state, and a default": Scenario(chain(sets_state(size=3), by_name), "3 blue"),
    "a parameter that is missing": Scenario(chain(by_name), error='Missing value for parameter "size"'),
    "a parameter of another type": Scenario(chain(sets_state(size="large"), by_name), error="ValueError|ValidationErr"),
    "a model of the state": Scenario(chain(sets_state(order={"size": 2}), order_in_state), 2),
    "an input that becomes a model": Scenario(chain(gives({"size": "2"}), order_size), "2 red"),
    "an input that is no such model": Scenario(chain(gives({"color": "blue"}), order_size), error="size"),
    "a list of models": Scenario(chain(gives([{"size": 1}, {"size": 2}]), sizes), [1, 2]),
    "no list of models": Scenario(chain(gives(3), sizes), error="list"),
    "models by name": Scenario(chain(gives({"a": {"size": 1}}), sizes_by_name), {"a": 1}),
    "one of two types": Scenario(chain(gives({"a": 1}), list_or_dict), "dict"),
    "none of two types": Scenario(chain(gives([1]), text_or_number), error="ValueError|ValidationErr"),
    "the message as a text": Scenario(chain(text_or_number), "got go"),
    "the message as a text or nothing": Scenario(chain(text_or_nothing), "got go"),
    "the message as it is": Scenario(chain(content_text), "Content"),
    "the message as JSON": Scenario(chain(sizes), [1, 2], message='[{"size": 1}, {"size": 2}]'),
    "a text and no output": Scenario(chain(speaks), says="one two"),
    "a content and no output": Scenario(chain(yields_content), says="some content"),
    "a text before the output": Scenario(chain(speaks_first), "ready"),
    "state in an event and in the context": Scenario(chain(writes_twice, reads_both), [1, 2]),
    "state of a generator": Scenario(chain(writes_in_steps, reads_both), [1, 2]),
    "a context without a type": Scenario(chain(writes_untyped, reads_both), [1, 2]),
    "an output that becomes a model": Scenario(chain(makes_order({"size": "2"})), {"size": 2, "color": "red"}),
    "an output that is a model": Scenario(chain(makes_order(Order(size=2))), {"size": 2, "color": "red"}),
    "an output in an event that becomes a model": Scenario(
        chain(makes_order(event(output={"size": 2}))), {"size": 2, "color": "red"}
    ),
    "an output that is no such model": Scenario(chain(makes_order({"color": "blue"})), error="size"),
    "no output where a model is expected": Scenario(chain(makes_order(None), text_or_nothing), "got None"),
    "parameters of the input": Scenario(chain(gives({"x": 1, "y": 2}), bound(add)), 3),
    "parameters of the input, and a default": Scenario(chain(gives({"x": 1}), bound(add)), 11),
    "parameters of the input, and one is missing": Scenario(
        chain(gives({"x": 1}), bound(add_required)), error='Missing value for parameter "y"|y'
    ),
    "parameters of the input, and the context": Scenario(chain(gives({"x": 1}), bound(with_context)), "1 Context"),
    "all other parameters of the input": Scenario(
        chain(gives({"x": 1, "a": 2}), bound(with_others)), {"x": 1, "others": {"a": 2}}
    ),
}


# -- state schemas --------------------------------------------------------------------------------------------------


def writes_state(**values: Any) -> Any:
    def write(ctx: Context) -> str:
        for name, value in values.items():
            ctx.state[name.replace("__", ":")] = value
        return "written"

    return node(write)


def writes_other(ctx: Context) -> None:
    ctx.state["other"] = 1


def limited(*nodes: Any) -> Callable[[], Workflow]:
    return flow((START, *nodes), state_schema=Limits)


SCHEMAS: dict[str, Scenario] = {
    "a state that fits": Scenario(limited(writes_state(counter=1)), "written"),
    "a state that does not fit": Scenario(limited(writes_state(counter="many")), error="counter"),
    "a state with another name": Scenario(limited(writes_state(other=1)), error="other"),
    "a state of an event that fits": Scenario(limited(sets_state(counter=1), text("end")), "end"),
    "a state of an event with another name": Scenario(limited(sets_state(other=1)), error="other"),
    "a state of the app": Scenario(limited(writes_state(app__other=1, temp__x=2)), "written"),
    "a state of one node": Scenario(
        chain(FunctionNode(func=writes_other, name="n", state_schema=Limits)), error="other"
    ),
}

SCENARIOS = FUNCTIONS | SCHEMAS


@pytest.mark.parametrize("name", SCENARIOS)
async def test_functions_run_as_in_adk(sqlite_url: str, name: str) -> None:
    await run_scenario(sqlite_url, SCENARIOS[name])
