"""When to observe and when to reflect: the published 30,000 and 40,000 tokens, scaled to what a request may hold.

Observations, the floor of recent turns and what is not observed yet share one budget. At 100,000 tokens and more the
defaults are the published ones; below, they keep the same shares of it.
"""

from msgspec import Struct

from lango.config import MemorySettings

OBSERVE_AT_TOKENS = 30_000
REFLECT_AT_TOKENS = 40_000
_OBSERVE_SHARE = 0.3
_REFLECT_SHARE = 0.4
_CONTEXT_SHARE = 0.75  # of a small model's context: the rest is for the system prompt, the tools and the answer
_FLOOR_SHARE = 0.125
_LEAST_PIECE_TOKENS = 64
_MOST_BATCH_TOKENS = 60_000


class MemoryThresholds(Struct, frozen=True):
    """Thresholds in tokens, as they hold for one agent and one observer."""

    observe_at_tokens: int
    reflect_at_tokens: int
    keep_turns: int
    floor_tokens: int
    """What the floor of recent turns may cost."""
    batch_tokens: int
    """What an observer is shown at once."""
    piece_tokens: int
    """A message that is larger is shown in pieces of this size."""


def thresholds_for(
    settings: MemorySettings,
    budget_tokens: int,
    context_tokens: int | None = None,
    observer_context_tokens: int | None = None,
) -> MemoryThresholds:
    """Return the thresholds: what the settings say, or the defaults for this budget and this context of the model."""
    room = budget_tokens if context_tokens is None else min(budget_tokens, int(context_tokens * _CONTEXT_SHARE))
    observe_at = settings.observe_at_tokens or max(1, min(OBSERVE_AT_TOKENS, int(room * _OBSERVE_SHARE)))
    reflect_at = settings.reflect_at_tokens or max(1, min(REFLECT_AT_TOKENS, int(room * _REFLECT_SHARE)))
    most = _MOST_BATCH_TOKENS if observer_context_tokens is None else observer_context_tokens // 2
    return MemoryThresholds(
        observe_at,
        reflect_at,
        keep_turns=settings.keep_turns,
        floor_tokens=max(min(observe_at, int(room * _OBSERVE_SHARE)), int(room * _FLOOR_SHARE)),
        batch_tokens=min(max(2 * observe_at, _LEAST_PIECE_TOKENS), most),
        piece_tokens=min(max(observe_at, _LEAST_PIECE_TOKENS), most),
    )
