"""List the agents that an agent may transfer to, and correct transfers to agents that do not exist."""

import re
from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent

from lango.adk.agents.tree import walk_agents
from lango.sessions import CORRECTION

TRANSFER_TOOL = "transfer_to_agent"

# every message of ADK 2.13 for it; a contract test fails when ADK changes one
_WORDINGS = (
    re.compile(r"^Transfer target agent '(?P<name>.*)' not found\."),
    re.compile(r"^Agent (?P<name>.*) not found in the agent tree\."),
    re.compile(r"^Agent '(?P<name>.*)' (?:not found|cannot transfer to itself)\."),
    re.compile(r"^Agent .* is not allowed to transfer to agent (?P<name>.*)\.$"),
    re.compile(r"^Cannot transfer from '.*' to (?:unrelated|parent|peer) agent '(?P<name>.*)'[.:]"),
)


def missing_transfer_target(error: BaseException) -> str | None:
    """Return the name of the agent that ADK could not find; None for any other error."""
    if isinstance(error, ValueError):
        for wording in _WORDINGS:
            if found := wording.match(str(error)):
                return found["name"]
    return None


def transfer_correction(name: str, valid: Sequence[str]) -> str:
    """Return the message that asks the model to transfer to an existing agent."""
    return (
        f'{CORRECTION}{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )


def transfer_targets(root: Any, name: str) -> list[str]:
    """Return the agents that ADK offers an agent for transfers: its children, its parent and its siblings."""
    for agent in walk_agents(root):
        if agent.name == name and isinstance(agent, LlmAgent):
            near = [*agent.sub_agents]
            parent = agent.parent_agent
            if isinstance(parent, LlmAgent):
                near += [] if agent.disallow_transfer_to_parent else [parent]
                near += [] if agent.disallow_transfer_to_peers else parent.sub_agents
            others = [target for target in near if target.name != name]
            # ADK calls agents of these modes as tools
            tools = [target for target in others if getattr(target, "mode", None) in ("task", "single_turn")]
            return [target.name for target in others if target is parent or target not in tools]
    return []
