"""Build the app whose turns a runtime runs, and describe its agents, models and tools."""

import functools
from collections.abc import Sequence
from typing import Any, Self

from google.adk.apps import App
from google.adk.tools import BaseTool

from lango.adk.agents.app_builder import allow_choices, build_app
from lango.adk.agents.app_shape import AppVersion, shape_of
from lango.adk.agents.developer_view import AppDescriber, check_call, find_tool, run_by_hand
from lango.adk.agents.model_registry import ModelRegistry
from lango.adk.agents.tool_credentials import credential_names, move_exchanges_off_the_loop
from lango.adk.agents.tools.adk_tool import decision_for, effect_of_tool
from lango.adk.agents.tree import may_request_input, tools_of, walk_agents, walk_with_agent_tools
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.recall import recall_tools
from lango.adk.run.record.code_execution import journal_code
from lango.config import Settings
from lango.development.agent_cards import CallByHand, CallResult, NodeCard
from lango.providers import Provider
from lango.sessions import check_client_state
from lango.tools import Effect, Tool
from lango.tools.execution import Decision


class AgentApp:
    """An ADK app with the models that its agents share."""

    def __init__(self, settings: Settings, adk_app: App, models: ModelRegistry) -> None:
        self._settings = settings
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
        offered = recall_tools(settings, {tool.name for tool in tools})
        adk_app = build_app(settings, models, tools, RuntimePlugin(), root_agent, offered)
        app = cls(settings, adk_app, models)
        move_exchanges_off_the_loop()
        allow_choices(app.root, settings.agent.choices, models.get)
        journal_code(walk_with_agent_tools(app.root))
        return app

    @property
    def name(self) -> str:
        """The name of the app that sessions belong to."""
        return self.adk_app.name

    async def describe(self, *, ask_toolsets: bool) -> NodeCard:
        """Describe the agents, nodes and tools; with `ask_toolsets` also the tools of toolsets."""
        describer = AppDescriber(self.effect_of_tool, self.decide, self.models.name_of)
        return await describer.describe(self.root, ask_toolsets=ask_toolsets)

    async def call_by_hand(self, call: CallByHand, user_id: str) -> CallResult:
        """Run a tool as its developer asks. Raise an error for a call that may not run."""
        check_client_state(call.state, self.credential_names)
        agent, tool = await find_tool(self.root, call.agent, call.tool)
        check_call(tool, call, self.decide(tool))
        return await run_by_hand(self.name, user_id, agent, tool, call, self._settings.agent.tool_timeout_s)

    def effect_of_tool(self, tool: BaseTool) -> Effect:
        """Return what a second run of a tool would do."""
        return effect_of_tool(tool, self._settings.tools)

    def decide(self, tool: BaseTool) -> Decision:
        """Decide whether a tool may run."""
        return decision_for(tool, self._settings.tools)

    @functools.cached_property
    def version(self) -> AppVersion:
        """The version of the app, and its agents, nodes and tools."""
        shape = shape_of(self.root, self.effect_of_tool)
        return AppVersion(self._settings.agent.version or shape.fingerprint, shape)

    @functools.cached_property
    def may_request_input(self) -> bool:
        """Whether a turn may wait for a person's input: only workflows, custom agents and ADK's tool ask."""
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
        """The name of the root agent's model, or "" if it has none, as a workflow."""
        return self.models.name_of(self.root)
