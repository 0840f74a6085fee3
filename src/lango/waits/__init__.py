"""What a turn needs from outside before it can continue, and the answers to it: two closed unions of plain values.

A turn that needs something from a person, a client or another system opens a wait, and its stream ends with the list of
open waits; only a question of a running tool leaves the turn running. An answer is accepted once, and in time. A new
kind of wait is a class in `Wait`, and a row in `ANSWERS` that lists the answers which fit it.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from lango.errors import InvalidAnswer
from lango.waits.grants import NewGrant


class WaitBase(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What waits of every kind have."""

    id: str
    """Identifies the wait within its session; safe in a URL."""
    session_id: str
    turn: int | None
    """The turn that opened it, or None if that is a turn of the session that this one was forked from."""
    opened_at: datetime
    expires_at: datetime | None = None
    """An answer is accepted until then, or at any time if None."""

    @property
    def kind(self) -> str:
        """The kind of wait, as JSON names it."""
        return str(type(self).__struct_config__.tag)


class ApprovalWait(WaitBase, frozen=True, kw_only=True, tag="approval"):
    """A tool call that runs with exactly these arguments once a person approves it."""

    tool: str
    call_id: str
    """The call to approve."""
    arguments: Mapping[str, Any] = {}
    hint: str = ""
    """What the tool itself says about its request."""
    payload: Any = None
    """What else the tool shows; it gets it back with the answer, unless that has its own payload."""


class InputWait(WaitBase, frozen=True, kw_only=True, tag="input"):
    """A workflow that needs a value from a person."""

    message: str = ""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the value, or None if any value fits."""
    payload: Any = None
    """What the workflow shows in addition to the message."""
    author: str = ""
    path: str = ""
    """The node that asks."""


class CredentialWait(WaitBase, frozen=True, kw_only=True, tag="credential"):
    """A tool that needs a credential of the user. It shows no secret."""

    scheme_type: str = ""
    """`oauth2`, `openIdConnect`, `apiKey` or `http`."""
    scheme: str = ""
    """Of the type `http`: `basic` asks for a name and a password, `bearer` for a token."""
    auth_url: str = ""
    """The address where the user allows the access; empty: the user gives a key, or a name and a password."""
    scopes: tuple[str, ...] = ()
    """What the access is for, in the words of the server that grants it."""
    message: str = ""
    author: str = ""
    path: str = ""
    """The node of a workflow that asks."""


class ClientResultWait(WaitBase, frozen=True, kw_only=True, tag="client_result"):
    """A call of a tool that the client runs itself."""

    tool: str
    call_id: str
    arguments: Mapping[str, Any] = {}


class LongRunningWait(WaitBase, frozen=True, kw_only=True, tag="long_running_result"):
    """A call of a long-running tool whose result, or whose next result, is still to come."""

    tool: str
    call_id: str
    arguments: Mapping[str, Any] = {}


class TimerWait(WaitBase, frozen=True, kw_only=True, tag="timer"):
    """A call of a tool or a node that continues at `expires_at`, or when a person wakes it."""

    tool: str
    """The tool, or the name of the call by which a node of a workflow sleeps."""
    call_id: str
    arguments: Mapping[str, Any] = {}
    reason: str = ""
    """What it waits for, in words for people."""
    path: str = ""
    """The node of a workflow that sleeps."""


class EventWait(WaitBase, frozen=True, kw_only=True, tag="event"):
    """A call of a tool or a node that continues with an event of another system, or at `expires_at` without it."""

    event: str
    """The name of the event."""
    tool: str
    call_id: str
    match: Mapping[str, Any] = {}
    """What the data of the event must have: values by dotted paths."""
    arguments: Mapping[str, Any] = {}
    reason: str = ""
    path: str = ""
    """The node of a workflow that waits."""


class QuestionWait(WaitBase, frozen=True, kw_only=True, tag="tool_question"):
    """A question that a tool asks while it runs: the same turn continues with the answer."""

    message: str = ""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the value, or None if any value fits."""
    payload: Any = None
    call_id: str = ""
    """The tool call that asks."""


Wait = (
    ApprovalWait
    | InputWait
    | CredentialWait
    | ClientResultWait
    | LongRunningWait
    | TimerWait
    | EventWait
    | QuestionWait
)

ToolResultWait = LongRunningWait | TimerWait | EventWait
"""The waits for the result of a call that the agent itself made: a new message of the user does not close them."""


Outcome = Literal["answered", "refused", "expired", "superseded", "cancelled"]
"""Why a wait is no longer open: an answer, its time (of a running tool's question), a new message, a stopped turn."""


class ClosedWait(Struct, frozen=True):
    """A wait that the start of a turn closed."""

    wait: Wait
    outcome: Outcome
    answered_by: str = ""
    """The user who answered; empty: there was no answer."""


class InboxItem(Struct, frozen=True):
    """A wait in the inbox of a user, with what identifies its session to a person."""

    wait: Wait
    title: str
    """The title of the session."""
    place: tuple[float, int, str]
    """Its position in the inbox, from which the next page continues."""

    @property
    def id(self) -> str:
        """A short name of the item, for people."""
        _, session_key, wait_id = self.place
        return hashlib.sha256(f"{session_key}/{wait_id}".encode()).hexdigest()[:10]


class AnswerBase(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """What answers of every type have."""


class Approve(AnswerBase, frozen=True, tag="approve"):
    """Run the tool call."""

    grant: NewGrant | None = None
    """Later calls of the tool in this session that fit it run without asking."""
    payload: Any = None
    """What a tool that asked by its own code gets, or None for the payload that it asked with."""


REFUSAL_REASON = "reason"
"""The member of a refusal's payload, as ADK keeps it, that says why: the model reads it."""
MAX_REASON_CHARACTERS = 4_000


class Refuse(AnswerBase, frozen=True, tag="refuse"):
    """Do not run the tool call."""

    reason: str = ""
    """The model reads it as the result of the call."""
    payload: Any = None
    """What a tool that asked by its own code gets, or None for the payload that it asked with."""


class Value(AnswerBase, frozen=True, tag="value"):
    """A person's value."""

    value: Any
    """A text is read as JSON where the schema of the wait does not accept a text."""


class Decline(AnswerBase, frozen=True, tag="decline"):
    """The person gives no answer to the question of a running tool."""


class Credential(AnswerBase, frozen=True, tag="credential"):
    """A credential of the user."""

    value: Any
    """The address that the user was sent to after allowing the access, a key, a name and password, or ADK's JSON."""


class Result(AnswerBase, frozen=True, tag="result"):
    """A result of a tool that ran outside."""

    result: Mapping[str, Any]
    will_continue: bool | None = False
    """It is an update of a long-running tool, and more results follow, or may follow if it is None."""


class Wake(AnswerBase, frozen=True, tag="wake"):
    """Continue now, before the time has come."""


Answer = Approve | Refuse | Value | Decline | Credential | Result | Wake

ANSWERS: dict[type[Wait], tuple[type[Answer], ...]] = {
    ApprovalWait: (Approve, Refuse),
    InputWait: (Value,),
    CredentialWait: (Credential,),
    ClientResultWait: (Result,),
    LongRunningWait: (Result,),
    TimerWait: (Wake,),
    EventWait: (Result,),
    QuestionWait: (Value, Decline),
}
"""Which answers fit each kind of wait."""


def check_answer(wait: Wait, answer: Answer) -> None:
    """Raise `InvalidAnswer` if an answer is not of a type that fits the wait."""
    fitting = ANSWERS[type(wait)]
    if not isinstance(answer, fitting):
        names = " or ".join(_tag(kind) for kind in fitting)
        raise InvalidAnswer(
            f"a wait of kind {_tag(type(wait))} is answered with {names}, not with {_tag(type(answer))}"
        )


def _tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)
