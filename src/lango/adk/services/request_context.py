"""Share context variables of the current turn and load between session service, model and plugin."""

import logging
from contextvars import ContextVar
from typing import NamedTuple

from google.adk.events import Event

writing_epoch: ContextVar[int | None] = ContextVar("lango_epoch", default=None)
"""The epoch of the turn that writes, if a turn does: a turn that lost its lease cannot write any more."""
input_event: ContextVar[Event | None] = ContextVar("lango_message", default=None)
"""The user's message, stored together with its turn: ADK appends it again, which must not store it twice."""


class LoadSummary(NamedTuple):
    """What the load of a session left out."""

    left_out: int = 0
    """How many messages did not fit the budget."""
    logged: bool = True
    """Whether the load itself logged that; otherwise the model does, together with what it leaves out."""
    has_all_calls: bool = True
    """Whether the load includes every tool call of the session."""
    clipped_tokens: int = 0
    """How many tokens of large results were clipped: the model's warning includes them."""


last_load: ContextVar[LoadSummary] = ContextVar("lango_loaded", default=LoadSummary())  # noqa: B039 - a tuple
"""The load of the current request's session."""

_log = logging.getLogger("lango.history")


def warn_left_out(left_out: int, in_all: int) -> None:
    """Log that messages were left out."""
    _log.warning("the history is larger than its budget: left out %d of %d messages", left_out, in_all)
