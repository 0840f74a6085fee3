"""Describe the limits of a request's messages, and the setting that changes each.

A limit that leaves messages out is named wherever users look: in the log, on the page, in the terminal.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

DEFAULT_BUDGET_TOKENS = 32_000
DEFAULT_MAX_MESSAGES = 100
"""The largest number of messages in a request while observational memory is off."""

Limit = Literal["max_messages", "max_turns", "budget"]
"""What ends the window of a request: the number of messages or of turns, or the token budget."""


class WindowRules(Struct, frozen=True):
    """The limits of the messages of a request."""

    budget_tokens: int = DEFAULT_BUDGET_TOKENS
    """In tokens of the model."""
    max_messages: int | None = DEFAULT_MAX_MESSAGES
    max_turns: int | None = None
    factor: float = 1.0
    """How many tokens of the model one counted token is."""
    with_memory: bool = False
    """Observed messages are replaced by quoted notes."""
    with_facts: bool = False
    """Facts about the user are quoted, too."""
    notes_tokens: int | None = None
    """The most tokens of quoted notes."""
    of_context: bool = False
    """The budget is what the context window of the model leaves for messages, and less than the configured one."""

    max_loaded: int | None = None
    """The most messages that are loaded for a request, without its new message, or None for no limit."""

    def within(self, loaded: "WindowRules") -> "WindowRules":
        """Return the rules of requests of a model whose messages were loaded under other rules."""
        budget_tokens = min(self.budget_tokens, loaded.budget_tokens)
        return replace(self, budget_tokens=budget_tokens, max_loaded=loaded.max_loaded, with_memory=loaded.with_memory)

    @property
    def most_messages(self) -> int | None:
        """The limit of messages, of the request or of its load, or None if there is none."""
        return min((limit for limit in (self.max_messages, self.max_loaded) if limit), default=None)

    @property
    def room_tokens(self) -> int:
        """The budget in tokens as `count_tokens` counts them."""
        return max(1, int(self.budget_tokens / self.factor))


def messages_to_load(max_messages: int | None) -> int | None:
    """Return how many messages to load for a request of `max_messages`: some events become no message."""
    return max_messages and max_messages * 5 // 4


def load_limit(loaded: int, most_loaded: int | None) -> Limit:
    """Return the limit because of which only the newest messages were loaded."""
    return "max_messages" if most_loaded and loaded >= most_loaded else "budget"


def describe_limit(limit: Limit, rules: WindowRules) -> str:
    """Return a clause that says what the limit is, and how to change it."""
    memory = "" if rules.with_memory else "; with `memory.enabled = true` the model gets notes of older messages"
    match limit:
        case "max_messages":
            most, setting = f"{rules.most_messages:,} messages", "history.max_messages"
        case "max_turns":
            most, setting = f"{rules.max_turns:,} turns", "history.max_turns"
        case "budget" if rules.of_context:
            return f"the context window of the model has room for {rules.budget_tokens:,} tokens of messages{memory}"
        case "budget":
            most, setting = f"{rules.budget_tokens:,} tokens of messages", "history.max_message_token_budget"
    return f"a request holds at most {most}, which `{setting}` in lango.toml changes{memory}"
