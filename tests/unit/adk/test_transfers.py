"""A5: recognise every error of ADK about a transfer to an agent that does not exist."""

import ast
import re
from pathlib import Path
from typing import Any, TypeGuard

import google.adk
import pytest
from google.adk.agents import LlmAgent
from google.adk.flows.llm_flows.core import _function_call_postprocessor as postprocessor
from google.adk.flows.llm_flows.extensions import _agent_transfer as offered

from lango.adk.agents.tree import missing_transfer_target, transfer_correction, transfer_targets, walk_agents

ADK = Path(google.adk.__path__[0])

# Every message of ADK about an agent that cannot be a transfer target, by the file that holds it.
KNOWN = {
    "workflow/_dynamic_node_scheduler.py": [
        "Transfer target agent '{target_name}' not found.",
        "Cannot transfer from '{curr_node.name}' to unrelated agent '{target_name}'.{available_str}",
    ],
    "flows/llm_flows/core/_function_call_postprocessor.py": [
        "Agent {agent_name} not found in the agent tree.",
        "Agent {agent.name} is not allowed to transfer to agent {agent_name}.",
    ],
    "workflow/utils/_transfer_utils.py": [
        "Agent '{target_name}' cannot transfer to itself.",
        "Cannot transfer from '{current_agent.name}' to parent agent '{target_name}': "
        "disallow_transfer_to_parent is set.",
        "Cannot transfer from '{current_agent.name}' to peer agent '{target_name}': disallow_transfer_to_peers is set.",
    ],
    "agents/llm_agent.py": ["Agent '{agent_name}' not found.\n"],
}
_FAILS = re.compile(r"agent.*(not found|not allowed)|cannot transfer", re.IGNORECASE)


def sentences(file: Path) -> list[str]:
    """Return the first lines of the f-strings in a file about agents that were not found or not allowed."""
    found = [
        "".join(map(_piece, node.values)) for node in ast.walk(ast.parse(file.read_text("utf-8"))) if _is_text(node)
    ]
    lines = [text.partition("\n")[0] + "\n" * ("\n" in text) for text in found]
    return [line for line in lines if _FAILS.search(line) and "{" in line]


def _is_text(node: ast.AST) -> TypeGuard[ast.JoinedStr]:
    return isinstance(node, ast.JoinedStr)


def _piece(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return "{" + ast.unparse(part.value) + "}"
    return str(part.value) if isinstance(part, ast.Constant) else ""


def test_a5_every_transfer_error_in_adks_source_is_known() -> None:
    found = {
        str(file.relative_to(ADK)): texts
        for folder in ("agents", "flows", "workflow")
        for file in (ADK / folder).rglob("*.py")
        if (texts := sorted(text for text in sentences(file) if "Artifact" not in text and "variable" not in text))
    }
    expected = {path: sorted(texts) for path, texts in KNOWN.items()}
    others = {path: texts for path, texts in found.items() if path not in expected}
    assert {path: found.get(path) for path in expected} == expected, "ADK words it anew: see lango/adk/agents/tree.py"
    assert not any("ransfer" in text for texts in others.values() for text in texts), others


@pytest.mark.parametrize("template", [text for texts in KNOWN.values() for text in texts])
def test_a5_every_transfer_error_is_recognised(template: str) -> None:
    text = template.replace("{target_name}", "nobody").replace("{agent_name}", "nobody")
    text = re.sub(r"\{(curr_node|current_agent|agent)\.name\}", "boss", text)
    text = text.replace("{available_str}", "\nAvailable agents: a, b").replace(".\n", ".\nAvailable agents: a, b")
    assert missing_transfer_target(ValueError(text)) == "nobody"
    assert missing_transfer_target(RuntimeError(text)) is None, "ADK raises ValueError"


def trees() -> LlmAgent:
    return LlmAgent(
        name="boss",
        sub_agents=[
            LlmAgent(name="clerk", sub_agents=[LlmAgent(name="below")]),
            LlmAgent(name="poet", disallow_transfer_to_parent=True),
            LlmAgent(name="loner", disallow_transfer_to_parent=True, disallow_transfer_to_peers=True),
            LlmAgent(name="errand", mode="single_turn"),
        ],
    )


def test_a5_errors_that_adk_raises_are_recognised() -> None:
    """Check the errors that ADK really raises for a missing agent, not only its source."""
    boss = trees()

    class Context:
        agent: Any = boss

    for wanted in ("nobody", "below"):
        with pytest.raises(ValueError, match="gent") as raised:
            postprocessor.get_agent_to_run(Context(), wanted)  # pyright: ignore[reportArgumentType]
        assert missing_transfer_target(raised.value) == wanted


def test_a5_transfer_targets_are_those_that_adk_offers() -> None:
    boss = trees()
    for agent in walk_agents(boss):
        theirs = [target.name for target in offered._get_transfer_targets(agent)]  # pyright: ignore[reportPrivateUsage]
        assert transfer_targets(boss, agent.name) == theirs, agent.name
    assert transfer_targets(boss, "nobody") == []


def test_a5_the_correction_has_the_required_text() -> None:
    assert transfer_correction("x", ["a", "b"]) == (
        '[System: Agent "x" does not exist. Valid agents: a, b. '
        "Please retry using one of the valid agent names listed above.]"
    )


@pytest.mark.parametrize("text", ["Session not found: s1", "Agent is tired", "the agent 'x' was not found by somebody"])
def test_other_errors_are_not_taken_for_a_bad_transfer(text: str) -> None:
    assert missing_transfer_target(ValueError(text)) is None
