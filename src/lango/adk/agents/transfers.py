"""Transfers to agents that do not exist: how ADK words them, and what the model is told."""

import re
from collections.abc import Sequence
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent

from lango.adk.agents.tree import walk_agents

TRANSFER_TOOL = "transfer_to_agent"

# every wording of ADK 2.13 for it; a contract test fails when ADK changes one
_WORDINGS = (
    re.compile(r"^Transfer target agent '(?P<name>.*)' not found\."),
    re.compile(r"^Agent (?P<name>.*) not found in the agent tree\."),
    re.compile(r"^Agent '(?P<name>.*)' (?:not found|cannot transfer to itself)\."),
    re.compile(r"^Agent .* is not allowed to transfer to agent (?P<name>.*)\.$"),
    re.compile(r"^Cannot transfer from '.*' to (?:unrelated|parent|peer) agent '(?P<name>.*)'[.:]"),
)


def missing_transfer_target(error: BaseException) -> str | None:
    """Return the name of the agent that ADK did not find, if that is what the error says."""
    if isinstance(error, ValueError):
        for wording in _WORDINGS:
            if found := wording.match(str(error)):
                return found["name"]
    return None


def transfer_correction(name: str, valid: Sequence[str]) -> str:
    """Return what the model is told."""
    return (
        f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )


def transfer_targets(root: Any, name: str) -> list[str]:
    """Return the agents that an agent can hand over to, as ADK offers them: its own, its parent, its siblings."""
    for agent in walk_agents(root):
        if agent.name == name and isinstance(agent, LlmAgent):
            near = [*agent.sub_agents]
            parent = agent.parent_agent
            if isinstance(parent, LlmAgent):
                near += [] if agent.disallow_transfer_to_parent else [parent]
                near += [] if agent.disallow_transfer_to_peers else parent.sub_agents
            return [
                target.name
                for target in near
                if target.name != name and (target is parent or not _is_agent_tool(target))
            ]
    return []


def _is_agent_tool(agent: BaseAgent) -> bool:
    """Whether an agent is called like a tool, and never handed over to."""
    return getattr(agent, "mode", None) in ("task", "single_turn")
