"""Share the turn that a run belongs to, and what a load left out, between session service, model and plugin."""

import logging
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from google.adk.events import Event
from msgspec import field

from lango.adk.events.recorded_run import RecordedRun
from lango.store import Turn
from lango.turns.synchronization import StepGate
from lango.turns.turn_progress import TurnProgress


class TurnContext(TurnProgress, kw_only=True):
    """What the session service and the model know of the turn that they run in."""

    turn: Turn
    """Its epoch fences its writes: a turn that lost its lease cannot write any more."""
    session_id: str = ""
    input_event: Event | None = None
    """The turn's input, stored together with the turn: ADK appends it again, which must not store it twice."""
    brings_credential: bool = False
    """The input is a credential: the stored message does not have it, and ADK gets it from the input."""
    recorded: RecordedRun | None = None
    """What an earlier run of this turn stored; None: this is its first run."""
    first_seq: int | None = None
    """The message of the input, if an earlier run stored more after it."""
    calls_under_way: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """The branches and agents whose model is being called."""
    on_model_progress: Callable[[], None] = field(default=lambda: None)
    """Called for each delta of a model, also for those that become no event, so that the turn does not time out."""
    text_sinks: dict[int, Callable[[Any], None]] = field(default_factory=dict[int, Callable[[Any], None]])
    """Where the text of the answer to a request goes, piece by piece, by the identity of the request."""
    on_summary: Callable[[Event], None] = field(default=lambda event: None)
    """Called for each summary of ADK's compaction, which no callback sees: its tokens count."""
    replaced_model: Any = None
    """The root agent's model, which `chosen_model` replaces in this turn."""
    chosen_model: Any = None
    """The model that was chosen for the session; None: the agent's own."""
    session_instruction: str = ""
    """The instruction that was chosen for the session; empty: the agent's own."""
    step_gate: StepGate = field(default_factory=StepGate)
    """Passed before each step: it is closed while the process stops."""

    node_paths: set[str] = field(default_factory=set[str])
    """The paths of the workflow's nodes that run or ran in this turn."""

    artifact_saves: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each step has saved each artifact in this run, by step and name."""

    async def begin_model_call(self, branch: str, agent: str) -> None:
        """Begin to call the model of an agent, unless the process stops."""
        await self.step_gate.enter()
        self.calls_under_way.add((branch, agent))

    def end_model_call(self, event: Event, seq: int) -> bool:
        """Note that an event is stored as message `seq`; return whether it is the response to a model call."""
        lane = event.branch or "", event.author
        if (event.content is None and not event.error_code) or lane not in self.calls_under_way:
            return False
        self.calls_under_way.discard(lane)
        self.step_gate.leave()
        return True


current_turn: ContextVar[TurnContext | None] = ContextVar("lango_turn", default=None)


current_step: ContextVar[str] = ContextVar("lango_step", default="")
"""The tool call or workflow node that this code runs in, the same in every run of the turn; empty: neither."""


def turn_of_session(session_id: str) -> TurnContext | None:
    """Return the turn that this code runs in, if it runs in this session."""
    turn = current_turn.get()
    return turn if turn is not None and turn.session_id in ("", session_id) else None


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


last_load: ContextVar[LoadSummary] = ContextVar("lango_loaded", default=LoadSummary())  # noqa: B039 - a tuple
"""The load of the current request's session."""

_log = logging.getLogger("lango.history")


def warn_left_out(left_out: int, in_all: int) -> None:
    """Log that messages were left out."""
    _log.warning("the history is larger than its budget: left out %d of %d messages", left_out, in_all)
