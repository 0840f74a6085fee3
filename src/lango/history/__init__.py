"""Choose and repair the messages that a model is sent: token counts, budget window, repair. Pure functions."""

from lango.history.budget_window import (
    FittedWindow,
    current_user_message,
    describe_left_out,
    fit_to_budget,
    fit_window,
    kept_tokens,
)
from lango.history.history_repair import CONTEXT_AUTHOR, INTERRUPTED, STEERING_AUTHOR, repair
from lango.history.message_cleanup import keep_signatures
from lango.history.tokens import TokenCounter, count_tokens, load_tokenizer, warm_up
from lango.history.window_rules import (
    DEFAULT_BUDGET_TOKENS,
    DEFAULT_MAX_MESSAGES,
    Limit,
    WindowRules,
    describe_limit,
    load_limit,
    messages_to_load,
)

__all__ = [
    "CONTEXT_AUTHOR",
    "DEFAULT_BUDGET_TOKENS",
    "DEFAULT_MAX_MESSAGES",
    "INTERRUPTED",
    "STEERING_AUTHOR",
    "FittedWindow",
    "Limit",
    "TokenCounter",
    "WindowRules",
    "count_tokens",
    "current_user_message",
    "describe_left_out",
    "describe_limit",
    "fit_to_budget",
    "fit_window",
    "keep_signatures",
    "kept_tokens",
    "load_limit",
    "load_tokenizer",
    "messages_to_load",
    "repair",
    "warm_up",
]
