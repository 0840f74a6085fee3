"""Share the state of one turn between ADK's callbacks."""

from collections import Counter
from collections.abc import Callable, Mapping

from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import BaseTool, ToolContext
from msgspec import field

from lango.adk.model.direct_text import TextSink
from lango.adk.run.model_call_stats import ModelCallStats
from lango.adk.services.request_context import TurnContext, current_turn
from lango.errors import AgentNotFound, LangoError
from lango.events import TurnEvent
from lango.store import Store
from lango.tools import Tool
from lango.tools.approval_policy import Decision


class TurnState(TurnContext, kw_only=True):
    """The state of one turn, for the callbacks of the plugin."""

    store: Store
    max_model_calls: int
    decide: Callable[[BaseTool], Decision]
    agent_names: Callable[[str], list[str]]
    """Returns the agents that an agent, given by its name, can transfer to."""
    emit: Callable[[TurnEvent], None]
    tool_timeout_s: float
    used_call_ids: set[str] = field(default_factory=set[str])
    """Call ids that this turn must not use again."""
    model_calls: int = 0
    bad_transfer: str | None = None
    valid_agents: list[str] = field(default_factory=list[str])
    failure: LangoError | None = None
    toolset_error: LangoError | None = None
    """Why a toolset could not be loaded: ADK would run without its tools."""
    has_other_pending: bool = False
    """Other approval requests or client calls are pending besides those that this turn answers."""
    answered_by: str = ""
    """The user who answered the approval request."""
    started_at: dict[str, float] = field(default_factory=dict[str, float])
    """When each running call started, on the monotonic clock."""
    time_limits_s: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """The time limit of each call; None: an agent that is a tool may take as long as the turn."""
    call_counts: Counter[str] = field(default_factory=Counter[str])
    runs_again: set[str] = field(default_factory=set[str])
    """Calls that an earlier run started and did not finish, and that are harmless to run again."""
    nested_calls: Counter[str] = field(default_factory=Counter[str])
    """How many model calls each agent inside a tool has made, by tool call, agent and branch."""
    on_model_call: Callable[[str], None] = field(default=lambda agent: None)
    """Called before the model of an agent is called: text of an earlier call may have to be withdrawn."""
    text_sink_for: Callable[[str, str], TextSink | None] = field(default=lambda agent, branch: None)
    """Returns the function that emits the text of an agent in a branch; None: the text comes as ADK events."""
    corrected_transfer: AgentNotFound | None = None
    """The transfer to a missing agent that the model was asked to correct: the cause of a later failure."""
    calls_by_agent: dict[tuple[str, ...], ModelCallStats] = field(default_factory=dict[tuple[str, ...], ModelCallStats])
    """The newest model call of each agent, by its session, branch and name."""
    model_call_stats: list[ModelCallStats] = field(default_factory=list[ModelCallStats])
    """The model calls, in the order in which they started."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools that the client of this turn runs itself, by name."""
    client_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls that wait for the client after the turn."""

    def offers_client_tools(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent may call client tools: not inside a tool, and not in parallel with others."""
        return bool(self.client_tools) and context.session.id == self.session_id and not context.branch


def current_state() -> TurnState | None:
    """Return the state of the turn that this code runs in; None: it runs in none."""
    turn = current_turn.get()
    return turn if isinstance(turn, TurnState) else None


def note_toolset_failure(error: LangoError) -> None:
    """Make the current turn fail at its next model call, because an agent's toolset could not be loaded."""
    if (state := current_state()) is not None:
        state.toolset_error = error
