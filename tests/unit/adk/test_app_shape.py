"""The version of an app is what decides whether a turn can be replayed, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.workflow import START, Workflow

from lango.adk import idempotent
from lango.adk.agents.app_shape import shape_of
from lango.adk.agents.tools.adk_tool import effect_of_tool
from lango.config import ToolSettings


def fingerprint(root: Any) -> str:
    return shape_of(root, lambda tool: effect_of_tool(tool, ToolSettings())).fingerprint


def look_up(word: str) -> str:
    """Look up a word."""
    return word


def agent(name: str = "root", **more: Any) -> LlmAgent:
    fields: dict[str, Any] = {"name": name, "tools": [look_up]} | more
    return LlmAgent(**fields)


def described() -> Callable[..., Any]:
    def look_up(word: str) -> str:
        """Find a word in the dictionary."""
        return word

    return look_up


def with_two_arguments() -> Callable[..., Any]:
    def look_up(word: str, language: str) -> str:
        return word + language

    return look_up


def marked() -> Callable[..., Any]:
    def look_up(word: str) -> str:
        return word

    return idempotent(look_up)


def one(node_input: str) -> str:
    return node_input


def two(node_input: str) -> str:
    return node_input


@pytest.mark.parametrize(
    "same",
    [agent(instruction="Be brief."), agent(description="x"), agent(model="another"), agent(tools=[described()])],
    ids=["instruction", "description", "model", "description of a tool"],
)
def test_words_and_models_do_not_change_the_version(same: LlmAgent) -> None:
    assert fingerprint(same) == fingerprint(agent())


@pytest.mark.parametrize(
    "other",
    [
        agent("other"),
        agent(tools=[]),
        agent(tools=[with_two_arguments()]),
        agent(tools=[marked()]),
        agent(sub_agents=[agent("below")]),
        Workflow(name="root", edges=[(START, one)]),
    ],
    ids=["name", "tool removed", "schema", "effect", "sub-agent", "class"],
)
def test_what_decides_a_replay_changes_the_version(other: Any) -> None:
    assert fingerprint(other) != fingerprint(agent())


def test_the_edges_of_a_workflow_belong_to_its_version() -> None:
    graphs = [Workflow(name="r", edges=[(START, *nodes)]) for nodes in ((one, two), (two, one), (one, two))]
    assert fingerprint(graphs[0]) == fingerprint(graphs[2]) != fingerprint(graphs[1])
