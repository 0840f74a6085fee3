"""What the callbacks of a turn share, and how a tool of the user's own runs in a turn: bounded in time, contained."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import BaseTool, ToolContext
from msgspec import Struct, field

from lango.adk.model.direct_text import TextSink
from lango.adk.run.model_call_stats import ModelCallStats
from lango.errors import LangoError
from lango.events import TurnEvent
from lango.store import Store, Turn
from lango.store.turns.tool_journal import Effect
from lango.tools import Tool
from lango.tools.approval_policy import Decision


class TurnState(Struct):
    """What the callbacks of one turn share."""

    store: Store
    turn: Turn
    max_model_calls: int
    decide: Callable[[BaseTool], Decision]
    effect_of: Callable[[BaseTool], Effect]
    agent_names: Callable[[str], list[str]]
    """The agents that an agent can hand over to, by its name."""
    emit: Callable[[TurnEvent], None]
    next_id: Callable[[], int]
    tool_timeout_s: float
    own_call_ids: set[str] = field(default_factory=set[str])
    """Ids of the calls that the turn's own agents made: what an agent that is a tool does inside is not told."""
    used_call_ids: set[str] = field(default_factory=set[str])
    """Ids of calls that are taken in this turn."""
    model_calls: int = 0
    bad_transfer: str | None = None
    valid_agents: list[str] = field(default_factory=list[str])
    failure: LangoError | None = None
    toolset_error: LangoError | None = None
    """Why tools that the agent should have could not be had: ADK would go on without them."""
    has_other_pending: bool = False
    """Beside the question that this turn answers, others still wait."""
    answered_by: str = ""
    """Who answered that question."""
    started_at: dict[str, float] = field(default_factory=dict[str, float])
    """Calls under way, and when they began, by a clock that only goes forward."""
    durations_s: dict[str, float] = field(default_factory=dict[str, float])
    time_limits_s: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """How long a call may take; None: an agent that is a tool takes as long as the turn may."""
    call_counts: Counter[str] = field(default_factory=Counter[str])
    session_id: str = ""
    text_sink_for: Callable[[str, str], TextSink | None] = field(default=lambda agent, branch: None)
    """Who tells the text of an agent in a branch; None: ADK does."""
    model_call_stats: list[ModelCallStats] = field(default_factory=list[ModelCallStats])
    """The calls of the model, in the order of their beginning."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """What the client of this turn runs itself, by name."""
    client_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls of those: the turn ends, and they wait."""

    def offers_client_tools(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent may call the client: one that speaks to the user, and not several at the same time."""
        return bool(self.client_tools) and context.session.id == self.session_id and not context.branch


current_turn: ContextVar[TurnState | None] = ContextVar("lango_turn", default=None)


def note_toolset_failure(error: LangoError) -> None:
    """Make the current turn fail at its next model call, because an agent's toolset could not be loaded."""
    if (state := current_turn.get()) is not None:
        state.toolset_error = error
