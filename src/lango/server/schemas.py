"""What goes over the wire, as OpenAPI shows it. Every example in it is run by a test."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from fastapi import Header
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from lango import messages
from lango.adk.services.message_parts import stored_attachments, stored_thoughts
from lango.messages import ToolCall
from lango.store import SessionRecord, StoredEvent
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import to_client_json
from lango.store.codec.records import as_datetime
from lango.store.codec.rows import client_call_ids
from lango.store.turns.tool_journal import JournalByCall, JournalEntry

SESSION_ID = r"^[^/\x00-\x1f\x7f]{1,200}$"
EXAMPLE_ID = "demo"

IdempotencyKeyText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]
IdempotencyKey = Annotated[IdempotencyKeyText | None, Header(alias="Idempotency-Key")]


class RequestBody(BaseModel):
    """A request: what is not known here is refused, such as an event that somebody made up."""

    model_config = ConfigDict(extra="forbid")


class RecordView(BaseModel):
    """A part of an answer that is shown as it was read; times are seconds there."""

    model_config = ConfigDict(from_attributes=True)


class NewSession(RequestBody):
    """A session to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": EXAMPLE_ID, "state": {"city": "Bern"}}]})

    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """Without one, a random id."""
    state: dict[str, Any] = {}
    """`user:` keys belong to all sessions of the user."""

    @field_validator("state")
    @classmethod
    def _refuse_app_state(cls, state: dict[str, Any]) -> dict[str, Any]:
        if any(name.startswith("app:") for name in state):
            raise ValueError("app: state belongs to every user and is not a client's to set")
        return state


def _decode_base64(text: object) -> object:
    if not isinstance(text, str):
        raise ValueError("send the bytes in base64")  # noqa: TRY004 - pydantic tells of ValueErrors
    try:
        return msgspec.convert(text, bytes)  # base64, at a third of what the standard library takes
    except msgspec.ValidationError as error:
        raise ValueError("this is not base64") from error


class NewAttachment(RequestBody):
    """A file that comes with a message."""

    name: Annotated[str, Field(pattern=f"^{messages.FILE_NAME.pattern}$")]
    mime_type: Annotated[str, Field(pattern=f"^{messages.MIME_TYPE.pattern}$")]
    data: Annotated[
        bytes,
        BeforeValidator(_decode_base64),
        WithJsonSchema({"type": "string", "contentEncoding": "base64", "minLength": 1}),
    ]
    """Its bytes in base64."""

    @property
    def file(self) -> messages.Attachment:
        """The file."""
        return messages.Attachment(self.name, self.mime_type.lower(), self.data)


class NewMessage(RequestBody):
    """A message of the user."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Hello!"}]})

    text: Annotated[str, Field(max_length=2**31)] = ""  # a bounded text is one that UTF-8 can say
    """May be empty where files come along."""
    attachments: list[NewAttachment] = []

    @model_validator(mode="after")
    def _require_text_or_file(self) -> Self:
        if not (self.text or self.attachments):
            raise ValueError("a message needs a text of at least 1 character, or a file")
        return self

    @property
    def files(self) -> list[messages.Attachment]:
        """The files that come along."""
        return [file.file for file in self.attachments]


class NewTitle(RequestBody):
    """What a session is to be called."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "The weather in Bern"}]})

    title: Annotated[str, Field(max_length=1000)]
    """Empty: it is called by its first words again."""


class NewFork(RequestBody):
    """A fork to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at": 0}]})

    at: Annotated[int, Field(ge=0, le=2**62)] | None = None
    """The last message that is kept; null: all, 0: none, only the first state."""
    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """Without one, a random id."""
    title: Annotated[str, Field(max_length=1000)] | None = None
    """Without one, that of the session with a mark."""


class RewindTo(RequestBody):
    """What is to be taken back."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"before": 1}]})

    before: Annotated[int, Field(ge=1, le=2**62)]
    """A message: its turn is taken back, and all after it."""


class ApprovalAnswer(RequestBody):
    """Yes or no to a tool that asked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})

    approved: bool


class ForkOrigin(BaseModel):
    """Where a fork comes from."""

    id: str
    seq: int
    """The last message that was kept."""


class Session(BaseModel):
    """A session without its messages."""

    id: str
    title: str
    """As somebody named it, or how the user began."""
    forked_from: ForkOrigin | None = None
    created_at: datetime
    updated_at: datetime
    messages: int
    tokens: int

    @classmethod
    def from_record(cls, record: SessionRecord) -> Self:
        """Show a record."""
        return cls(**_session_fields(record))


class SessionWithState(Session):
    """A session with its state."""

    state: dict[str, Any] = {}

    @classmethod
    def from_record(cls, record: SessionRecord) -> Self:
        """Show a record; state of the whole app is nobody's to read."""
        own = {name: value for name, value in record.state.items() if not name.startswith("app:")}
        return cls(**_session_fields(record), state=to_client_json(own))


def _session_fields(record: SessionRecord) -> dict[str, Any]:
    return {
        "id": record.name.id,
        "title": record.display_title,
        "forked_from": record.forked_from and ForkOrigin(id=record.forked_from.id, seq=record.forked_from.seq),
        "created_at": as_datetime(record.created_at),
        "updated_at": as_datetime(record.updated_at),
        "messages": record.last_seq,
        "tokens": record.total_tokens,
    }


class SessionPage(BaseModel):
    """Some sessions, the newest first."""

    sessions: list[Session]
    next_cursor: str | None = None
    """Where the next page begins; null: this is the last one."""


class ToolCallView(BaseModel):
    """A call of a tool, or its result."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    duration_s: float | None = None
    """How long the tool ran; null: it did not, or runs still."""
    approved: bool | None = None
    """Whether it was allowed to run; null: nobody had to be asked."""
    approved_by: str | None = None
    """The user who said so, or `policy`."""
    for_client: bool = False
    """It is the client's to run: nothing runs here until a run brings its result."""

    @classmethod
    def from_call(cls, call: ToolCall, journal: JournalEntry | None, *, for_client: bool) -> Self:
        """Show a call with what the journal says of it."""
        view = cls(id=to_client_json(call.id), name=to_client_json(call.name), for_client=for_client)
        view.input, view.output = to_client_json(call.input), to_client_json(call.output)
        if journal is not None:
            view.duration_s = journal.duration_s
            view.approved, view.approved_by = journal.approved, journal.approved_by
        return view


class Attachment(BaseModel):
    """A file of a message; its bytes are at `.../messages/{seq}/attachments/{index}`."""

    index: int
    name: str
    mime_type: str
    bytes: int


class Message(BaseModel):
    """A message of a session."""

    seq: int
    role: Literal["system", "user", "assistant", "tool"]
    author: str
    content: str
    tool_calls: list[ToolCallView] = []
    attachments: list[Attachment] = []
    created_at: datetime
    thoughts: str = ""
    """What the model thought before it spoke, where its provider tells."""
    invocation_id: str = ""
    """Which turn it belongs to: the same as of the turn's `accepted`."""

    @classmethod
    def from_stored(cls, stored: StoredEvent, journal: JournalByCall) -> Self:
        """Show a stored message; `journal` is what is known of its calls."""
        message = stored.message
        assert message
        assert message.role != "event"
        clients = client_call_ids(stored)
        calls = [
            ToolCallView.from_call(call, journal.get((stored.seq, call_key(call.id))), for_client=call.id in clients)
            for call in message.tool_calls
        ]
        return cls(
            seq=stored.seq,
            role=message.role,
            author=message.author,
            content=message.content,
            tool_calls=calls,
            attachments=attachments_of(stored),
            created_at=as_datetime(stored.created_at),
            thoughts=stored_thoughts(stored),
            invocation_id=stored.invocation_id,
        )


def attachments_of(stored: StoredEvent) -> list[Attachment]:
    """Show the files of a stored message, without their bytes."""
    return [
        Attachment(index=index, name=file.name, mime_type=file.mime_type, bytes=len(file.data))
        for index, file in enumerate(stored_attachments(stored))
    ]


class MessagePage(BaseModel):
    """Some messages in order, the newest page first."""

    messages: list[Message]
    before: int | None = None
    """Ask for the page before with this; null: there is none."""


class ApprovalRequest(RecordView):
    """A tool that waits for a yes or a no to exactly these arguments."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: datetime
    expires_at: datetime | None
    """From then on it is a no; null: it waits as long as it takes."""


class ApprovalRequests(BaseModel):
    """The questions of a session that an answer is still taken for."""

    approvals: list[ApprovalRequest]


class SearchHit(RecordView):
    """A message that was found, or a title."""

    session_id: str
    title: str
    """What the session is called."""
    seq: int
    """0: it is the title itself."""
    role: Literal["user", "assistant", "title"]
    created_at: datetime
    text: str
    """A piece of the message around the first word that was found, as plain text."""
    marks: list[tuple[int, int]]
    """Where in `text` the words stand: from and to, counted in Unicode code points."""


class SearchHits(BaseModel):
    """What was found, the best first."""

    hits: list[SearchHit]


class CancelResult(BaseModel):
    """Whether a turn was running."""

    cancelled: bool


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str


class ErrorBody(BaseModel):
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

EXPORT_EXAMPLE = """\
{"kind":"header","format":"lango-session","version":1}
{"kind":"session","app":"lango","user":"user","id":"imported","title":"A greeting","created_at":1760000000.0,\
"updated_at":1760000001.5,"revision":2,"epoch":0}
{"kind":"message","seq":1,"role":"user","author":"user","content":"Hello!","tokens":5,"created_at":1760000000.5,\
"event_id":"first"}
{"kind":"message","seq":2,"role":"assistant","author":"lango","content":"Hello! How can I help?","tokens":9,\
"created_at":1760000001.5,"event_id":"second"}
{"kind":"end","lines":4}
"""
