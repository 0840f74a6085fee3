"""Make ADK models by name and assign them to a user's agents."""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from pydantic import PrivateAttr

from lango.adk.agents.tree import is_copyable, walk_agents, walk_with_agent_tools
from lango.adk.model.provider_llm import ProviderLlm
from lango.config import Settings
from lango.errors import ConfigError
from lango.history import TokenCounter
from lango.memory import MemoryModel
from lango.providers import Fallback, Provider, ResilientProvider, Timeouts, resolve
from lango.providers.protocol import Closable, ContextSizedProvider, LoadableProvider
from lango.providers.traced_provider import TracedProvider
from lango.telemetry.traces import is_tracing


class ModelRegistry:
    """Makes an ADK model of a name `provider/name`, as the settings say; the same name gives the same model."""

    def __init__(self, settings: Settings, provider: Provider | None = None) -> None:
        self._settings = settings
        self._provider = provider
        self._counter = TokenCounter()
        self._models: dict[str, ProviderLlm] = {}
        self._resolved: list[tuple[Provider, str]] = []
        self.agents: list[BaseAgent] = []
        """Those of somebody's own that it serves."""

    def adopt_agent(self, root: Any) -> Any:
        """Return somebody's agent for this runtime, until `close`: a copy of it where another one has it just now."""
        in_use = {id(agent) for models in _open_registries for agent in models.agents}
        if any(id(agent) in in_use for agent in walk_with_agent_tools(root)):
            if is_copyable(root):
                root = root.clone()
            else:
                _log.warning("the agent %s is used by two runtimes at once, and they share its models", root.name)
        self.agents = [*walk_with_agent_tools(root)]
        _open_registries.add(self)
        return root

    def get(self, model: str) -> ProviderLlm:
        """Return the model of a name. Raise what is missing for it: the key, the weights, the provider."""
        if model not in self._models:
            self._models[model] = self._build(model)
        return self._models[model]

    def resolves(self, model: str) -> bool:
        """Whether a name in somebody's own agent is ours to resolve, and not one of ADK's."""
        return bool(model) if self._provider is not None else is_provider_model(model)

    def memory_model(self, root: Any) -> tuple[int | None, MemoryModel]:
        """Return the context of the root agent's model, where it is small, and the model that observes."""
        agents = [agent for agent in walk_agents(root) if isinstance(agent, LlmAgent)]
        own = next((agent.model for agent in agents if isinstance(agent.model, ProviderLlm)), None)
        chosen = self.get(self._settings.memory.model) if self._settings.memory.model else own
        if chosen is None:
            raise ConfigError(
                "memory.enabled: the agent's own model cannot observe; name a model as memory.model (provider/name)"
            )
        model = MemoryModel(chosen.provider, chosen.model, chosen.context_tokens)
        return own.context_tokens if own else None, model

    def _build(self, model: str) -> ProviderLlm:
        history, memory = self._settings.history, self._settings.memory
        provider, name = self._resolve(model)
        context_tokens = provider.context_tokens(name) if isinstance(provider, ContextSizedProvider) else None
        if is_tracing():
            provider = TracedProvider(provider)
        if self._provider is None:
            fallback = self._settings.agent.fallback_model
            others = [self._fallback(fallback)] if fallback and fallback != model else []
            provider = ResilientProvider(provider, timeouts=self._timeouts, fallbacks=others)
        return ProviderLlm(
            provider,
            name,
            budget_tokens=history.max_message_token_budget,
            context_tokens=context_tokens,
            max_messages=None if memory.enabled else history.max_messages,
            max_turns=history.max_turns,
            counter=self._counter,
        )

    def _fallback(self, model: str) -> Fallback:
        provider, name = self._resolve(model)
        return Fallback(TracedProvider(provider) if is_tracing() else provider, name)

    def _resolve(self, model: str) -> tuple[Provider, str]:
        if self._provider is not None:
            return self._provider, model.partition("/")[2] or model
        provider, name = resolve(model, self._settings.providers, timeouts=self._timeouts)
        if isinstance(provider, LoadableProvider):
            provider.check(name)
        self._resolved.append((provider, name))
        return provider, name

    @property
    def _timeouts(self) -> Timeouts:
        agent = self._settings.agent
        return Timeouts(idle_s=agent.idle_timeout_s, total_s=agent.request_timeout_s)

    async def load(self) -> None:
        """Load what takes long to load before anybody waits for it: a model of this process."""
        for provider, name in self._resolved:
            if isinstance(provider, LoadableProvider):
                await provider.load(name)

    async def close(self) -> None:
        """Close what the providers hold open, and let go of somebody's agent."""
        _open_registries.discard(self)
        for model in self._models.values():
            if isinstance(model.provider, Closable):
                await model.provider.aclose()


_open_registries: WeakSet[ModelRegistry] = WeakSet()  # what serves somebody's agents just now
_log = logging.getLogger("lango.runtime")


class SubstituteModel(ProviderLlm):
    """A model of ours in somebody's agent. It knows what it replaced: another runtime starts from that again."""

    _original: Any = PrivateAttr(default=None)

    @classmethod
    def install(cls, agent: LlmAgent, model: ProviderLlm) -> None:
        """Put a model into an agent."""
        substitute = cls.model_construct(**vars(model))
        substitute.__pydantic_private__ = {**(model.__pydantic_private__ or {}), "_instead_of": cls.original_of(agent)}
        agent.model = substitute

    @staticmethod
    def original_of(agent: LlmAgent) -> Any:
        """Return the model that its author gave an agent."""
        model = agent.model
        return (model.__pydantic_private__ or {})["_instead_of"] if isinstance(model, SubstituteModel) else model


def is_provider_model(model: str) -> bool:
    """Whether the name of a model is a `provider/name`, and not one of ADK's."""
    return "/" in model and not model.startswith(("models/", "projects/"))


def assign_models(root: Any, settings: Settings, models: ModelRegistry) -> None:
    """Give somebody's agents our models where the settings, or a `provider/name` of their own, ask for one."""
    for agent in walk_with_agent_tools(root):
        if not isinstance(agent, LlmAgent):
            continue
        wanted = _model_to_assign(agent, settings, models.resolves)
        if wanted:
            SubstituteModel.install(agent, models.get(wanted))
        else:
            agent.model = SubstituteModel.original_of(agent)


def models_to_assign(root: Any, settings: Settings) -> list[str]:
    """Return the models of ours that somebody's agents ask for, or get."""
    agents = [agent for agent in walk_with_agent_tools(root) if isinstance(agent, LlmAgent)]
    return [wanted for agent in agents if (wanted := _model_to_assign(agent, settings, is_provider_model))]


def _model_to_assign(agent: LlmAgent, settings: Settings, serves: Callable[[str], bool]) -> str:
    """Return the model of ours that an agent of somebody's is to have; none: it keeps its own."""
    own: Any = SubstituteModel.original_of(agent)
    wanted = own if isinstance(own, str) and serves(own) else ""
    if not _inherits_no_model(agent):
        return wanted  # agents below inherit
    # an agent that names no model would get ADK's own default
    return settings.agent.model or wanted or ("" if own else settings.model)


def _inherits_no_model(agent: BaseAgent) -> bool:
    """Whether no agent above this one has a model."""
    above = agent.parent_agent
    return above is None or (not isinstance(above, LlmAgent) and _inherits_no_model(above))
