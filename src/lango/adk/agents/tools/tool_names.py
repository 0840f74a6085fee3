"""List the names of an app's tools before a turn, and show what a call would change."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from msgspec import Struct

from lango.adk.agents.tools.adk_tool import AdkTool
from lango.adk.agents.tree import names_of, tools_of, walk_with_agent_tools
from lango.errors import LangoError
from lango.threads import run_in_thread

_log = logging.getLogger("lango.runtime")

_WORKFLOW_AGENTS = frozenset({"SequentialAgent", "ParallelAgent", "LoopAgent"})


class ToolNames(Struct, frozen=True):
    """Names of tools, and whether a turn can have no others."""

    names: frozenset[str]
    complete: bool
    """False: a toolset, a callback, a plugin or an agent of another class may add tools in a turn."""
    failures: tuple[str, ...] = ()
    """Why toolsets did not list their tools."""
    unusable: tuple[str, ...] = ()
    """Tools of MCP servers that cannot be offered, each with its reason."""


async def diff_of_call(root: Any, name: str, arguments: Mapping[str, Any]) -> str:
    """Return what a call of a tool would change, as a unified diff, or "" if the tool does not say."""
    for agent in walk_with_agent_tools(root):
        for tool in tools_of(agent):
            if isinstance(tool, AdkTool) and tool.name == name and tool.tool.diff is not None:
                return await run_in_thread(tool.tool.diff, arguments)
    return ""


async def tool_names(app: App, *, ask_toolsets: bool, require_all: bool = True) -> ToolNames:
    """List the names of an app's tools. With `ask_toolsets` also those of toolsets, which starts MCP servers.

    Raise `ConfigError` for an MCP server of the settings that does not answer, as a turn would. Without `require_all`
    that is one of the `failures`, and a server that each user signs in to is not asked.
    """
    root: Any = app.root_agent
    agents = [*walk_with_agent_tools(root)]
    tools = [tool for agent in agents for tool in tools_of(agent)]
    toolsets = [tool for tool in tools if isinstance(tool, BaseToolset)]
    names = {*names_of(tool for tool in tools if not isinstance(tool, BaseToolset))}
    complete = isinstance(root, BaseAgent) and len(app.plugins) == 1 and all(map(_has_static_tools, agents))
    failures: list[str] = []
    for toolset in toolsets:
        found, is_static = None, getattr(toolset, "tools_are_static", None)  # None: not a toolset of the settings
        if ask_toolsets and (require_all or is_static is not False):
            try:
                listed = await list_toolset(toolset)
                found = None if listed is None else names_of(listed)
            except LangoError as error:
                if require_all:
                    raise
                failures.append(str(error))
        names.update(found or ())
        complete = complete and None not in (found, is_static)
    reasons = [getattr(tool, "unusable", {}) for tool in tools]
    unusable = dict.fromkeys(reason for found in reasons for _, reason in sorted(found.items()))
    return ToolNames(frozenset(names), complete, tuple(failures), tuple(unusable))


def _has_static_tools(agent: BaseAgent) -> bool:
    """Whether an agent has no tools but those that it lists."""
    if type(agent) is LlmAgent:
        return not agent.before_model_callback
    return type(agent).__name__ in _WORKFLOW_AGENTS and type(agent).__module__.startswith("google.adk.")


async def list_toolset(toolset: BaseToolset) -> Sequence[BaseTool] | None:
    """Return a toolset's tools, or None if it cannot list them outside a turn.

    Raise `ConfigError` for an MCP server of the settings that does not answer.
    """
    try:
        return await toolset.get_tools_with_prefix()
    except LangoError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's own toolset may need the context of a turn
        _log.debug("a toolset cannot list its tools before a turn: %s", error)
        return None
