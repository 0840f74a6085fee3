"""Render model, tokens, cost and session as one status line."""

from lango.cli.session_target import LOCAL_USER
from lango.cli.terminal_text import one_line
from lango.config import Settings
from lango.errors import StoreError
from lango.runtime.runtime import Runtime
from lango.runtime.sessions.session_usage import window_rules_for

_MIN_MODEL_CHARACTERS = 4


class StatusLine:
    """Tokens and cost of a session, as last loaded."""

    def __init__(self) -> None:
        self._cost_usd: float | None = None
        self._tokens = 0
        self._budget_tokens: int | None = None

    async def load(self, runtime: Runtime, session_id: str) -> None:
        """Read the cost of the session, and the tokens of its next request; keep the old numbers if the store fails."""
        try:
            usage = await runtime.sessions.usage(session_id, user_id=LOCAL_USER, limit=1)
        except StoreError:
            return
        self._tokens, self._budget_tokens = usage.window.tokens, usage.rules.budget_tokens
        self._cost_usd = usage.total.cost_usd

    def render(self, settings: Settings, model: str, session_id: str, width: int) -> str:
        """Return the line; if it is too wide, without the session, then with a shorter name of the model."""
        budget_tokens = self._budget_tokens or window_rules_for(settings).budget_tokens
        usage = [f"{self._tokens:,} of {budget_tokens:,} tokens", _format_cost(self._cost_usd, model)]
        whole = _join([model, *usage, session_id])
        if len(whole) <= width:
            return whole
        left = width - len(_join(["", *usage]))
        return _join([one_line(model, left), *usage] if left >= _MIN_MODEL_CHARACTERS else usage)[:width]


def _join(parts: list[str]) -> str:
    return " · ".join(parts)


def _format_cost(cost_usd: float | None, model: str) -> str:
    """Format a cost in dollars; without a price it is unknown, except for local models."""
    if cost_usd is None:
        return "free" if model.startswith("local/") else "$ -"
    return f"${cost_usd:.4f}" if cost_usd < 1 else f"${cost_usd:,.2f}"
