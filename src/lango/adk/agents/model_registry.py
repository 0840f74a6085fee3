"""Make ADK models by name and assign them to a user's agents."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from pydantic import PrivateAttr

from lango.adk.agents.tree import is_copyable, walk_agents, walk_with_agent_tools
from lango.adk.model.provider_llm import ProviderLlm
from lango.config import Settings
from lango.errors import ConfigError, LangoError, ProviderRejected, ProviderUnavailable, UsageError
from lango.history import TokenCounter
from lango.memory import MemoryModel
from lango.messages import Message
from lango.providers import Fallback, Provider, Request, ResilientProvider, Timeouts, resolve
from lango.providers.protocol import Closable, ContextSizedProvider, LoadableProvider, closing_stream
from lango.providers.reply_assembly import ReplyAssembler
from lango.providers.wrappers.observed_provider import ObservedProvider, trace_request
from lango.telemetry.traces import is_tracing

_ANSWER_TIMEOUT_S = 30.0


class ModelRegistry:
    """Makes the ADK model of a name `provider/name`, as configured; the same name gives the same model."""

    def __init__(self, settings: Settings, provider: Provider | None = None) -> None:
        """`provider` answers instead of the configured ones."""
        self._settings = settings
        self._provider = provider
        self._counter = TokenCounter()
        self._models: dict[str, ProviderLlm] = {}
        self._replaced: list[ProviderLlm] = []
        self._resolved: list[tuple[Provider, str]] = []
        self.agents: list[BaseAgent] = []
        """The user's own agents that use these models."""

    async def __aenter__(self) -> Self:
        """Return the models."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections of the providers."""
        await self.close()

    def adopt_agent(self, root: Any) -> Any:
        """Reserve a user's agent for this runtime until `close`; return a copy if another runtime uses it now."""
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
        """Return the model of a name. Raise an error if its key, its weights or its provider is missing."""
        if model not in self._models:
            self._models[model] = self._build(model)
        return self._models[model]

    def assign(self, agent: LlmAgent, model: str) -> None:
        """Give a user's agent a model by its name."""
        made = self.get(model)
        agent.model = SubstituteModel(
            _original_model(agent),
            made.provider,
            made.model,
            context_tokens=lambda: made.context_tokens,
            **self._limits,
        )

    async def replace(self, root: Any, model: str) -> None:
        """Give another model to an agent, and to those below it that have the same one, once it has answered a request.

        Raise an error, and change nothing, if it does not answer. A model call under way ends with the model before.
        """
        before = getattr(root, "model", None)
        if not isinstance(before, ProviderLlm):
            raise UsageError(f"the model of {root.name} is a custom model object, which Lango cannot replace")
        if known := self._models.pop(model, None):  # the key of its provider may be another one now
            self._replaced.append(known)
        if failure := await self.check(model):
            self._replaced.append(self._models.pop(model))
            raise ProviderUnavailable(f"it did not answer a test request: {failure}", provider=model.partition("/")[0])
        for agent in walk_with_agent_tools(root):
            if not isinstance(agent, LlmAgent) or not isinstance(agent.model, ProviderLlm):
                continue
            if (agent.model.provider, agent.model.model) == (before.provider, before.model):
                self.assign(agent, model)

    async def check(self, model: str, *, send: bool = True) -> str:
        """Check a model and, with `send`, that it answers; return the reason of a failure that may pass, or "".

        Raise an error for a wrong name, a missing key, missing weights and a request that the provider rejects.
        """
        try:
            made = self.get(model)
            if send and not model.startswith("local/"):
                request = Request(made.model, (Message("user", "ping"),), max_tokens=16)
                async with asyncio.timeout(_ANSWER_TIMEOUT_S), closing_stream(made.provider.stream(request)) as deltas:
                    async for _ in deltas:
                        pass
        except TimeoutError:
            return f"no answer within {_ANSWER_TIMEOUT_S:g} s"
        except (ProviderRejected, UsageError):
            raise
        except LangoError as error:
            return str(error)
        return ""

    async def ask(self, model: str, prompt: str, *, system: str) -> str:
        """Send a prompt and return the text of the answer."""
        made = self.get(model)
        reply = ReplyAssembler(made.provider.name)
        request = Request(made.model, (Message("user", prompt),), system=system)
        async with closing_stream(made.provider.stream(request)) as deltas:
            async for delta in deltas:
                reply.add(delta)
        return reply.reply().text

    def name_of(self, agent: Any) -> str:
        """Return the name of an agent's model, as the settings or the agent name it, or "" if it has none."""
        model: Any = getattr(agent, "model", None) or ""
        if isinstance(model, ProviderLlm):
            same = [name for name, made in self._models.items() if made.provider is model.provider]
            return next((name for name in same if self._models[name].model == model.model), model.model)
        return model if isinstance(model, str) else str(getattr(model, "model", ""))

    def resolves(self, model: str) -> bool:
        """Whether a model name in a user's own agent is ours to resolve, and not ADK's."""
        return bool(model) if self._provider is not None else is_provider_model(model)

    def memory_model(self, root: Any) -> tuple[int | None, MemoryModel]:
        """Return the context size of the root agent's model, if it is known, and the model that observes."""
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
        provider, name = self._resolve(model)
        # asked for each request: another model may answer to the same name, once it is downloaded
        context_tokens = partial(provider.context_tokens, name) if isinstance(provider, ContextSizedProvider) else None
        provider = self._observed(provider)
        if self._provider is None:
            others: list[Fallback] = []
            if (fallback := self._settings.agent.fallback_model) and fallback != model:
                other, other_name = self._resolve(fallback)
                others.append(Fallback(self._observed(other), other_name))
            provider = ResilientProvider(provider, timeouts=self._timeouts, fallbacks=others)
        return ProviderLlm(provider, name, context_tokens=context_tokens, **self._limits)

    @property
    def _limits(self) -> dict[str, Any]:
        history, memory = self._settings.history, self._settings.memory
        return {
            "budget_tokens": history.max_message_token_budget,
            "max_messages": None if memory.enabled else history.max_messages,
            "max_turns": history.max_turns,
            "counter": self._counter,
        }

    @staticmethod
    def _observed(provider: Provider) -> Provider:
        """Wrap a provider where its requests are traced."""
        return ObservedProvider(provider, trace_request) if is_tracing() else provider

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
        """Load the models that run in this process, so that the first turn does not wait for it."""
        for provider, name in self._resolved:
            if isinstance(provider, LoadableProvider):
                await provider.load(name)

    async def close(self) -> None:
        """Close the connections of the providers, and release the user's agents."""
        _open_registries.discard(self)
        for model in (*self._models.values(), *self._replaced):
            if isinstance(model.provider, Closable):
                await model.provider.aclose()


_open_registries: WeakSet[ModelRegistry] = WeakSet()  # those that use a user's agents now
_log = logging.getLogger("lango.runtime")


class SubstituteModel(ProviderLlm):
    """A Lango model in a user's agent. It keeps the model that it replaces: another runtime starts from that again."""

    _original: Any = PrivateAttr()

    def __init__(self, original: Any, provider: Provider, model: str, **limits: Any) -> None:
        super().__init__(provider, model, **limits)
        self._original = original

    @property
    def original(self) -> Any:
        """The model that this one replaces."""
        return self._original


def _original_model(agent: LlmAgent) -> Any:
    """Return the model that the author of an agent gave it."""
    return agent.model.original if isinstance(agent.model, SubstituteModel) else agent.model


def is_provider_model(model: str) -> bool:
    """Whether a model name is a `provider/name`, and not one of ADK's names."""
    return "/" in model and not model.startswith(("models/", "projects/"))


def assign_models(root: Any, settings: Settings, models: ModelRegistry) -> None:
    """Give a user's agents Lango models where the settings, or a `provider/name` of their own, name one."""
    for agent in walk_with_agent_tools(root):
        if not isinstance(agent, LlmAgent):
            continue
        wanted = _model_to_assign(agent, settings, models.resolves)
        if wanted:
            models.assign(agent, wanted)
        else:
            agent.model = _original_model(agent)


def named_models(root: Any, settings: Settings) -> Iterator[tuple[LlmAgent, Any, bool]]:
    """Yield the agents of a user that have a model, the model, and whether it is a Lango model or one of ADK."""
    for agent in walk_with_agent_tools(root):
        if isinstance(agent, LlmAgent):
            wanted = _model_to_assign(agent, settings, is_provider_model)
            if wanted or _original_model(agent):
                yield agent, wanted or _original_model(agent), bool(wanted)


def _model_to_assign(agent: LlmAgent, settings: Settings, serves: Callable[[str], bool]) -> str:
    """Return the name of the Lango model that a user's agent gets, or "" if it keeps its own model."""
    own: Any = _original_model(agent)
    wanted = own if isinstance(own, str) and serves(own) else ""
    if not _inherits_no_model(agent):
        return wanted  # agents below inherit
    # an agent that names no model would get ADK's own default
    return settings.agent.model or wanted or ("" if own else settings.model)


def _inherits_no_model(agent: BaseAgent) -> bool:
    """Whether no agent above this one has a model."""
    above = agent.parent_agent
    return above is None or (not isinstance(above, LlmAgent) and _inherits_no_model(above))
