"""Define the lines of an exported session: JSON, one object per line.

The first line names the format and its version, the second is the session; the contents of its files follow in pieces,
then its events in order, the ended turns, the tool journal, the observations, the artifacts, and a last line with the
number of lines. Every line has a `kind`; a later
version may add kinds, and an import refuses a file with an unknown kind.
`docs/reference/store.md` describes each.

JSON columns are members of the line; a text that our encoder would write differently is in `raw`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lango.json_output import printable_text
from lango.sessions import EARLIEST_TIME, LATEST_TIME
from lango.store.codec.ids import expand
from lango.store.codec.json_text import dumps_untagged, loads_untagged
from lango.store.codec.rows import calls_from_json
from lango.store.contents import CHUNK_BYTES
from lango.store.engine.database import Row

FORMAT = "lango-session"
VERSION = 1
_MAX_NUMBER = 2**40
"""The largest turn, message, revision or epoch: later ones still fit into the columns."""
_MAX_COUNT = 2**40
_SHORT_IDS = ("event_id", "invocation_id")


def _storable(text: str) -> str:
    if printable_text(text) != text:
        raise ValueError("contains NUL or a lone surrogate")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Id = Annotated[Text, Field(max_length=512)]
Note = Annotated[Text, Field(max_length=4_000)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Number = Annotated[int, Field(ge=1, le=_MAX_NUMBER)]
Time = Annotated[float, Field(ge=EARLIEST_TIME, le=LATEST_TIME, allow_inf_nan=False)]
Cost = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Object = dict[str, Any]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    json_columns: ClassVar[tuple[str, ...]] = ()
    raw: dict[str, Text] = {}
    """The texts of JSON columns that our encoder would write differently."""

    @model_validator(mode="after")
    def _raw_is_json(self) -> "_Line":
        for name, text in self.raw.items():
            if name not in self.json_columns:
                raise ValueError(f"raw: {name} is not a JSON column")
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"raw: {name} is not JSON") from error
        return self

    def column(self, name: str) -> str | None:
        """Return the text of a column that holds JSON."""
        if name in self.raw:
            return self.raw[name]
        value = getattr(self, name)
        return None if value is None else dumps_untagged(value)


class Header(_Line):
    """The first line."""

    kind: Literal["header"] = "header"
    format: Literal["lango-session"] = FORMAT
    version: Annotated[int, Field(ge=1)] = VERSION


class Origin(_Line):
    """Where a fork came from."""

    id: Id
    seq: Count


class SessionLine(_Line):
    """The session."""

    kind: Literal["session"] = "session"
    app: Id
    user: Id
    id: Id
    title: Annotated[Text, Field(max_length=1_000)] | None = None
    created_at: Time
    updated_at: Time
    revision: Count
    epoch: Count
    forked_from: Origin | None = None
    rewinds: list[Annotated[list[Number], Field(min_length=2, max_length=2)]] = []


class ContentLine(_Line):
    """A piece of the content of files."""

    kind: Literal["content"] = "content"
    hash: Hash
    number: Count
    data: Annotated[str, Field(max_length=2 * CHUNK_BYTES)]
    """Base64."""


class MessageLine(_Line):
    """A message, or an event without content."""

    json_columns: ClassVar[tuple[str, ...]] = ("tool_calls", "state_delta", "extra")

    kind: Literal["message"] = "message"
    seq: Number
    role: Literal["user", "assistant", "tool", "event", "system"]
    author: Text = ""
    content: Text = ""
    tool_calls: Annotated[list[Object], Field(max_length=500)] | None = None
    tokens: Count = 0
    created_at: Time
    event_id: Id
    invocation_id: Text = ""
    call_seq: Number | None = None
    state_delta: Object | None = None
    extra: Object | None = None

    @model_validator(mode="after")
    def _calls_can_be_read(self) -> "MessageLine":
        calls = self.column("tool_calls")
        try:
            for call in calls_from_json(calls) if calls else ():
                if not isinstance(call.id, str) or not isinstance(call.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError  # noqa: TRY301
        except (TypeError, AttributeError, ValueError) as error:
            raise ValueError("tool_calls: each is an object with id, name, and input or output") from error
        return self


class _TokensLine(_Line):
    input_tokens: Count = 0
    output_tokens: Count = 0


class StateLine(_Line):
    """An event that only changed state; revision 0 is the first state of the session."""

    json_columns: ClassVar[tuple[str, ...]] = ("state_delta", "extra")

    kind: Literal["state"] = "state"
    seq: Count
    revision: Count
    event_id: Id
    created_at: Time
    state_delta: Object = {}
    extra: Object | None = None


class TurnLine(_TokensLine):
    """An ended turn."""

    json_columns: ClassVar[tuple[str, ...]] = ("extra", "resumptions")

    kind: Literal["turn"] = "turn"
    turn: Number
    status: Literal["done", "failed", "cancelled", "interrupted"]
    epoch: Count | None = None
    idempotency_key: Text | None = None
    created_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None
    invocation_id: Text | None = None
    first_seq: Number | None = None
    cached_tokens: Count = 0
    model_calls: Count = 0
    cost_usd: Cost | None = None
    extra: Object | None = None
    digest: Text | None = None
    first_epoch: Count | None = None
    attempts: Count = 0
    resumptions: list[Object] | None = None


class ToolJournalLine(_Line):
    """A journal entry; its result is exported only if it is not a message."""

    json_columns: ClassVar[tuple[str, ...]] = ("result",)

    kind: Literal["effect"] = "effect"
    call_id: Id
    epoch: Count
    name: Text
    effect: Literal["none", "idempotent", "once"]
    status: Literal["intended", "started", "finished", "unknown"]
    arguments: Text
    intended_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None
    result: Object | None = None
    whole: Text | None = None
    approved: Literal[0, 1] | None = None
    approved_by: Text | None = None
    approved_at: Time | None = None


class BatchLine(_TokensLine):
    """A batch of observations."""

    json_columns: ClassVar[tuple[str, ...]] = ("sources",)

    kind: Literal["observation_batch"] = "observation_batch"
    batch: Number
    generation: Count
    first_seq: Count
    last_seq: Count
    floor_seq: Count
    rewinds: Count = 0
    sources: list[Number] | None = None
    model: Text = ""
    tokens: Count = 0
    created_at: Time


class ObservationLine(_Line):
    """An observation, with the messages that it was made from."""

    kind: Literal["observation"] = "observation"
    batch: Number
    number: Number
    first_seq: Count
    last_seq: Count
    priority: Literal["high", "medium", "low"]
    day: Annotated[Text, Field(max_length=40)]
    text: Note


class ArtifactLine(_Line):
    """A version of an artifact."""

    json_columns: ClassVar[tuple[str, ...]] = ("part", "metadata")

    kind: Literal["artifact"] = "artifact"
    name: Id
    version: Count
    content: Literal["bytes", "text", "uri"]
    mime_type: Text | None = None
    hash: Hash | None = None
    size: Count = 0
    part: Object | None = None
    metadata: Object | None = None
    after_seq: Count = 0
    created_at: Time


class EndLine(_Line):
    """The last line."""

    kind: Literal["end"] = "end"
    lines: Count


Line = (
    Header
    | SessionLine
    | ContentLine
    | MessageLine
    | StateLine
    | TurnLine
    | ToolJournalLine
    | BatchLine
    | ObservationLine
    | ArtifactLine
    | EndLine
)
KINDS: Mapping[str, type[Line]] = {line.model_fields["kind"].default: line for line in get_args(Line)}


def row_to_line(kind: str, columns: Sequence[str], row: Row) -> str:
    """Encode a row as a line: without NULL columns, JSON as JSON, and with full ids."""
    members: dict[str, Any] = {"kind": kind}
    raw: dict[str, str] = {}
    json_columns = KINDS[kind].json_columns
    for name, value in zip(columns, row, strict=True):
        if value is None or (value == "" and name in ("author", "content", "invocation_id")):
            continue
        if name in json_columns:
            parsed = _parse_canonical(value)
            if parsed is None:
                raw[name] = value
            else:
                members[name] = parsed
        else:
            members[name] = expand(value) if kind in ("message", "state") and name in _SHORT_IDS else value
    if raw:
        members["raw"] = raw
    return dump_line(members)


def dump_line(members: Mapping[str, Any]) -> str:
    """Encode an object as a line."""
    return dumps_untagged(members) + "\n"


def _parse_canonical(text: str) -> Any:
    """Parse the text of a JSON column if our encoder would write the same text; else return None."""
    try:
        value: Any = loads_untagged(text)
        return value if text[:1] in "{[" and dumps_untagged(value) == text else None
    except (ValueError, RecursionError):
        return None
