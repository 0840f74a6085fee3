"""Define the parameters, request bodies and responses that routes share. A test runs every example."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from fastapi import Header, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from lango import messages
from lango.events import NodeProgress
from lango.json_values import convert, to_client_json
from lango.messages import ToolCall
from lango.runtime.sessions.session_messages import MessageDetails
from lango.sessions import (
    MAX_TITLE,
    SessionInfo,
    StoredEvent,
    WhenBusy,
    as_datetime,
    is_reserved_name,
    is_steering,
    without_app_state,
)

SESSION_ID = r"^[^/\x00-\x1f\x7f]{1,200}$"
EXAMPLE_ID = "demo"
MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""

AllAgents = Annotated[bool, Query(description="Of all agents of the server, not of one.")]
SessionIdPath = Annotated[str, Path(pattern=SESSION_ID, examples=[EXAMPLE_ID])]

IdempotencyKeyText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]
IdempotencyKey = Annotated[IdempotencyKeyText | None, Header(alias="Idempotency-Key")]


class RequestBody(BaseModel):
    """A request body; unknown fields are refused, and values of another type: `true` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _to_integer(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER = BeforeValidator(_to_integer)
"""Marks an integer of a body: 2.0 is one in JSON, `true` is not."""


def refuse_app_state(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a client's state; raise `ValueError` for `app:` keys, which only the agent may set."""
    if any(name.startswith("app:") for name in state or {}):
        raise ValueError("clients cannot set app: state, which all users share")
    return state


class NewSession(RequestBody):
    """A session to create."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": EXAMPLE_ID, "state": {"city": "Bern"}}]})

    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """A random id by default."""
    state: dict[str, Any] = {}
    """`user:` keys belong to all sessions of the user."""

    _check_state = field_validator("state")(refuse_app_state)


_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _decode_base64(text: object) -> object:
    if not isinstance(text, str):
        raise ValueError("send the bytes in base64")  # noqa: TRY004 - pydantic reports ValueErrors
    try:
        return convert(text, bytes)  # decodes base64 three times as fast as the standard library
    except msgspec.ValidationError as error:
        raise ValueError("this is not base64") from error


class NewAttachment(RequestBody):
    """A file of a new message."""

    name: Annotated[str, Field(pattern=f"^{messages.FILE_NAME.pattern}$")]
    mime_type: Annotated[str, Field(pattern=f"^{messages.MIME_TYPE.pattern}$")]
    data: Annotated[
        bytes,
        BeforeValidator(_decode_base64),
        WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": _BASE64, "minLength": 4}),
    ]
    """Its bytes in base64."""

    @property
    def file(self) -> messages.Attachment:
        """The file."""
        return messages.Attachment(self.name, self.mime_type.lower(), self.data)


class NewArtifactAttachment(RequestBody):
    """An artifact as a file of a new message."""

    artifact: Annotated[str, Field(min_length=1, max_length=2000)]
    """Its name, or its address `artifact://...`; only artifacts of the session and of the user are accepted."""
    version: Annotated[int, Field(ge=0, le=MAX_INTEGER), WHOLE_NUMBER] | None = None
    """Its newest version by default."""

    @property
    def file(self) -> messages.ArtifactFile:
        """The artifact, to be loaded."""
        return messages.ArtifactFile(self.artifact, self.version)


class NewMessage(RequestBody):
    """A message of the user."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "Hello!"}],
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"minLength": 1}}},
                {"required": ["attachments"], "properties": {"attachments": {"minItems": 1}}},
            ],
        }
    )

    text: Annotated[str, Field(max_length=2**31)] = ""  # with a bound, pydantic refuses lone surrogates
    """May be empty if there are attachments."""
    attachments: list[NewAttachment | NewArtifactAttachment] = []
    when_busy: WhenBusy | None = None
    """How the message is handled while a turn of the session runs; by default the setting `agent.when_busy` says it."""

    @model_validator(mode="after")
    def _require_text_or_file(self) -> Self:
        if not (self.text or self.attachments):
            raise ValueError("a message needs a text of at least 1 character, or a file")
        return self

    @property
    def files(self) -> list[messages.Attachment | messages.ArtifactFile]:
        """The attached files; artifacts among them are to be loaded."""
        return [file.file for file in self.attachments]


class NewTitle(RequestBody):
    """A new title of a session."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"title": "The weather in Bern"}]})

    title: Annotated[str, Field(max_length=MAX_TITLE)]
    """Empty: the title is the start of the first message again."""


class NewFork(RequestBody):
    """A fork to create."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at": 0}]})

    at: Annotated[int, Field(ge=0, le=MAX_INTEGER), WHOLE_NUMBER] | None = None
    """The last message to copy; null copies all, 0 none, only the initial state."""
    id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """A random id by default."""
    title: Annotated[str, Field(max_length=MAX_TITLE)] | None = None
    """By default that of the session, marked as a fork."""


class RewindTo(RequestBody):
    """The target of a rewind."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"before": 1}]})

    before: Annotated[int, Field(ge=1, le=MAX_INTEGER), WHOLE_NUMBER]
    """A message: its turn and all later ones are rewound."""


class ForkOrigin(BaseModel):
    """The origin of a fork."""

    id: str
    seq: int
    """The last message that was copied."""


class Session(BaseModel):
    """A session without its messages."""

    id: str
    agent: str
    """The agent that it belongs to."""
    title: str
    """The title that was set, or the start of the first message."""
    forked_from: ForkOrigin | None = None
    created_at: datetime
    updated_at: datetime
    messages: int
    tokens: int

    @classmethod
    def from_record(cls, record: SessionInfo) -> Self:
        """Convert a record."""
        return cls(**_session_fields(record))


class SessionWithState(Session):
    """A session with its state."""

    state: dict[str, Any] = {}

    @classmethod
    def from_record(cls, record: SessionInfo) -> Self:
        """Convert a record."""
        return cls(**_session_fields(record), state=client_state(record))


def client_state(record: SessionInfo) -> dict[str, Any]:
    """Return the state of a session without that of the app, and without what is ADK's own: no client may set it."""
    shown = {name: value for name, value in without_app_state(record.state).items() if not is_reserved_name(name)}
    return to_client_json(shown)


def _session_fields(record: SessionInfo) -> dict[str, Any]:
    return {
        "id": record.name.id,
        "agent": record.name.app_name,
        "title": record.display_title,
        "forked_from": record.forked_from and ForkOrigin(id=record.forked_from.id, seq=record.forked_from.seq),
        "created_at": as_datetime(record.created_at),
        "updated_at": as_datetime(record.updated_at),
        "messages": record.last_seq,
        "tokens": record.total_tokens,
    }


class SessionPage(BaseModel):
    """A page of sessions, the newest first."""

    sessions: list[Session]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; null on the last page."""


class ToolCallView(BaseModel):
    """A tool call, or its result."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    duration_s: float | None = None
    """How long the tool ran; null if it did not run, or has not ended."""
    approved: bool | None = None
    """Whether it was approved; null if it needed no approval."""
    approved_by: str | None = None
    """The user who decided, or `policy`."""
    grant_id: int | None = None
    """The grant that approved it; null if the user decided about this call, or the settings did."""
    for_client: bool = False
    """It is a call of a client's tool: the turn waits until the client sends the result."""

    @classmethod
    def from_call(cls, call: ToolCall, details: MessageDetails) -> Self:
        """Convert a call of a message."""
        view = cls(id=to_client_json(details.shown_id(call)), name=to_client_json(call.name))
        view.for_client = call.id in details.stored.client_call_ids
        view.input, view.output = to_client_json(call.input), to_client_json(call.output)
        if (journal := details.journal.get(call.id)) is not None:
            view.duration_s = journal.duration_s
            view.approved, view.approved_by = journal.approved, journal.approved_by
            view.grant_id = journal.grant_id
        return view


class Attachment(BaseModel):
    """A file of a message; its bytes are at `.../messages/{seq}/attachments/{index}`."""

    index: int
    name: str
    mime_type: str
    bytes: int


class NodeView(BaseModel):
    """The progress of a workflow's node in a turn."""

    name: str
    path: str
    """The names of the nodes from the workflow down to this one, each with the number of its run."""
    status: Literal["started", "ended", "failed", "waiting"]
    attempt: int
    output: Any = None
    """What the node put out at its end; a long output is clipped to a text."""
    error: str = ""

    @classmethod
    def from_event(cls, event: NodeProgress) -> Self:
        """Convert the progress of a node."""
        view = cls(name=event.name, path=event.path, status=event.status, attempt=event.attempt, error=event.error)
        view.output = to_client_json(event.output)
        return view


class SavedArtifact(BaseModel):
    """A version of an artifact that a turn saved; its file is at `.../artifacts/{name}/{version}`."""

    name: str
    version: int


class ErrorDetail(BaseModel):
    """The type and message of an error."""

    type: str
    message: str


class Message(BaseModel):
    """A message of a session."""

    seq: int
    role: Literal["system", "user", "assistant", "tool"]
    """system: a note of Lango to the model, as after a transfer to an agent that does not exist."""
    author: str
    content: str
    tool_calls: list[ToolCallView] = []
    attachments: list[Attachment] = []
    created_at: datetime
    thoughts: str = ""
    """The model's thoughts, if its provider returns them."""
    invocation_id: str = ""
    """Identifies its turn: the same as in the turn's `accepted` event."""
    is_steering: bool = False
    """Whether it came while its turn ran, and was taken into it."""
    text_place: list[int] | None = None
    """Of a text that grew beside another agent's: the `seq` after which it began, and its block. Messages are numbered
    as their texts ended."""
    nodes: list[NodeView] = []
    """Of the message that starts a turn: the nodes of the workflow that ran in it, in the order of their starts."""
    artifacts: list[SavedArtifact] = []
    """What was saved with it, or before the next message."""
    error: ErrorDetail | None = None
    """Of the message that starts a turn: why the turn ended without an answer, if it did."""

    @classmethod
    def from_details(cls, details: MessageDetails) -> Self:
        """Convert a stored message."""
        stored, failed = details.stored, details.error
        message = stored.message
        assert message
        assert message.role != "event"
        return cls(
            seq=stored.seq,
            role="system" if stored.is_note else message.role,
            author=message.author,
            content=message.content,
            tool_calls=[ToolCallView.from_call(call, details) for call in message.tool_calls],
            attachments=attachments_of(stored),
            created_at=as_datetime(stored.created_at),
            thoughts=stored.thoughts,
            invocation_id=stored.invocation_id,
            is_steering=is_steering(stored.extra),
            text_place=stored.text_place,
            nodes=[NodeView.from_event(event) for event in details.nodes],
            artifacts=[SavedArtifact(name=name, version=version) for name, version in details.artifacts],
            error=failed and ErrorDetail(type=failed.error, message=to_client_json(failed.message)),
        )


def attachments_of(stored: StoredEvent) -> list[Attachment]:
    """Describe the files of a stored message, without their bytes."""
    return [
        Attachment(index=index, name=file.name, mime_type=file.mime_type, bytes=messages.byte_size(file.data))
        for index, file in enumerate(stored.attachments)
    ]


class MessagePage(BaseModel):
    """A page of messages in order; the first page has the newest."""

    messages: list[Message]
    before: int | None = None
    """Pass it as `before` for the previous page; null if there is none."""


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


Responses = dict[int | str, dict[str, Any]]
"""Descriptions of responses by status, for the OpenAPI document."""


def error_responses(descriptions: Mapping[int, str], body: type[BaseModel] = ErrorBody) -> Responses:
    """Describe error responses by status. Their body is named only: FastAPI would build a validator for each."""
    reference = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {
        status: {"description": text, "content": {"application/json": {"schema": reference}}}
        for status, text in descriptions.items()
    }


COMMON_ERROR_DESCRIPTIONS = {
    400: "The request is invalid; the message says why.",
    401: "A valid key is missing.",
    404: "There is no such session.",
    429: "The key's limit is reached; see Retry-After.",
    503: "Temporarily unavailable; see Retry-After.",
}
COMMON_ERRORS = error_responses(COMMON_ERROR_DESCRIPTIONS)
CONFLICT = error_responses({409: "It conflicts with another change."})
