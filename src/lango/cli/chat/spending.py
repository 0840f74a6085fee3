"""What the conversation takes: tokens of the window against the budget, and money."""

from typing import TYPE_CHECKING

from lango.cli.chat.models import model_name
from lango.cli.visible import one_line
from lango.history import DEFAULT_BUDGET_TOKENS

if TYPE_CHECKING:
    from lango.cli.chat.conversation import Chat
    from lango.events import Usage


_LEAST = 4


class Spending:
    """The numbers of the status line."""

    def __init__(self) -> None:
        self._cost_usd: float | None = None
        self._window_tokens = 0

    def add(self, usage: "Usage") -> None:
        """Add what a turn cost, where that is known."""
        if usage.cost_usd is not None:
            self._cost_usd = (self._cost_usd or 0.0) + usage.cost_usd

    async def read(self, chat: "Chat") -> None:
        """Read what the session has taken so far."""
        await self.read_window(chat)

    async def read_window(self, chat: "Chat") -> None:
        """Read how large the window is that the next request would be made of."""
        history, memory = chat.settings.history, chat.settings.memory
        limit = None if memory.enabled else history.max_messages
        found = await chat.runtime.store.window(chat.name, budget(chat), limit)
        self._window_tokens = sum(one.tokens for one in found[1]) if found else 0

    def status(self, chat: "Chat", width: int) -> str:
        """Say it in a line; where that is short, the session goes first, then the end of the model's name."""
        spent = [f"{self._window_tokens:,} of {budget(chat):,} tokens", money(self._cost_usd)]
        model = model_name(chat.settings)
        whole = _joined([model, *spent, chat.place.session_id])
        if len(whole) <= width:
            return whole
        left = width - len(_joined(["", *spent]))
        return _joined([one_line(model, left), *spent] if left >= _LEAST else spent)[:width]


def _joined(parts: list[str]) -> str:
    return " · ".join(parts)


def budget(chat: "Chat") -> int:
    """Return how many tokens of messages a request holds at most."""
    return chat.settings.history.max_message_token_budget or DEFAULT_BUDGET_TOKENS


def money(cost_usd: float | None) -> str:
    """Say a cost in dollars."""
    if cost_usd is None:
        return "no known cost"
    return f"${cost_usd:.4f}" if cost_usd < 1 else f"${cost_usd:,.2f}"
