"""Make ADK models by name and assign them to a user's agents."""

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from pydantic import PrivateAttr

from lango.adk.agents.tree import is_copyable, tree, with_called
from lango.adk.model.provider_llm import ProviderLlm
from lango.config import Settings
from lango.errors import ConfigError
from lango.history import TokenCounter
from lango.memory import MemoryModel
from lango.providers import Fallback, Provider, ProviderSettings, ResilientProvider, Timeouts, resolve
from lango.providers.traced_provider import TracedProvider
from lango.telemetry.traces import is_on


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
            if is_copyable(root):
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
_log = logging.getLogger("lango.runtime")


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


def assign_models(root: Any, settings: Settings, models: Models) -> None:
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
