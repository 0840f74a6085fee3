"""List the names of an app's tools before a turn."""

import logging
from typing import Any, Protocol, runtime_checkable

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.tools.base_toolset import BaseToolset
from msgspec import Struct

from lango.adk.agents.tree import names_of, tools_of, walk_with_agent_tools
from lango.errors import LangoError

_log = logging.getLogger("lango.runtime")

_WORKFLOW_AGENTS = frozenset({"SequentialAgent", "ParallelAgent", "LoopAgent"})


@runtime_checkable
class StaticToolset(Protocol):
    """A toolset that offers the same tools in every turn."""

    tools_are_static: bool


class ToolNames(Struct, frozen=True):
    """Names of tools, and whether a turn can have no others."""

    names: frozenset[str]
    complete: bool
    """False: a toolset, a callback, a plugin or an agent of another class may add tools in a turn."""


async def tool_names(app: App, *, ask_toolsets: bool) -> ToolNames:
    """List the names of an app's tools. With `ask_toolsets` also those of toolsets, which starts MCP servers.

    Raise `ConfigError` for an MCP server of the settings that does not answer, as a turn would.
    """
    root: Any = app.root_agent
    agents = [*walk_with_agent_tools(root)]
    tools = [tool for agent in agents for tool in tools_of(agent)]
    toolsets = [tool for tool in tools if isinstance(tool, BaseToolset)]
    names = {*names_of(tool for tool in tools if not isinstance(tool, BaseToolset))}
    complete = isinstance(root, BaseAgent) and len(app.plugins) == 1 and all(map(_has_static_tools, agents))
    for toolset in toolsets:
        found = await _toolset_names(toolset) if ask_toolsets else None
        names.update(found or ())
        complete = complete and found is not None and isinstance(toolset, StaticToolset)
    return ToolNames(frozenset(names), complete)


def _has_static_tools(agent: BaseAgent) -> bool:
    """Whether an agent has no tools but those that it lists."""
    if type(agent) is LlmAgent:
        return not agent.before_model_callback
    return type(agent).__name__ in _WORKFLOW_AGENTS and type(agent).__module__.startswith("google.adk.")


async def _toolset_names(toolset: BaseToolset) -> set[str] | None:
    """Return the names of a toolset's tools; None if it cannot list them outside a turn."""
    try:
        return names_of(await toolset.get_tools_with_prefix())
    except LangoError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's own toolset may need the context of a turn
        _log.debug("a toolset cannot list its tools before a turn: %s", error)
        return None
