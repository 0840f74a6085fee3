"""Compute when to observe and when to reflect from the token budget.

Observations, recent turns and unobserved messages share one budget. From 100,000 tokens on, the defaults are the
published 30,000 and 40,000 tokens; below, they are shares of the budget. Few notes are shown, because the others are
recalled when they matter: so there is room for many messages, and few observations are needed.
"""

from msgspec import Struct

from lango.config import MemorySettings

OBSERVE_AT_TOKENS = 30_000
REFLECT_AT_TOKENS = 40_000
_OBSERVE_SHARE = 0.7
_REFLECT_SHARE = 0.4
_CONTEXT_SHARE = 0.75  # of a small model's context: the rest is for the system prompt, the tools and the answer
_FLOOR_SHARE = 0.15
_NOTES_SHARE = 0.04
_RECALL_PART = 3  # a third of what the rest of a request leaves
_RECALL_SHARE = 0.06  # of the budget, in a full request
_MIN_RECALL_TOKENS, _MAX_RECALL_TOKENS = 300, 2_000
_MAX_RECALL_SHARE = 0.1  # of a budget so small that the minimum exceeds it
_MIN_PIECE_TOKENS = 64
_MAX_BATCH_TOKENS = 60_000


class MemoryThresholds(Struct, frozen=True):
    """Thresholds in tokens for one agent and its observer."""

    observe_at_tokens: int
    reflect_at_tokens: int
    keep_turns: int
    floor_tokens: int
    """The most that recent turns may take, which always stay in the request."""
    batch_tokens: int
    """The most that an observer is shown at once."""
    piece_tokens: int
    """A larger message is shown in pieces of this size."""
    notes_tokens: int
    """The most tokens of notes in a request."""
    recall_tokens: int
    """The most tokens that are recalled for a message; 0: nothing is recalled."""
    least_recall_tokens: int
    """What may be recalled however full a request is."""
    room_tokens: int
    """The tokens that the messages of a request may have."""

    def recall_room(self, used_tokens: int) -> int:
        """Return how many tokens may be recalled beside the messages and notes of a request."""
        free = max(0, self.room_tokens - used_tokens)
        return min(self.recall_tokens, max(self.least_recall_tokens, free // _RECALL_PART))


def thresholds_for(
    settings: MemorySettings,
    budget_tokens: int,
    context_tokens: int | None = None,
    observer_context_tokens: int | None = None,
) -> MemoryThresholds:
    """Return the thresholds of the settings, or the defaults for this budget and this context of the model."""
    room = budget_tokens if context_tokens is None else min(budget_tokens, int(context_tokens * _CONTEXT_SHARE))
    observe_at = settings.observe_at_tokens or max(1, min(OBSERVE_AT_TOKENS, int(room * _OBSERVE_SHARE)))
    reflect_at = settings.reflect_at_tokens or max(1, min(REFLECT_AT_TOKENS, int(room * _REFLECT_SHARE)))
    max_tokens = _MAX_BATCH_TOKENS if observer_context_tokens is None else observer_context_tokens // 2
    return MemoryThresholds(
        observe_at,
        reflect_at,
        keep_turns=settings.keep_turns,
        floor_tokens=int(room * _FLOOR_SHARE),
        batch_tokens=min(max(2 * observe_at, _MIN_PIECE_TOKENS), max_tokens),
        piece_tokens=min(max(observe_at, _MIN_PIECE_TOKENS), max_tokens),
        notes_tokens=settings.notes_tokens or max(1, int(room * _NOTES_SHARE)),
        recall_tokens=(settings.recall_tokens or room // _RECALL_PART) if settings.recall else 0,
        least_recall_tokens=settings.recall_tokens or _least_recall_tokens(room),
        room_tokens=room,
    )


def _least_recall_tokens(room: int) -> int:
    least = min(_MIN_RECALL_TOKENS, int(room * _MAX_RECALL_SHARE))
    return max(1, least, min(_MAX_RECALL_TOKENS, int(room * _RECALL_SHARE)))
