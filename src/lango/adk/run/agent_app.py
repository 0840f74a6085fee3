"""Build the app whose turns a runtime runs, and describe its agents, models and tools."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from google.adk.apps import App

from lango.adk.agents.app_builder import build_app
from lango.adk.agents.credential_exchange import move_exchanges_off_the_loop
from lango.adk.agents.credential_names import credential_names
from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.session_choices import allow_choices
from lango.adk.agents.tools.mcp.questions import McpCallbacks
from lango.adk.agents.tools.tool_names import ToolNames, diff_of_call, tool_names, unusable_tools
from lango.adk.agents.tree import describe_agent, may_request_input, tools_of, walk_agents, walk_with_agent_tools
from lango.adk.run.pauses.tool_questions import ask_user, report_progress
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.recall import recall_tools
from lango.adk.run.record.code_execution import journal_code
from lango.adk.run.runtime_tools import runtime_tool
from lango.adk.run.summary import summarize
from lango.adk.services.adk_server import app_info
from lango.config import Settings
from lango.events import Usage
from lango.messages import Message
from lango.providers import Provider
from lango.tools import Tool
from lango.tools.result_files import FileLimits


class AgentApp:
    """An ADK app with the models that its agents share."""

    def __init__(self, adk_app: App, models: ModelRegistry) -> None:
        self.adk_app = adk_app
        self.models = models
        self.root: Any = adk_app.root_agent
        """The root agent, or any node of a workflow."""

    @classmethod
    def build(
        cls, settings: Settings, tools: Sequence[Tool], provider: Provider | None = None, root_agent: Any = None
    ) -> Self:
        """Build the app from a user's own agent, or from the settings; its tools are journaled and limited in time.

        `provider` answers instead of the configured ones.
        """
        models = ModelRegistry(settings, provider)
        adk_app = build_app(
            settings,
            models,
            [*tools, *recall_tools(settings.memory)],
            RuntimePlugin(),
            root_agent,
            wrap=functools.partial(
                runtime_tool,
                timeout_s=settings.agent.tool_timeout_s,
                file_limits=FileLimits(settings.server.max_attachments, settings.server.max_attachment_bytes),
            ),
            mcp_callbacks=McpCallbacks(ask_user, report_progress),
        )
        app = cls(adk_app, models)
        move_exchanges_off_the_loop()
        allow_choices(app.root, settings.agent, models.get)
        journal_code(walk_with_agent_tools(app.root))
        return app

    @property
    def name(self) -> str:
        """The name of the app that sessions belong to."""
        return self.adk_app.name

    @functools.cached_property
    def may_request_input(self) -> bool:
        """Whether a turn may wait for a person's input: only workflows, agents of one's own and ADK's tool ask."""
        return may_request_input(self.root)

    @functools.cached_property
    def credential_names(self) -> frozenset[str]:
        """The names under which tools look for credentials in the state: no client may write them."""
        return credential_names(self.root)

    @functools.cached_property
    def may_call_tools(self) -> bool:
        """Whether an agent has tools, or may transfer to another one."""
        agents = [*walk_agents(self.root)]
        return len(agents) > 1 or any(tools_of(agent) for agent in agents)

    @property
    def model_name(self) -> str:
        """The name of the root agent's model; empty: it has none, as a workflow."""
        return self.models.name_of(self.root)

    def agents(self) -> dict[str, Any]:
        """Describe the agent tree."""
        return describe_agent(self.root)

    async def app_info(self) -> dict[str, Any]:
        """Describe the app, its agents and their tools as ADK's server does.

        Raise `UsageError` if the root is not an `LlmAgent`. Toolsets are asked for their tools.
        """
        return await app_info(self.name, self.root)

    async def tool_names(self, *, ask_toolsets: bool = False, require_all: bool = True) -> ToolNames:
        """List the names of the agents' tools; with `ask_toolsets` also those of toolsets.

        That starts or connects to MCP servers. Raise `ConfigError` if one of them does not answer; without
        `require_all`, that is one of the reasons in `unusable`.
        """
        return await tool_names(self.adk_app, ask_toolsets=ask_toolsets, require_all=require_all)

    async def diff_of_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call that waits for approval would change in a file now, as a unified diff.

        Empty: the tool changes no file, or the file cannot be compared.
        """
        return await diff_of_call(self.root, name, arguments)

    @property
    def unusable_tools(self) -> tuple[str, ...]:
        """Which tools of MCP servers cannot be offered, each with its reason; known once their server was asked."""
        return unusable_tools(self.adk_app)

    async def summarize(self, messages: Sequence[Message], instructions: str = "") -> tuple[str, Usage]:
        """Return a summary of a conversation by the agent's model, and the tokens that it took; nothing is stored.

        Raise `UsageError` if the agent has no model, and `EmptyAnswer` if the model writes nothing.
        """
        return await summarize(self.root, messages, instructions)
