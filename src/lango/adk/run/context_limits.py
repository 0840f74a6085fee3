"""Compute how much of a session a model request may hold: its window, its notes and what is recalled."""

from msgspec.structs import replace

from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.run.agent_app import AgentApp
from lango.config import Settings
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules, messages_to_load
from lango.memory import MemoryModel, MemoryThresholds, thresholds_for


class ContextLimits:
    """The limits of the requests of one app, and the model that observes its sessions."""

    def __init__(self, settings: Settings, app: AgentApp) -> None:
        history, memory = settings.history, settings.memory
        self._memory_settings = memory
        self._app = app
        self.budget_tokens = history.max_message_token_budget or DEFAULT_BUDGET_TOKENS
        self.max_messages = messages_to_load(None if memory.enabled else history.max_messages)
        self.memory_model: MemoryModel | None = None
        """None: the memory is off."""
        self.thresholds: MemoryThresholds | None = None
        """The thresholds of the memory; None: it is off."""
        self.update()

    def update(self) -> None:
        """Compute the limits of the memory from the models that answer and observe now."""
        if self._memory_settings.enabled:
            agent_context, model = self._app.models.memory_model(self._app.root)
            self.memory_model = model
            self.thresholds = thresholds_for(
                self._memory_settings, self.budget_tokens, agent_context, model.context_tokens
            )

    @property
    def notes_tokens(self) -> int | None:
        """The most tokens of notes in a request; None: the memory is off."""
        return self.thresholds.notes_tokens if self.thresholds else None

    @property
    def recall_tokens(self) -> int:
        """The most tokens that are recalled for a message; 0: nothing is recalled."""
        return self.thresholds.recall_tokens if self.thresholds else 0

    @property
    def window_rules(self) -> WindowRules:
        """The limits of the root agent's next request."""
        model, memory = getattr(self._app.root, "model", None), self._memory_settings
        # a model of the user's own is only bounded by what the session service loads
        rules = (
            model.window_rules if isinstance(model, ProviderLlm) else WindowRules(self.budget_tokens, self.max_messages)
        )
        return replace(
            rules,
            with_memory=memory.enabled,
            with_facts=memory.enabled and memory.user_facts,
            notes_tokens=self.notes_tokens,
        )
