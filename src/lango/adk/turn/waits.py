"""Collect what a turn waits for when its run ends."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event
from msgspec import Struct, field

from lango.waits import Wait

WaitKind = Literal["approval", "input", "credential", "client_result", "long_running_result"]


class MissingRequest(Struct, frozen=True):
    """A credential request that a tool needs, and that ADK did not make."""

    call_id: str
    """The tool's call."""
    config: AuthConfig
    event: Event
    """The tool's result."""


class Waits(Struct, eq=False):
    """What a turn waits for: the agent continues with the answers."""

    kinds: set[WaitKind] = field(default_factory=set[WaitKind])
    """Of which kinds something is awaited."""
    has_others: bool = False
    """Something else is awaited besides what the input of this turn answers."""
    open: Mapping[str, Wait] = {}
    """The stored open waits of the session, by their ids."""
    client_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls that wait for the client after the turn."""
    node_calls: set[str] = field(default_factory=set[str])
    """The long-running calls in a workflow's nodes; see `lango.adk.run.pauses.unanswered_calls`."""
    confirmed_by_adk: set[str] = field(default_factory=set[str])
    """Calls that have not started: ADK asks for their confirmation."""
    missing_requests: list[MissingRequest] = field(default_factory=list[MissingRequest])
    """The credentials that tools asked for, and ADK did not request; see `lango.adk.run.pauses.unanswered_calls`."""
    _requested_for: set[str] = field(default_factory=set[str])
    _requested_keys: set[str] = field(default_factory=set[str])
    _questions: Counter[str] = field(default_factory=Counter[str])

    def note_others(self) -> None:
        """Note whether something is awaited besides the answer that starts this turn, before its agent runs."""
        self.has_others = bool(self.kinds)

    def note_open(self, waits: Sequence[Wait]) -> None:
        """Note the open waits of the session, as they are stored."""
        self.open = {wait.id: wait for wait in waits}

    def note_credential_request(self, call_id: str, key: str) -> None:
        """Note that ADK requested a credential for a tool's call; it requests one of each key."""
        self._requested_for.add(call_id)
        self._requested_keys.add(key)

    def note_wanted_credential(self, call_id: str, config: AuthConfig, event: Event) -> None:
        """Note that a tool asked for a credential: unless ADK requested it, the run does at its end."""
        if call_id not in self._requested_for and (config.credential_key or "") not in self._requested_keys:
            self.missing_requests.append(MissingRequest(call_id, config, event))
            self._requested_for.add(call_id)

    def next_question(self, call_id: str) -> int:
        """Count the questions of a running call; return the number of the next."""
        self._questions[call_id] += 1
        return self._questions[call_id]
