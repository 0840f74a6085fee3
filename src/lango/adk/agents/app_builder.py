"""The agent of the configuration, or somebody's own, as an ADK app."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool
from google.adk.tools.agent_tool import AgentTool
from msgspec import Struct
from pydantic import PrivateAttr

from lango.adk.agents.adk_tool import AdkTool
from lango.adk.agents.callback_guard import contain_callbacks
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.turn_state import current_turn
from lango.config import Settings, ToolSettings
from lango.errors import ConfigError
from lango.history import TokenCounter
from lango.memory import MemoryModel
from lango.providers import Fallback, Provider, ProviderSettings, ResilientProvider, Timeouts, resolve
from lango.providers.traced_provider import TracedProvider
from lango.telemetry.traces import is_on
from lango.tools import Effect, Level, Tool, ToolOutcome
from lango.tools.approval_policy import Decision, decide
from lango.tools.builtin.enabled_tools import HOW_TO_READ

_log = logging.getLogger("lango.runtime")


class Models:
    """Makes an ADK model of a name `provider/name`, as the settings say; the same name gives the same model."""

    def __init__(self, settings: Settings, provider: Provider | None = None) -> None:
        self._settings = settings
        self._provider = provider
        self._counter = TokenCounter()
        self._made: dict[str, ProviderLlm] = {}
        self._resolved: list[tuple[Provider, str]] = []
        self.agents: list[BaseAgent] = []
        """Those of somebody's own that it serves."""

    def take(self, root: Any) -> Any:
        """Return somebody's agent for this runtime, until `close`: a copy of it where another one has it just now."""
        taken = {id(agent) for models in _open for agent in models.agents}
        if any(id(agent) in taken for agent in with_called(root)):
            if _is_copyable(root):
                root = root.clone()
            else:
                _log.warning("the agent %s is used by two runtimes at once, and they share its models", root.name)
        self.agents = [*with_called(root)]
        _open.add(self)
        return root

    def named(self, model: str) -> ProviderLlm:
        """Return the model of a name. Raise what is missing for it: the key, the weights, the provider."""
        if model not in self._made:
            self._made[model] = self._make(model)
        return self._made[model]

    def serves(self, model: str) -> bool:
        """Whether a name in somebody's own agent is ours to resolve, and not one of ADK's."""
        return bool(model) if self._provider is not None else is_ours(model)

    def observer(self, root: Any) -> tuple[int | None, MemoryModel]:
        """Return the context of the root agent's model, where it is small, and the model that observes."""
        agents = [agent for agent in tree(root) if isinstance(agent, LlmAgent)]
        own = next((agent.model for agent in agents if isinstance(agent.model, ProviderLlm)), None)
        chosen = self.named(self._settings.memory.model) if self._settings.memory.model else own
        if chosen is None:
            raise ConfigError(
                "memory.enabled: the agent's own model cannot observe; name a model as memory.model (provider/name)"
            )
        model = MemoryModel(chosen.provider, chosen.model, chosen.context_tokens)
        return own.context_tokens if own else None, model

    def _make(self, model: str) -> ProviderLlm:
        history, memory = self._settings.history, self._settings.memory
        provider, name = self._resolve(model)
        context_tokens: Callable[[str], int] | None = getattr(provider, "context_tokens", None)
        if is_on():
            provider = TracedProvider(provider)
        if self._provider is None:
            fallback = self._settings.agent.fallback_model
            others = [self._fallback(fallback)] if fallback and fallback != model else []
            provider = ResilientProvider(provider, timeouts=self._timeouts, fallbacks=others)
        return ProviderLlm(
            provider,
            name,
            budget_tokens=history.max_message_token_budget,
            context_tokens=context_tokens(name) if context_tokens else None,
            max_messages=None if memory.enabled else history.max_messages,
            max_turns=history.max_turns,
            counter=self._counter,
        )

    def _fallback(self, model: str) -> Fallback:
        provider, name = self._resolve(model)
        return Fallback(TracedProvider(provider) if is_on() else provider, name)

    def _resolve(self, model: str) -> tuple[Provider, str]:
        if self._provider is not None:
            return self._provider, model.partition("/")[2] or model
        tables = {
            name: ProviderSettings(table.type, table.api_key_env, table.base_url, table.api, table.options)
            for name, table in self._settings.providers.items()
        }
        provider, name = resolve(model, tables, timeouts=self._timeouts)
        check: Callable[[str], None] | None = getattr(provider, "check", None)
        if check:
            check(name)
        self._resolved.append((provider, name))
        return provider, name

    @property
    def _timeouts(self) -> Timeouts:
        agent = self._settings.agent
        return Timeouts(idle_s=agent.idle_timeout_s, total_s=agent.request_timeout_s)

    async def load(self) -> None:
        """Load what takes long to load before anybody waits for it: a model of this process."""
        for provider, name in self._resolved:
            load: Callable[[str], Any] | None = getattr(provider, "load", None)
            if load:
                await load(name)

    async def close(self) -> None:
        """Close what the providers hold open, and let go of somebody's agent."""
        _open.discard(self)
        for model in self._made.values():
            close: Callable[[], Any] | None = getattr(model.provider, "aclose", None)
            if close:
                await close()


_open: WeakSet[Models] = WeakSet()  # what serves somebody's agents just now


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
        _own_models(root, settings, models)
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


def adk_tool(tool: Tool, timeout_s: float) -> AdkTool:
    """Return a tool for an agent of the runtime: whether it may run, the plugin has decided for every kind of tool."""
    return AdkTool(tool, gate=_decided, on_end=_keep_whole, timeout_s=timeout_s, how_to_read=HOW_TO_READ)


async def _decided(*_: Any) -> None:
    return None


async def _keep_whole(call_id: str, outcome: ToolOutcome) -> None:
    """What the model is shown clipped is kept whole."""
    state = current_turn.get()
    if state is not None and outcome.whole is not None:
        await state.store.keep_whole(state.turn, call_id, outcome.whole)


async def read_clipped(call_id: str, offset: int, limit: int) -> str | None:
    """Read a piece of a result that was clipped, of the session whose turn is under way."""
    state = current_turn.get()
    return await state.store.read_whole(state.turn.session_key, call_id, offset, limit) if state else None


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


class Lent(ProviderLlm):
    """A model of ours in somebody's agent. It knows what it replaced: another runtime starts from that again."""

    _instead_of: Any = PrivateAttr(default=None)

    @classmethod
    def to(cls, agent: LlmAgent, model: ProviderLlm) -> None:
        """Put a model into an agent."""
        lent = cls.model_construct(**vars(model))
        lent.__pydantic_private__ = {**(model.__pydantic_private__ or {}), "_instead_of": cls.own_of(agent)}
        agent.model = lent

    @staticmethod
    def own_of(agent: LlmAgent) -> Any:
        """Return the model that its author gave an agent."""
        model = agent.model
        return (model.__pydantic_private__ or {})["_instead_of"] if isinstance(model, Lent) else model


def is_ours(model: str) -> bool:
    """Whether the name of a model is a `provider/name`, and not one of ADK's."""
    return "/" in model and not model.startswith(("models/", "projects/"))


def _own_models(root: Any, settings: Settings, models: Models) -> None:
    """Give somebody's agents our models where the settings, or a `provider/name` of their own, ask for one."""
    for agent in with_called(root):
        if not isinstance(agent, LlmAgent):
            continue
        wanted = _wanted(agent, settings, models.serves)
        if wanted:
            Lent.to(agent, models.named(wanted))
        else:
            agent.model = Lent.own_of(agent)


def wanted_models(root: Any, settings: Settings) -> list[str]:
    """Return the models of ours that somebody's agents ask for, or get."""
    agents = [agent for agent in with_called(root) if isinstance(agent, LlmAgent)]
    return [wanted for agent in agents if (wanted := _wanted(agent, settings, is_ours))]


def _wanted(agent: LlmAgent, settings: Settings, serves: Callable[[str], bool]) -> str:
    """Return the model of ours that an agent of somebody's is to have; none: it keeps its own."""
    own: Any = Lent.own_of(agent)
    wanted = own if isinstance(own, str) and serves(own) else ""
    if not _is_first(agent):
        return wanted  # agents below inherit
    # an agent that names no model would get ADK's own default
    return settings.agent.model or wanted or ("" if own else settings.model)


def _is_first(agent: BaseAgent) -> bool:
    """Whether no agent above this one has a model."""
    above = agent.parent_agent
    return above is None or (not isinstance(above, LlmAgent) and _is_first(above))


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


def decision_for(tool: BaseTool, settings: ToolSettings) -> Decision:
    """Say whether a tool may run. Somebody's own ADK tool has no level: they put it there, so it counts as safe."""
    known = tool.tool if isinstance(tool, AdkTool) else None
    return decide(_Named(tool.name, known.level if known else "safe"), settings)


def effect_of(tool: BaseTool) -> Effect:
    """Return what a second run of a tool would do; of somebody's own nothing is known."""
    return tool.tool.effect if isinstance(tool, AdkTool) else "once"


class _Named(Struct, frozen=True):
    name: str
    level: Level


def tree(root: Any) -> Iterator[BaseAgent]:
    """Walk the agents of an app: the root, all below it, and those in the graph of a workflow."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop(0)
        if id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, BaseAgent):
                yield node
            graph: Any = getattr(node, "graph", None)
            waiting[:0] = [*getattr(node, "sub_agents", ()), *(graph.nodes if graph else ())]


def with_called(root: Any) -> Iterator[BaseAgent]:
    """Walk the agents of an app, and those that are tools of others."""
    for agent in tree(root):
        yield agent
        for tool in vars(agent).get("tools", ()):
            if isinstance(tool, AgentTool):
                yield from with_called(tool.agent)


def _is_copyable(root: Any) -> bool:
    """Whether a copy is the same agent: ADK copies its own kinds and those below, no graph, no agent in a tool."""
    agents = [*tree(root)]
    return (
        getattr(root, "parent_agent", None) is None
        and len(agents) == len([*with_called(root)])
        and all(type(one).__module__.startswith("google.adk.") and not getattr(one, "graph", None) for one in agents)
        and isinstance(root, BaseAgent)
    )


def transfer_targets(root: Any, name: str) -> list[str]:
    """Return the agents that an agent can hand over to, as ADK offers them: its own, its parent, its siblings."""
    for agent in tree(root):
        if agent.name == name and isinstance(agent, LlmAgent):
            near = [*agent.sub_agents]
            parent = agent.parent_agent
            if isinstance(parent, LlmAgent):
                near += [] if agent.disallow_transfer_to_parent else [parent]
                near += [] if agent.disallow_transfer_to_peers else parent.sub_agents
            return [one.name for one in near if one.name != name and (one is parent or not _is_called(one))]
    return []


def _is_called(agent: BaseAgent) -> bool:
    """Whether an agent is called like a tool, and never handed over to."""
    return getattr(agent, "mode", None) in ("task", "single_turn")
