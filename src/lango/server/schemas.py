"""What goes over the wire, as OpenAPI shows it. Every example in it is run by a test."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lango.store import SessionRecord, Stored

SESSION_ID = r"^[^/\x00-\x1f\x7f]{1,200}$"
EXAMPLE_ID = "demo"


class Body(BaseModel):
    """A request: what is not known here is refused, such as an event that somebody made up."""

    model_config = ConfigDict(extra="forbid")


class NewSession(Body):
    """A session to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": EXAMPLE_ID, "state": {"city": "Bern"}}]})

    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """Without one, a random id."""
    state: dict[str, Any] = {}
    """`user:` keys belong to all sessions of the user."""

    @field_validator("state")
    @classmethod
    def _no_state_of_others(cls, state: dict[str, Any]) -> dict[str, Any]:
        if any(name.startswith("app:") for name in state):
            raise ValueError("app: state belongs to every user and is not a client's to set")
        return state


class NewMessage(Body):
    """A message of the user."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Hello!"}]})

    text: Annotated[str, Field(min_length=1)]


class NewTitle(Body):
    """What a session is to be called."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "The weather in Bern"}]})

    title: Annotated[str, Field(max_length=1000)]
    """Empty: it is called by its first words again."""


class NewFork(Body):
    """A fork to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at": 0}]})

    at: Annotated[int, Field(ge=0, le=2**62)] | None = None
    """The last message that is kept; null: all, 0: none, only the first state."""
    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """Without one, a random id."""
    title: Annotated[str, Field(max_length=1000)] | None = None
    """Without one, that of the session with a mark."""


class Rewind(Body):
    """What is to be taken back."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"before": 1}]})

    before: Annotated[int, Field(ge=1, le=2**62)]
    """A message: its turn is taken back, and all after it."""


class Answer(Body):
    """Yes or no to a tool that asked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})

    approved: bool


class Origin(BaseModel):
    """Where a fork comes from."""

    id: str
    seq: int
    """The last message that was kept."""


class Session(BaseModel):
    """A session without its messages."""

    id: str
    title: str
    """As somebody named it, or how the user began."""
    forked_from: Origin | None = None
    created_at: datetime
    updated_at: datetime
    messages: int
    tokens: int

    @classmethod
    def of(cls, record: SessionRecord) -> Self:
        """Show a record."""
        return cls(**_session(record))


class SessionWithState(Session):
    """A session with its state."""

    state: dict[str, Any] = {}

    @classmethod
    def of(cls, record: SessionRecord) -> Self:
        """Show a record; state of the whole app is nobody's to read."""
        own = {name: value for name, value in record.state.items() if not name.startswith("app:")}
        return cls(**_session(record), state=own)


def _session(record: SessionRecord) -> dict[str, Any]:
    return {
        "id": record.name.id,
        "title": record.shown_title,
        "forked_from": record.forked_from and Origin(id=record.forked_from.id, seq=record.forked_from.seq),
        "created_at": datetime.fromtimestamp(record.created_at, UTC),
        "updated_at": datetime.fromtimestamp(record.updated_at, UTC),
        "messages": record.last_seq,
        "tokens": record.total_tokens,
    }


class SessionPage(BaseModel):
    """Some sessions, the newest first."""

    sessions: list[Session]
    next_cursor: str | None = None
    """Where the next page begins; null: this is the last one."""


class Call(BaseModel):
    """A call of a tool, or its result."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None


class Message(BaseModel):
    """A message of a session."""

    seq: int
    role: Literal["system", "user", "assistant", "tool"]
    author: str
    content: str
    tool_calls: list[Call] = []
    created_at: datetime
    invocation_id: str = ""
    """Which turn it belongs to: the same as of the turn's `accepted`."""

    @classmethod
    def of(cls, stored: Stored) -> Self:
        """Show a stored message."""
        message = stored.message
        assert message
        assert message.role != "event"
        calls = [Call(id=call.id, name=call.name, input=call.input, output=call.output) for call in message.tool_calls]
        return cls(
            seq=stored.seq,
            role=message.role,
            author=message.author,
            content=message.content,
            tool_calls=calls,
            created_at=datetime.fromtimestamp(stored.created_at, UTC),
            invocation_id=stored.invocation_id,
        )


class MessagePage(BaseModel):
    """Some messages in order, the newest page first."""

    messages: list[Message]
    before: int | None = None
    """Ask for the page before with this; null: there is none."""


class Cancelled(BaseModel):
    """Whether a turn was running."""

    cancelled: bool


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str


class Error(BaseModel):
    """Every error, whatever its status."""

    error: ErrorDetail


STREAM_EXAMPLE = """\
id: 1000001
event: accepted
data: {"type":"accepted","id":1000001,"turn":1,"waiting":false,"invocation_id":"e-5c2f"}

id: 1000004
event: text_delta
data: {"type":"text_delta","id":1000004,"text":"Hello! How can I help?","author":"lango"}

id: 1000005
event: done
data: {"type":"done","id":1000005,"turn":1,"status":"done","usage":{"output_tokens":7},"finish_reason":"stop"}

"""
