"""Share facts about the current load and turn between session service, model and plugin."""

import logging
from contextvars import ContextVar
from typing import NamedTuple

from google.adk.events import Event

writing_epoch: ContextVar[int | None] = ContextVar("lango_epoch", default=None)
"""The epoch of the turn that writes, where a turn does: a turn that lost its claim can write no more."""
input_event: ContextVar[Event | None] = ContextVar("lango_message", default=None)
"""The user's message that the turn was stored with: ADK appends it once more, and it is there already."""


class LoadSummary(NamedTuple):
    """What a load of a session left in the store."""

    left_out: int = 0
    """How many messages that a request would show the budget left out."""
    logged: bool = True
    """The load itself logged that; else the model does, with what it leaves out of the request."""
    has_all_calls: bool = True
    """Every call that the session ever had is among what was loaded."""
    clipped_tokens: int = 0
    """How much of large results was left out: the model's warning counts it, too."""


_NOTHING_LEFT_OUT = LoadSummary()
last_load: ContextVar[LoadSummary] = ContextVar("lango_loaded", default=_NOTHING_LEFT_OUT)
"""How the session of the current request was loaded."""

_log = logging.getLogger("lango.history")


def warn_left_out(left_out: int, in_all: int) -> None:
    """Log that messages were left out."""
    _log.warning("the history is larger than its budget: left out %d of %d messages", left_out, in_all)
