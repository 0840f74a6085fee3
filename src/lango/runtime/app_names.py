"""Load users' own agents, and name the app that the sessions of each belong to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from lango.adk.agents.app_builder import own_app_name
from lango.config import Settings
from lango.config.agent_files import agent_location
from lango.errors import ConfigError


def load_named_agent(settings: Settings, root_agent: Any = None) -> tuple[Settings, Any]:
    """Load the agent of `agent.module`, unless one is given; return it, and the settings with the name of its app.

    The app has its agent's name, unless the settings or an `App` name it. Return None for the agent if there is none.
    """
    if root_agent is None and settings.agent.module:
        from lango.adk.agents.loader import load_agent  # ADK's loader brings requests and yaml

        root_agent = load_agent(settings.agent.module)
    if root_agent is None:
        return settings, None
    name = own_app_name(root_agent) or settings.agent.name or str(root_agent.name)
    return settings.model_copy(update={"agent": settings.agent.model_copy(update={"name": name})}), root_agent


class BrokenAgent(Struct, frozen=True):
    """An agent of several that cannot be loaded or run."""

    name: str
    """Of its file or folder: the agent's own name is not known."""
    path: str
    error: ConfigError


def load_agents(settings: Settings, paths: Sequence[str]) -> tuple[list[tuple[Settings, Any]], list[BrokenAgent]]:
    """Load the agents at several paths; return the settings of each, with its name, and its agent or app.

    Those that cannot be loaded are returned apart. Raise `ConfigError` if none can, or if two have the same name.
    """
    from lango.adk.agents.loader import load_agent

    if settings.agent.name and len(paths) > 1:
        raise ConfigError("agent.name cannot name several agents: remove it, or give the path of one agent")
    found: dict[str, tuple[Settings, Any]] = {}
    broken: list[BrokenAgent] = []
    for path in paths:
        try:
            agent = load_agent(path)
        except ConfigError as error:
            broken.append(BrokenAgent(Path(path).resolve().stem, path, error))
            continue
        if agent.name in found:
            first = agent_location(found[agent.name][0].agent.module or "")
            second = agent_location(path)
            raise ConfigError(f"two agents have the name {agent.name!r} ({first}; {second}): rename one of them")
        found[agent.name] = settings.with_agent(path, settings.agent.name or agent.name), agent
    if not found:
        raise broken[0].error
    return [*found.values()], broken
