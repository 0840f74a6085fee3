"""Say which step of a run this code belongs to, and which messages its session was loaded with."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from google.adk.tools import ToolContext
from msgspec import Struct
from msgspec.structs import replace

from lango.history import Limit


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
    """The model that answers the next call instead of the agent's own; None: its own."""

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
