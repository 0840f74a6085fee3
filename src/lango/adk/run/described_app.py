"""Describe an app without running a turn: its agents, its models and its tools."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.apps import App

from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.tools.tool_names import ToolNames, diff_of_call, tool_names, unusable_tools
from lango.adk.agents.tree import describe_agent, may_request_input, tools_of, walk_agents
from lango.adk.run.summary import summarize
from lango.adk.services.adk_server import app_info
from lango.events import Usage
from lango.messages import Message


class DescribedApp:
    """The part of an engine that answers questions about its app."""

    def __init__(self, app: App, models: ModelRegistry) -> None:
        self._app = app
        self._models = models
        self._root: Any = app.root_agent  # an agent, or any node of a workflow

    @property
    def app_name(self) -> str:
        """The name of the app that sessions belong to."""
        return self._app.name

    @functools.cached_property
    def may_request_input(self) -> bool:
        """Whether a turn may wait for a person's input: only workflows, agents of one's own and ADK's tool ask."""
        return may_request_input(self._root)

    @functools.cached_property
    def may_call_tools(self) -> bool:
        """Whether an agent has tools, or may transfer to another one."""
        agents = [*walk_agents(self._root)]
        return len(agents) > 1 or any(tools_of(agent) for agent in agents)

    @property
    def model_name(self) -> str:
        """The name of the root agent's model; empty: it has none, as a workflow."""
        return self._models.name_of(self._root)

    async def use_model(self, model: str) -> None:
        """Answer with another model from the next model call on; see `ModelRegistry.replace`."""
        await self._models.replace(self._root, model)

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return describe_agent(self._root)

    async def app_info(self) -> dict[str, Any]:
        """Describe the app as ADK's server does; see `lango.adk.services.adk_server`."""
        return await app_info(self.app_name, self._root)

    async def tool_names(self, *, ask_toolsets: bool, require_all: bool = True) -> ToolNames:
        """List the names of the agents' tools; see `lango.adk.agents.tools.tool_names`."""
        return await tool_names(self._app, ask_toolsets=ask_toolsets, require_all=require_all)

    async def diff_of_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call would change; see `lango.adk.agents.tools.tool_names`."""
        return await diff_of_call(self._root, name, arguments)

    @property
    def unusable_tools(self) -> tuple[str, ...]:
        """Which tools that were listed so far cannot be offered, each with its reason."""
        return unusable_tools(self._app)

    async def summarize(self, messages: Sequence[Message], instructions: str) -> tuple[str, Usage]:
        """Return a summary of a conversation by the agent's model, and its usage."""
        return await summarize(self._root, messages, instructions)
