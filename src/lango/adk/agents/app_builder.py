"""Build the ADK app from the settings or from a user's own agent."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.tools.base_toolset import BaseToolset

from lango.adk.agents.adk_tool import AdkTool
from lango.adk.agents.callback_guard import guard_callbacks
from lango.adk.agents.model_registry import ModelRegistry, assign_models
from lango.adk.agents.tree import tools_of, walk_with_agent_tools
from lango.config import Settings
from lango.errors import ConfigError
from lango.tools import Tool


def build_app(
    settings: Settings,
    models: ModelRegistry,
    tools: Sequence[Tool],
    plugin: BasePlugin,
    root_agent: BaseAgent | App | None = None,
    *,
    wrap: Callable[[Tool], AdkTool] = AdkTool,
    on_toolset_failure: Callable[[ConfigError], None] | None = None,
) -> App:
    """Build the ADK app of a runtime from `root_agent`, from `agent.module` or from the other settings, in this order.

    `wrap` makes the ADK tool of each tool. `on_toolset_failure` is called when an MCP server cannot list its tools.
    """
    found = root_agent
    if found is None and settings.agent.module:
        from lango.adk.agents.loader import load_agent  # ADK's loader brings requests and yaml

        found = load_agent(settings.agent.module)
    if found is None:
        toolsets = _mcp_toolsets(settings, wrap, on_toolset_failure)
        found = _build_configured_agent(settings, models, {tool.name: wrap(tool) for tool in tools}, toolsets)
    else:
        root: Any = models.adopt_agent(found.root_agent if isinstance(found, App) else found)
        assign_models(root, settings, models)
        for agent in walk_with_agent_tools(root):
            guard_callbacks(agent)
        _add_tools(root, [wrap(tool) for tool in tools])
        if isinstance(found, App):
            return found.model_copy(update={"root_agent": root, "plugins": [plugin, *found.plugins]})
        found = root
    return App(name=settings.agent.name, root_agent=found, plugins=[plugin])


def _build_configured_agent(
    settings: Settings, models: ModelRegistry, tools: Mapping[str, AdkTool], toolsets: Sequence[BaseToolset]
) -> LlmAgent:
    agent = settings.agent
    subs = [
        LlmAgent(
            name=name,
            description=sub.description,
            instruction=sub.instruction,
            model=models.get(sub.model or settings.model),
            tools=_select_tools(name, sub.tools, tools),
        )
        for name, sub in agent.sub_agents.items()
    ]
    return LlmAgent(
        name=agent.name,
        instruction=agent.instruction,
        model=models.get(settings.model),
        tools=[*tools.values(), *toolsets],
        sub_agents=[*subs],
    )


def _mcp_toolsets(
    settings: Settings, wrap: Callable[[Tool], AdkTool], on_failure: Callable[[ConfigError], None] | None
) -> Sequence[BaseToolset]:
    if not settings.mcp:
        return []
    from lango.adk.agents.mcp import mcp_toolsets  # its package is optional

    return mcp_toolsets(settings.mcp, wrap=wrap, on_failure=on_failure, timeout_s=settings.agent.tool_timeout_s)


def _select_tools(agent: str, names: list[str] | None, tools: Mapping[str, AdkTool]) -> list[Any]:
    unknown = [name for name in names or () if name not in tools]
    if unknown:
        there = f"there are {', '.join(tools)}" if tools else "name it in tools.enabled, too"
        raise ConfigError(f"agent.sub_agents.{agent}.tools: there is no tool {', '.join(unknown)}; {there}")
    return [*tools.values()] if names is None else [tools[name] for name in names]


_added_tools: WeakSet[AdkTool] = WeakSet()


def _add_tools(root: Any, tools: Sequence[AdkTool]) -> None:
    """Add a runtime's tools to a user's agent, in place of those that another runtime added."""
    if not tools and not isinstance(root, LlmAgent):
        return
    if not isinstance(root, LlmAgent):
        raise ConfigError(f"tools cannot be added to {root.name}: it is no LlmAgent; give them to its agents")
    names = {tool.name for tool in tools}
    own = tools_of(root)
    remaining = [own_tool for own_tool in own if not (isinstance(own_tool, AdkTool) and own_tool in _added_tools)]
    _added_tools.update(tools)
    if tools or len(remaining) < len(own):
        root.tools = [*(own_tool for own_tool in remaining if getattr(own_tool, "name", "") not in names), *tools]
