"""Collect what a turn waits for when its run ends."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event, EventActions
from msgspec import Struct, field

from lango.waits import CredentialWait, EventWait, InputWait, TimerWait, Wait


class MissingRequest(Struct, frozen=True):
    """A credential request that a tool needs, and that ADK did not make."""

    call_id: str
    """The tool's call."""
    config: AuthConfig
    event: Event
    """The tool's result."""


class Waits(Struct, eq=False):
    """What a turn waits for: the agent continues with the answers."""

    kinds: frozenset[str] = frozenset()
    """Of which kinds something is awaited."""
    has_others: bool = False
    """Something is awaited that the input of this turn does not answer."""
    open: Mapping[str, Wait] = {}
    """The stored open waits of the session, by their ids."""
    client_calls: frozenset[str] = frozenset()
    """Ids of the calls that wait for the client after the turn."""
    node_calls: frozenset[str] = frozenset()
    """The long-running calls in a workflow's nodes; see `lango.adk.run.pauses.unanswered_calls`."""
    confirmed_by_adk: frozenset[str] = frozenset()
    """Calls that have not started: ADK asks for their confirmation."""
    missing_requests: Sequence[MissingRequest] = ()
    """The credentials that tools asked for, and ADK did not request; see `lango.adk.run.pauses.unanswered_calls`."""
    _requested_for: set[str] = field(default_factory=set[str])
    _requested_keys: set[str] = field(default_factory=set[str])
    _results: dict[str, list[EventActions]] = field(default_factory=dict[str, list[EventActions]])
    """The actions of the results of each agent's newest model response."""
    _pausing: set[str] = field(default_factory=set[str])
    """The agents of whose newest model response a call waits."""
    _questions: Counter[str] = field(default_factory=Counter[str])

    def note_others(self, kinds: Iterable[str]) -> None:
        """Note what else is awaited than the answer that starts this turn, before its agent runs."""
        self.kinds |= frozenset(kinds)
        self.has_others = bool(self.kinds)

    def note_kind(self, kind: str) -> None:
        """Note that something of a kind is awaited."""
        self.kinds |= {kind}

    def note_open(self, waits: Sequence[Wait]) -> None:
        """Note the open waits of the session, as they are stored."""
        self.open = {wait.id: wait for wait in waits}

    def note_open_requests(self) -> None:
        """Note that what the nodes of a workflow wait for is awaited: inputs, credentials, times and events."""
        for wait in self.open.values():
            if isinstance(wait, InputWait | CredentialWait) or (isinstance(wait, TimerWait | EventWait) and wait.path):
                self.kinds |= {wait.kind}

    def note_client_calls(self, call_ids: Iterable[str]) -> None:
        """Note calls that wait for the client after the turn."""
        self.client_calls |= frozenset(call_ids)

    def note_node_call(self, call_id: str) -> None:
        """Note a long-running call of a workflow's node."""
        self.node_calls |= {call_id}

    def note_confirmed_by_adk(self, call_id: str) -> None:
        """Note that ADK asks for the confirmation of a call."""
        self.confirmed_by_adk |= {call_id}

    def note_credential_request(self, call_id: str, key: str) -> None:
        """Note that ADK requested a credential for a tool's call; it requests one of each key."""
        self._requested_for.add(call_id)
        self._requested_keys.add(key)

    def note_wanted_credential(self, call_id: str, config: AuthConfig, event: Event) -> None:
        """Note that a tool asked for a credential: unless ADK requested it, the run does at its end."""
        if call_id not in self._requested_for and (config.credential_key or "") not in self._requested_keys:
            self.missing_requests = (*self.missing_requests, MissingRequest(call_id, config, event))
            self._requested_for.add(call_id)

    def take_missing_requests(self) -> Sequence[MissingRequest]:
        """Return the credentials that the run has to request, once."""
        missing, self.missing_requests = self.missing_requests, ()
        return missing

    def begin_response(self, agent: str) -> None:
        """Note that a model of an agent, named with its branch, is called."""
        self._results.pop(agent, None)
        self._pausing.discard(agent)

    def note_result(self, agent: str, actions: EventActions) -> None:
        """Note the result of a call: the agent does not continue with it while another call of the response waits."""
        self._results.setdefault(agent, []).append(actions)
        if agent in self._pausing:
            actions.skip_summarization = True

    def note_pause(self, agent: str, kind: str) -> None:
        """Note that a call of an agent waits, and that the agent does not continue with the other results."""
        self.note_kind(kind)
        self._pausing.add(agent)
        for actions in self._results.get(agent, ()):
            actions.skip_summarization = True

    def next_question(self, call_id: str) -> int:
        """Count the questions of a running call; return the number of the next."""
        self._questions[call_id] += 1
        return self._questions[call_id]
