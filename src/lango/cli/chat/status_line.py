"""What the conversation takes: tokens of the window against the budget, and money."""

from typing import TYPE_CHECKING

from lango.cli.model_check import model_name
from lango.cli.session_target import LOCAL_USER
from lango.cli.terminal_text import one_line
from lango.errors import StoreError
from lango.runtime.session_usage import window_rules_for

if TYPE_CHECKING:
    from lango.cli.chat.chat_session import ChatSession
    from lango.config import Settings


_MIN_MODEL_CHARACTERS = 4


class StatusLine:
    """The numbers of the status line."""

    def __init__(self) -> None:
        self._cost_usd: float | None = None
        self._tokens = 0
        self._budget_tokens: int | None = None

    async def load(self, chat: "ChatSession") -> None:
        """Read what the session has taken so far, and how much of it the next request would keep."""
        try:
            usage = await chat.runtime.sessions.usage(chat.target.session_id, user_id=LOCAL_USER, limit=1)
        except StoreError:  # a number that is old is better than no conversation
            return
        self._tokens, self._budget_tokens = usage.window.tokens, usage.rules.budget_tokens
        self._cost_usd = usage.total.cost_usd

    def render(self, chat: "ChatSession", width: int) -> str:
        """Say it in a line; where that is short, the session goes first, then the end of the model's name."""
        budget_tokens = self._budget_tokens or window_rules_for(chat.settings).budget_tokens
        spent = [f"{self._tokens:,} of {budget_tokens:,} tokens", _format_cost(self._cost_usd, chat.settings)]
        model = model_name(chat.settings)
        whole = _join([model, *spent, chat.target.session_id])
        if len(whole) <= width:
            return whole
        left = width - len(_join(["", *spent]))
        return _join([one_line(model, left), *spent] if left >= _MIN_MODEL_CHARACTERS else spent)[:width]


def _join(parts: list[str]) -> str:
    return " · ".join(parts)


def _format_cost(cost_usd: float | None, settings: "Settings") -> str:
    """Say a cost in dollars; of most models that run elsewhere the price is known."""
    if cost_usd is None:
        return "free" if model_name(settings).startswith("local/") else "$ -"
    return f"${cost_usd:.4f}" if cost_usd < 1 else f"${cost_usd:,.2f}"
