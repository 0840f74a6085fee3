"""Workflows as root agents: what their nodes put out is emitted and stored, and the last output is the answer."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow, node
from pydantic import BaseModel

from lango import open_runtime
from lango.errors import AgentFailed, EmptyAnswer
from lango.events import TextDelta, TurnDone
from lango.testing import ScriptedProvider
from tests.agents.parts import collect, messages, settings_for, stored


class Order(BaseModel):
    size: int = 1
    paid: bool = False


def one(node_input: Any) -> str:
    return "from one"


def two(node_input: Any) -> dict[str, int]:
    return {"n": 2}


def wrap(node_input: Any) -> list[Any]:
    return [node_input]


def order(node_input: Any) -> Order:
    return Order(paid=True)


def nothing(node_input: Any) -> None:
    return None


def speak(node_input: Any) -> Event:
    return Event.model_validate({"message": "I am done.", "output": 5})


def count(ctx: Context, node_input: Any) -> Event:
    number = ctx.state.get("number", 0) + 1
    ctx.state["number"] = number
    return Event.model_validate({"output": number, "route": "again" if number < 3 else "enough"})


def fail_once(ctx: Context, node_input: Any) -> str:
    if ctx.attempt_count == 1:
        raise ConnectionError("try again")
    return "second attempt"


def fan_out() -> Workflow:
    return Workflow(name="flow", edges=[(START, (one, two), JoinNode(name="join"), wrap)])


def loop() -> Workflow:
    counting = node(count)
    return Workflow(name="flow", edges=[(START, counting), (counting, {"again": counting, "enough": wrap})])


def nested() -> Workflow:
    inner = Workflow(name="inner", edges=[(START, one, two)])
    return Workflow(name="flow", edges=[(START, inner, Workflow(name="last", edges=[(START, wrap)]))])


def retried() -> Workflow:
    retry = RetryConfig(max_attempts=3, initial_delay=0.01, jitter=0)
    return Workflow(name="flow", edges=[(START, node(fail_once, retry_config=retry))])


SHAPES: dict[str, tuple[Any, str, Any]] = {
    "functions": (lambda: Workflow(name="flow", edges=[(START, one, two)]), '{"n":2}', {"n": 2}),
    "a text": (lambda: Workflow(name="flow", edges=[(START, two, one)]), "from one", "from one"),
    "a model of pydantic": (
        lambda: Workflow(name="flow", edges=[(START, order)]),
        '{"size":1,"paid":true}',
        {"size": 1, "paid": True},
    ),
    "a message beside the output": (lambda: Workflow(name="flow", edges=[(START, speak)]), "I am done.", 5),
    "no output": (lambda: Workflow(name="flow", edges=[(START, nothing)]), "", None),
    "a loop": (loop, "[3]", [3]),
    "nested workflows": (nested, '[{"n":2}]', [{"n": 2}]),
    "a node that is retried": (retried, "second attempt", "second attempt"),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_final_output_of_a_workflow_is_the_answer(sqlite_url: str, shape: str) -> None:
    make, text, output = SHAPES[shape]
    async with open_runtime(settings_for(sqlite_url), root_agent=make()) as runtime:
        assert await runtime.run("s", "go", idempotency_key="k") == text
        events = await collect(runtime.stream("s", "go", idempotency_key="k"))
        assert isinstance(done := events[-1], TurnDone)
        assert done.output == output
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
        answers = [message.content for message in await messages(runtime) if message.role == "assistant"]
        assert answers == ([text] if text else [])
    async with open_runtime(settings_for(sqlite_url), root_agent=make()) as another:
        assert await another.run("s", "go", idempotency_key="k") == text, "the same in a process that did not run it"


async def test_the_outputs_of_parallel_nodes_are_joined(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=fan_out()) as runtime:
        done = (await collect(runtime.stream("s", "go")))[-1]
        assert isinstance(done, TurnDone)
        assert done.output == [{"one": "from one", "two": {"n": 2}}]


async def test_the_output_of_a_function_after_an_agent_is_the_answer(sqlite_url: str) -> None:
    agent = LlmAgent(name="writer", model="openai/x")
    root = Workflow(name="flow", edges=[(START, agent, wrap)])
    provider = ScriptedProvider(["a draft", "another draft"])
    async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=provider) as runtime:
        events = await collect(runtime.stream("s", "go"))
        texts = [(event.author, event.text) for event in events if isinstance(event, TextDelta)]
        assert "".join(text for author, text in texts if author == "writer") == "a draft"
        assert texts[-1] == ("flow", '["a draft"]')
        assert [message.content for message in await messages(runtime)] == ["go", "a draft", '["a draft"]']
        # the event is the one that ADK made: without content, with its output
        assert (await stored(runtime))[-1].extra == {
            "output": ["a draft"],
            "output_text": True,
            "node_info": {"path": "flow@1/wrap@1", "output_for": ["flow@1/wrap@1", "flow@1"]},
        }
        assert await runtime.run("s", "again") == '["another draft"]'
    sent = [message.content for message in provider.requests[-1].messages]
    assert '["a draft"]' not in "".join(sent), "as in ADK, a model does not read the outputs of nodes"


async def test_a_workflow_whose_agent_says_nothing_has_no_answer(sqlite_url: str) -> None:
    root = Workflow(name="flow", edges=[(START, LlmAgent(name="writer", model="openai/x"), nothing)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=ScriptedProvider([""])) as runtime:
        with pytest.raises(EmptyAnswer):
            await runtime.run("s", "go")


async def test_a_workflow_with_two_ends_fails_with_the_reason(sqlite_url: str) -> None:
    root = Workflow(name="flow", edges=[(START, (one, two))])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        with pytest.raises(AgentFailed, match="multiple terminal nodes"):
            await runtime.run("s", "go")
