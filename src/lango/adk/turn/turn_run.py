"""Share one run of a turn between ADK's services, models and callbacks."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event
from google.adk.tools import BaseTool, ToolContext
from google.genai import types
from msgspec import Struct, field

from lango.adk.turn.limits import Limits
from lango.adk.turn.model_calls import ModelCallStats
from lango.adk.turn.output import Output
from lango.adk.turn.record import KeptRequests, Record
from lango.adk.turn.step import LeftOutLog
from lango.adk.turn.waits import Waits
from lango.development.failures import CollectedFailures, failures_collected
from lango.errors import ConfigError, StoreError
from lango.sessions import SessionId
from lango.store.credentials.secret_box import SecretBox
from lango.store.sessions.developer_log import add_failures
from lango.tools import Effect
from lango.tools.execution import Decision
from lango.turns.turn_input import TurnInput

_log = logging.getLogger("lango.runtime")


class ContinuedHistory(Struct, frozen=True):
    """How the agents of an app read what a turn did before it continued after an update."""

    agents: frozenset[str]
    root: str
    """The root agent, if it reads steps of agents that no longer exist as its own: it continues their work."""
    readers: frozenset[str]
    """The agents that read the conversation."""

    def author(self, name: str) -> str:
        """Return the author under which an event is shown."""
        return name if name == "user" or name in self.agents else self.root or name

    def shows_call(self, author: str, reader: str) -> bool:
        """Whether an agent reads a call of this author as one of its own."""
        return reader in self.readers and self.author(author) == reader


class AppServices(Struct, frozen=True, kw_only=True):
    """What all turns of an app use."""

    box: SecretBox
    load_files: Callable[[list[types.Content]], Awaitable[None]]
    """Loads the files of a request's contents."""
    load_references: Callable[[SessionId, list[types.Content]], Awaitable[None]]
    """Loads the artifacts that a request of a session refers to."""
    decide: Callable[[BaseTool], Decision]
    effect: Callable[[BaseTool], Effect]
    """Returns what a second run of a tool would do."""
    agent_names: Callable[[str], list[str]]
    """Returns the agents that an agent, given by its name, can transfer to."""
    continued_history: ContinuedHistory
    tool_schema: Callable[[str, str], str | None]
    """Returns the digest of the schema of an agent's tool, given by their names, or None before a run."""
    kept_requests: KeptRequests
    """Stores the requests to models, where the settings say so."""
    left_out_log: LeftOutLog
    direct_text_agents: frozenset[str]
    """The agents whose text nothing in ADK can change; see `lango.adk.agents.tree`."""


class TurnRun(Struct, eq=False, frozen=True, kw_only=True):
    """One run of a turn: what the turn is, and what its steps share."""

    session: SessionId
    input: TurnInput
    app: AppServices
    limits: Limits
    record: Record
    waits: Waits
    output: Output
    replaced_model: Any = None
    """The root agent's model, which `chosen_model` replaces in this turn."""
    chosen_model: Any = None
    """The model that was chosen for the session, or None for the agent's own."""
    tried_models: Mapping[str, Any] = {}
    """The models of `ModelOptions.agents`, by the agents."""
    failures: CollectedFailures = field(default_factory=CollectedFailures)
    """What the user's own code raised, until it is stored."""
    _failed_servers: dict[str, ConfigError] = field(default_factory=dict[str, ConfigError])
    _sent: Counter[str] = field(default_factory=Counter[str])

    @property
    def input_event(self) -> Event:
        """The turn's input, stored together with the turn: ADK appends it again, which must not store it twice."""
        return self.input.event

    @property
    def brings_credential(self) -> bool:
        """Whether the input is a credential: the stored message does not have it, and ADK gets it from the input."""
        return self.input.answered_kind == "credential"

    @property
    def failed_servers(self) -> Mapping[str, ConfigError]:
        """The MCP servers whose tools could not be listed, and why."""
        return self._failed_servers

    def note_failed_server(self, server: str, failure: ConfigError) -> None:
        """Note that the tools of an MCP server cannot be listed: the turn runs without them."""
        self._failed_servers[server] = failure

    def number_of_message(self, sender: str) -> int:
        """Count a message that an agent sends to a remote one: the same number in each run of the turn."""
        self._sent[sender] += 1
        return self._sent[sender]

    @property
    def place(self) -> str:
        """Names the turn in the log."""
        return f"turn {self.record.lease.turn} of session {self.session.id}"

    async def store_failures(self) -> None:
        """Store what the user's own code raised since the last time, before readers hear of it."""
        if not (new := self.failures.take()):
            return
        try:
            await self.record.store.write(add_failures, self.record.lease, new)
        except StoreError as error:  # they are stored the next time
            self.failures.add(*new)
            _log.warning("%s: %d failures could not be kept yet: %s", self.place, len(new), error)

    def has_session(self, context: CallbackContext | ToolContext) -> bool:
        """Whether code runs in the session of the turn; an agent that is called as a tool has its own."""
        return context.session.id == self.session.id

    def answers_client(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent answers the request of the turn: not inside a tool, and not in parallel with others."""
        return self.has_session(context) and not context.branch

    def offers_client_tools(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent may call client tools: not inside a tool, and not in parallel with others."""
        return bool(self.input.client_tools) and self.answers_client(context)

    async def begin_model_call(self, context: CallbackContext, model: str, step: str) -> ModelCallStats:
        """Begin to call the model of an agent, unless the process stops."""
        await self.limits.step_gate.enter()
        nested = not self.has_session(context)
        if not nested:
            self.output.sink.begin_model_call(context.agent_name, context.branch or "")
        return self.output.model_calls.begin(context, model, step, nested=nested)

    def end_model_call(self, event: Event, seq: int) -> None:
        """Note that an event is stored as message `seq`: it may be the response to a model call."""
        if self.output.model_calls.take_response(event, self.session.id, seq):
            self.limits.step_gate.leave()


current_turn: ContextVar[TurnRun | None] = ContextVar("lango_turn", default=None)
"""The run of a turn that this code belongs to, or None, as in a user's own Runner."""


@contextmanager
def entered(turn: TurnRun) -> Generator[None]:
    """Let the code of the block, and the tasks that it starts, belong to a run of a turn."""
    token, lease = current_turn.set(turn), turn.record.lease
    try:
        with failures_collected(turn.failures, lease.turn):
            yield
    finally:
        current_turn.reset(token)


def turn_of_session(session_id: str) -> TurnRun | None:
    """Return the turn that this code runs in, if it runs in this session."""
    turn = current_turn.get()
    return turn if turn is not None and turn.session.id == session_id else None
