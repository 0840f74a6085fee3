"""Share the state of one turn between ADK's callbacks."""

from asyncio import AbstractEventLoop, Semaphore
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event
from google.adk.tools import BaseTool, ToolContext
from msgspec import field
from typing_extensions import override

from lango.adk.agents.tools.client_tools import ClientTool
from lango.adk.model.direct_text import TextSink
from lango.adk.run.model_call_stats import SUMMARY, ModelCallStats
from lango.adk.services.artifact_references import LoadReference
from lango.adk.services.request_context import TurnContext, current_turn
from lango.adk.services.stored_files import FileLoader
from lango.config import TraceSettings
from lango.errors import AgentNotFound, ConfigError, LangoError
from lango.events import TurnEvent
from lango.sessions import SessionId
from lango.store import Store
from lango.store.credentials.secret_box import SecretBox
from lango.submissions import ModelOptions
from lango.tools import Effect, Tool
from lango.tools.approval_policy import Decision

_TOOLS_AT_ONCE = 32
"""How many tools of one turn run at the same time; as many as ADK has threads for them."""


class TurnState(TurnContext, kw_only=True):
    """The state of one turn, for the callbacks of the plugin."""

    store: Store
    files: FileLoader
    box: SecretBox
    load_reference: LoadReference
    """Loads an artifact that a request refers to."""
    runs_message_callbacks: bool = True
    """Whether the plugins' callbacks on the user's message are still to be run."""
    max_model_calls: int
    decide: Callable[[BaseTool], Decision]
    effect: Callable[[BaseTool], Effect]
    """Returns what a second run of a tool would do."""
    agent_names: Callable[[str], list[str]]
    """Returns the agents that an agent, given by its name, can transfer to."""
    emit: Callable[[TurnEvent], None]
    tool_timeout_s: float
    loop: AbstractEventLoop | None = None
    """The event loop of the turn, for code of ADK that runs in threads."""
    used_call_ids: set[str] = field(default_factory=set[str])
    """Call ids that this turn must not use again."""
    continues_invocation: bool = False
    """The turn goes on with an invocation that paused."""
    earlier_nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    """The nodes that ran before that pause: their status, by path."""
    model_calls: int = 0
    bad_transfer: str | None = None
    valid_agents: list[str] = field(default_factory=list[str])
    failure: LangoError | None = None
    failed_servers: dict[str, ConfigError] = field(default_factory=dict[str, ConfigError])
    """The MCP servers whose tools could not be listed, and why: the turn runs without these tools."""
    has_other_pending: bool = False
    """Other approval requests or client calls are pending besides those that this turn answers."""
    answered_by: str = ""
    """The user who answered the approval request."""
    started_at: dict[str, float] = field(default_factory=dict[str, float])
    """When each running call started, on the monotonic clock."""
    tool_slots: Semaphore = field(default_factory=lambda: Semaphore(_TOOLS_AT_ONCE))
    """Taken by each running tool: a model may make thousands of calls in one response."""
    agent_calls: set[str] = field(default_factory=set[str])
    """The calls of tools that run agents or nodes, whose own steps are recorded."""
    time_limits_s: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """The time limit of each call; None: an agent that is a tool may take as long as the turn."""
    extend_time: Callable[[float], None] = field(default=lambda seconds: None)
    """Moves the time limit of the turn: waiting for a person does not count."""
    questions: Counter[str] = field(default_factory=Counter[str])
    """How often each running call asked the user."""
    progress_at: dict[str, float] = field(default_factory=dict[str, float])
    """When each call last reported its progress, on the monotonic clock."""
    confirmed_by_adk: set[str] = field(default_factory=set[str])
    """Calls that have not started: ADK asks for their confirmation."""
    call_counts: Counter[str] = field(default_factory=Counter[str])
    runs_again: set[str] = field(default_factory=set[str])
    """Calls that an earlier run started and did not finish, and that are harmless to run again."""
    nested_calls: Counter[str] = field(default_factory=Counter[str])
    """How many model calls each agent inside a tool has made, by tool call, agent and branch."""
    model_steps: Counter[str] = field(default_factory=Counter[str])
    """How many model calls each agent has made, by its branch and the tool calls that it runs inside of."""
    trace: TraceSettings = TraceSettings()
    """What the trace keeps of the model calls."""
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
    requested_for: set[str] = field(default_factory=set[str])
    """The calls of tools for which a credential was requested in this run."""
    requested_keys: set[str] = field(default_factory=set[str])
    """The names of the requested credentials: ADK requests one of each."""
    missing_requests: list[Any] = field(default_factory=list[Any])
    """The credentials that tools asked for, and ADK did not request; see `lango.adk.run.pauses.unanswered_calls`."""
    node_call_ids: set[str] = field(default_factory=set[str])
    """The long-running calls in a workflow's nodes; see `lango.adk.run.pauses.unanswered_calls`."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools that the client of this turn runs itself, by name."""
    options: ModelOptions = ModelOptions()
    """What the request of this turn sets for its model calls."""
    client_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls that wait for the client after the turn."""
    name: SessionId | None = None
    """The session of the turn."""
    recall_tokens: int = 0
    """The most tokens that are recalled for a message; 0: nothing is recalled."""
    recalled_texts: dict[str, str] = field(default_factory=dict[str, str])
    """What was recalled for the user's message, by its text: every model call of the turn is shown the same."""

    @property
    def place(self) -> str:
        """Names the turn in the log."""
        return f"turn {self.turn.turn} of session {self.session_id}"

    @override
    def end_model_call(self, event: Event, seq: int) -> bool:
        """Note that the response to a model call is stored as a message."""
        is_response = super().end_model_call(event, seq)
        call = self.calls_by_agent.get((self.session_id, event.branch or "", event.author)) if is_response else None
        if call is not None:
            call.seq = seq
        return is_response

    def offers_client_tools(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent may call client tools: not inside a tool, and not in parallel with others."""
        return bool(self.client_tools) and self.answers_client(context)

    def answers_client(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent answers the request of the turn: not inside a tool, and not in parallel with others."""
        return context.session.id == self.session_id and not context.branch

    def may_await_result(self, tool: BaseTool, context: ToolContext) -> bool:
        """Whether results of a tool may come from outside after the turn: of ADK's long-running tools."""
        return tool.is_long_running and not isinstance(tool, ClientTool) and context.session.id == self.session_id


def current_state() -> TurnState | None:
    """Return the state of the turn that this code runs in; None: it runs in none."""
    turn = current_turn.get()
    return turn if isinstance(turn, TurnState) else None


def note_server_failure(server: str, error: ConfigError) -> None:
    """Note that the current turn runs without the tools of an MCP server."""
    if (state := current_state()) is not None:
        state.failed_servers[server] = error


def server_failure(server: str) -> ConfigError | None:
    """Return why an MCP server could not list its tools in the current turn, or None."""
    state = current_state()
    return state.failed_servers.get(server) if state is not None else None


def count_summary(state: TurnState, model: str, event: Event) -> None:
    """Count the model call behind a summary of ADK's compaction, as far as the summary says what it used."""
    call = ModelCallStats(model, SUMMARY)
    call.end(event.model_version, event.usage_metadata)
    call.duration_s = 0.0  # not known: only its end is seen
    state.model_call_stats.append(call)
    state.summaries += 1
    state.add_usage(call.model, call.usage)
