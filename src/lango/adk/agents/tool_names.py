"""What the tools of an app are called, as far as that is known before a turn."""

import logging
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.tools.base_toolset import BaseToolset
from msgspec import Struct

from lango.adk.agents.tree import names_of, walk_with_agent_tools
from lango.errors import LangoError

_log = logging.getLogger("lango.runtime")

_WORKFLOW_AGENTS = frozenset({"SequentialAgent", "ParallelAgent", "LoopAgent"})


class ToolNames(Struct, frozen=True):
    """Names of tools, and whether they are all that a turn may come to."""

    names: frozenset[str]
    complete: bool
    """False: a toolset, a callback, a plugin or an agent of another kind may bring others in a turn."""


async def tool_names(app: App, *, ask_toolsets: bool) -> ToolNames:
    """Return the names of an app's tools. Toolsets are only asked on demand: an MCP server is started for it.

    Raises `ConfigError` for an MCP server of the settings that does not answer, as a turn would.
    """
    root: Any = app.root_agent
    agents = [*walk_with_agent_tools(root)]
    tools = [tool for agent in agents for tool in vars(agent).get("tools", ())]
    toolsets = [tool for tool in tools if isinstance(tool, BaseToolset)]
    names = {*names_of(tool for tool in tools if not isinstance(tool, BaseToolset))}
    complete = isinstance(root, BaseAgent) and len(app.plugins) == 1 and all(map(_has_static_tools, agents))
    for toolset in toolsets:
        found = await _toolset_names(toolset) if ask_toolsets else None
        names.update(found or ())
        complete = complete and found is not None and getattr(toolset, "tools_are_static", False)
    return ToolNames(frozenset(names), complete)


def _has_static_tools(agent: BaseAgent) -> bool:
    """Whether an agent has the tools that it lists, and no others."""
    if type(agent) is LlmAgent:
        return not agent.before_model_callback
    return type(agent).__name__ in _WORKFLOW_AGENTS and type(agent).__module__.startswith("google.adk.")


async def _toolset_names(toolset: BaseToolset) -> set[str] | None:
    """Return the names of a toolset's tools; None where it does not tell them outside a turn."""
    try:
        return names_of(await toolset.get_tools_with_prefix())
    except LangoError:
        raise
    except Exception as error:  # noqa: BLE001 - it is somebody's own, and may need what only a turn has
        _log.debug("a toolset does not tell its tools before a turn: %s", error)
        return None
