"""Say which step of a run this code belongs to, and what its request has of the session; log what is left out."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from google.adk.tools import ToolContext
from msgspec import Struct
from msgspec.structs import replace

from lango.history import Limit, WindowRules, describe_left_out, describe_limit


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
    first_seq: int = 0
    """The first message that was loaded."""
    limit: Limit = "budget"
    """The limit because of which messages were left out."""


class Step(Struct, frozen=True):
    """The place of this code in a run: a tool call or a node, inside of other calls."""

    id: str = ""
    """The tool call or workflow node, the same in every run of the turn, or ""."""
    outer_calls: tuple[str, ...] = ()
    """The ids of the calls that this code runs inside of: agents that are called as tools."""
    load: LoadSummary = LoadSummary()
    """The load of the current request's session."""
    tool_context: ToolContext | None = None
    """ADK's context of the tool of ours that runs."""
    model: Any = None
    """The model that answers the next call instead of the agent's own, or None for its own."""

    def inner_id(self, step_id: str) -> str:
        """Return the id of a step, after the ids of the calls that it runs inside of."""
        return "/".join((*self.outer_calls, step_id))

    @property
    def outer_call(self) -> str:
        """The id of the call that this code runs inside of, or ""."""
        return self.outer_calls[-1] if self.outer_calls else ""


_step: ContextVar[Step] = ContextVar("lango_step", default=Step())  # noqa: B039 - it is frozen


def current_step() -> Step:
    """Return the step that this code runs in."""
    return _step.get()


def enter_step(step_id: str) -> None:
    """Note that this code, and the tasks that it starts, run in a step; with an empty id, that the step is over."""
    _step.set(replace(_step.get(), id=step_id))


def enter_call(call_id: str) -> None:
    """Note that this code runs inside of a call: the agents that it runs are called as tools."""
    step = _step.get()
    _step.set(replace(step, outer_calls=(*step.outer_calls, call_id)))


def note_load(load: LoadSummary) -> None:
    """Note what the load of the current request's session left out."""
    _step.set(replace(_step.get(), load=load))


def note_model(model: Any) -> None:
    """Note which model answers the call that follows, or None for the agent's own."""
    if _step.get().model is not model:
        _step.set(replace(_step.get(), model=model))


@contextmanager
def tool_context_noted(context: ToolContext) -> Generator[None]:
    """Note ADK's context of the tool that the body of the block runs."""
    outer = _step.get().tool_context
    _step.set(replace(_step.get(), tool_context=context))
    try:
        yield
    finally:
        _step.set(replace(_step.get(), tool_context=outer))


# -- left out of the history -------------------------------------------------------------------------------------------

_log = logging.getLogger("lango.history")
_MAX_KNOWN = 10_000


def warn_left_out(left_out: int, in_all: int, clipped_tokens: int = 0) -> None:
    """Log what a request outside of a runtime leaves out."""
    _log.warning("%s", describe_left_out(left_out, in_all, clipped_tokens))


class LeftOutLog:
    """Logs once per session that its requests leave messages out."""

    def __init__(self, rules: WindowRules) -> None:
        self.rules = rules
        """The limits of a load, which apply to a model of the user's own."""
        self._known: dict[tuple[str, bool], None] = {}

    def note(
        self,
        session_id: str,
        left_out: int,
        in_all: int,
        limit: Limit,
        rules: WindowRules,
        clipped_tokens: int = 0,
    ) -> None:
        """Log what a request of a session leaves out, unless that is logged already."""
        key = session_id, bool(left_out)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        why = describe_limit(limit if left_out else "budget", rules)
        _log.warning("session %s: %s: %s", session_id, describe_left_out(left_out, in_all, clipped_tokens), why)
