"""Only the complete answer of an agent after which nothing runs surely ends a turn."""

import warnings
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.apps import App
from google.adk.events import Event
from google.adk.plugins import BasePlugin
from google.adk.workflow import Workflow
from google.genai import types

from lango.adk.agents.tree import final_answer_agents, is_final_answer
from lango.adk.model.provider_llm import ProviderLlm
from lango.testing import ScriptedProvider

MODEL = ProviderLlm(ScriptedProvider([]), "x")
CALL = types.Part(function_call=types.FunctionCall(id="c", name="look", args={}))
RESULT = types.Part(function_response=types.FunctionResponse(id="c", name="look", response={}))


def agent(name: str = "one", **fields: Any) -> LlmAgent:
    return LlmAgent.model_validate({"name": name, "model": MODEL, **fields})


def app(root: Any, *more: BasePlugin) -> App:
    return App(name="app", root_agent=root, plugins=[BasePlugin(name="ours"), *more])


def add_nothing(**_: object) -> None:
    """A callback that could add an answer."""


def event(*parts: types.Part, **fields: Any) -> Event:
    all_fields: dict[str, Any] = {"author": "one", "finish_reason": types.FinishReason.STOP, **fields}
    return Event(content=types.Content(role="model", parts=list(parts)), **all_fields)


def test_a_single_agent_ends_the_turn() -> None:
    assert final_answer_agents(app(agent(output_key="said", tools=[print]))) == {"one"}
    assert not final_answer_agents(app(agent(), BasePlugin(name="theirs")))


def test_agents_that_are_transferred_to_end_the_turn_and_so_does_the_last_of_a_sequence() -> None:
    helper = agent("three", after_agent_callback=add_nothing)
    assert final_answer_agents(app(agent(sub_agents=[agent("two"), helper]))) == {"one", "two"}
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        row = SequentialAgent(name="row", sub_agents=[agent(), agent("two")])  # pyright: ignore[reportDeprecated]
    assert final_answer_agents(app(row)) == {"two"}


@pytest.mark.parametrize(
    "root",
    [
        agent(model="gemini-2.5-flash"),  # ADK's own models may give several complete responses to a request
        agent(after_agent_callback=add_nothing, sub_agents=[agent("two")]),
        agent(after_agent_callback=add_nothing),
        agent(after_model_callback=add_nothing),
        Workflow(name="row", edges=[("START", agent(), agent("two"))]),
    ],
    ids=["own model", "callback after sub agents", "callback after it", "callback on answers", "workflow"],
)
def test_in_other_apps_an_answer_may_not_end_the_turn(root: Any) -> None:
    assert not final_answer_agents(app(root))


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (event(types.Part(text="done")), True),
        (event(types.Part(text="well", thought=True), types.Part(text="done")), True),
        (event(types.Part(text="done"), finish_reason=types.FinishReason.MAX_TOKENS), True),
        (event(types.Part(text="done"), finish_reason=None), False),
        (event(types.Part(text="do"), partial=True), False),
        (event(types.Part(text="done"), author="two"), False),
        (event(types.Part(text="done"), error_code="X"), False),
        (event(types.Part(text="well", thought=True)), False),
        (event(types.Part(text=" \n")), False),
        (event(types.Part(text="I look"), CALL), False),
        (event(types.Part(text="I look"), CALL, long_running_tool_ids={"c"}), False),
        (event(RESULT), False),
        (event(), False),
    ],
)
def test_only_a_complete_text_answer_is_final(event: Event, ends: bool) -> None:
    assert is_final_answer(event, {"one"}) is ends
    assert not is_final_answer(event, ())
