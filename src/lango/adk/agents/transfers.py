"""Transfers to agents that do not exist: how ADK words them, and what the model is told."""

import re
from collections.abc import Sequence

TRANSFER_TOOL = "transfer_to_agent"

# every wording of ADK 2.13 for it; a contract test fails when ADK changes one
_WORDINGS = (
    re.compile(r"^Transfer target agent '(?P<name>.*)' not found\."),
    re.compile(r"^Agent (?P<name>.*) not found in the agent tree\."),
    re.compile(r"^Agent '(?P<name>.*)' (?:not found|cannot transfer to itself)\."),
    re.compile(r"^Agent .* is not allowed to transfer to agent (?P<name>.*)\.$"),
    re.compile(r"^Cannot transfer from '.*' to (?:unrelated|parent|peer) agent '(?P<name>.*)'[.:]"),
)


def missing_agent(error: BaseException) -> str | None:
    """Return the name of the agent that ADK did not find, if that is what the error says."""
    if isinstance(error, ValueError):
        for wording in _WORDINGS:
            if found := wording.match(str(error)):
                return found["name"]
    return None


def correction(name: str, valid: Sequence[str]) -> str:
    """Return what the model is told."""
    return (
        f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )
