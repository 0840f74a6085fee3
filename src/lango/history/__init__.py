"""Choose and repair the messages that a model is sent: token counts, budget window, repair. Pure functions."""

from lango.history.budget_window import (
    DEFAULT_BUDGET_TOKENS,
    DEFAULT_MAX_MESSAGES,
    WindowRules,
    current_user_message,
    fit_to_budget,
    kept_tokens,
    messages_to_load,
)
from lango.history.history_repair import CONTEXT_AUTHOR, INTERRUPTED, repair
from lango.history.message_cleanup import keep_signatures
from lango.history.tokens import TokenCounter, count_tokens, load_tokenizer, warm_up

__all__ = [
    "CONTEXT_AUTHOR",
    "DEFAULT_BUDGET_TOKENS",
    "DEFAULT_MAX_MESSAGES",
    "INTERRUPTED",
    "TokenCounter",
    "WindowRules",
    "count_tokens",
    "current_user_message",
    "fit_to_budget",
    "keep_signatures",
    "kept_tokens",
    "load_tokenizer",
    "messages_to_load",
    "repair",
    "warm_up",
]
