"""The agent of the configuration, or somebody's own, as an ADK app."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin

from lango.adk.agents.adk_tool import AdkTool
from lango.adk.agents.callback_guard import contain_callbacks
from lango.adk.agents.model_registry import Models, assign_models
from lango.adk.agents.tree import with_called
from lango.adk.run.runtime_tools import adk_tool
from lango.config import Settings
from lango.errors import ConfigError
from lango.tools import Tool


def build_app(
    settings: Settings,
    models: Models,
    tools: Sequence[Tool],
    plugin: BasePlugin,
    root_agent: BaseAgent | App | None = None,
) -> App:
    """Return the ADK app that the runtime runs: the settings' agent, or the one given, or the one of `agent.module`."""
    found = root_agent
    if found is None and settings.agent.module:
        from lango.adk.agents.loader import load_module  # ADK's loader brings requests and yaml

        found = load_module(settings.agent.module)
    if found is None:
        found = _agent_of_settings(settings, models, tools)
    else:
        root: Any = models.take(found.root_agent if isinstance(found, App) else found)
        assign_models(root, settings, models)
        for agent in with_called(root):
            contain_callbacks(agent)
        _add_tools(root, [adk_tool(tool, settings.agent.tool_timeout_s) for tool in tools])
        if isinstance(found, App):
            return found.model_copy(update={"root_agent": root, "plugins": [plugin, *found.plugins]})
        found = root
    return App(name=settings.agent.name, root_agent=found, plugins=[plugin])


def _agent_of_settings(settings: Settings, models: Models, tools: Sequence[Tool]) -> LlmAgent:
    agent = settings.agent
    by_name: Mapping[str, AdkTool] = {tool.name: adk_tool(tool, agent.tool_timeout_s) for tool in tools}
    subs = [
        LlmAgent(
            name=name,
            description=sub.description,
            instruction=sub.instruction,
            model=models.named(sub.model or settings.model),
            tools=_chosen(name, sub.tools, by_name),
        )
        for name, sub in agent.sub_agents.items()
    ]
    return LlmAgent(
        name=agent.name,
        instruction=agent.instruction,
        model=models.named(settings.model),
        tools=[*by_name.values(), *_toolsets(settings)],
        sub_agents=[*subs],
    )


def _toolsets(settings: Settings) -> list[Any]:
    if not settings.mcp:
        return []
    from lango.adk.agents.mcp import mcp_toolsets  # its package is optional

    timeout_s = settings.agent.tool_timeout_s
    return [*mcp_toolsets(settings.mcp, wrap=lambda tool: adk_tool(tool, timeout_s), timeout_s=timeout_s)]


def _chosen(agent: str, names: list[str] | None, tools: Mapping[str, AdkTool]) -> list[Any]:
    unknown = [name for name in names or () if name not in tools]
    if unknown:
        there = f"there are {', '.join(tools)}" if tools else "name it in tools.enabled, too"
        raise ConfigError(f"agent.sub_agents.{agent}.tools: there is no tool {', '.join(unknown)}; {there}")
    return [*tools.values()] if names is None else [tools[name] for name in names]


_added: WeakSet[AdkTool] = WeakSet()


def _add_tools(root: Any, tools: Sequence[AdkTool]) -> None:
    """Give somebody's agent the tools that were passed along with it, in place of those of another runtime."""
    if not tools and not isinstance(root, LlmAgent):
        return
    if not isinstance(root, LlmAgent):
        raise ConfigError(f"tools cannot be added to {root.name}: it is no LlmAgent; give them to its agents")
    names = {tool.name for tool in tools}
    own: list[Any] = vars(root)["tools"]  # ADK types it as a list of bare callables
    kept = [one for one in own if not (isinstance(one, AdkTool) and one in _added)]
    _added.update(tools)
    if tools or len(kept) < len(own):
        root.tools = [*(one for one in kept if getattr(one, "name", "") not in names), *tools]
