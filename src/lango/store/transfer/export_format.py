"""Define the lines of an exported session: JSON, one object per line.

The first line names the format and its version, the second is the session; the contents of its files follow in pieces,
then its events in order, the ended turns, the tool journal, the observations, the artifacts, and a last line with the
number of lines. Every line has a `kind`; a later version may add kinds, and an import refuses a file with an unknown
kind. `docs/reference/store.md` describes each.

The other members of most lines are the columns of a table; those that hold JSON are JSON in the line, too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lango.errors import StoreDamaged
from lango.json_values import storable_text
from lango.sessions import EARLIEST_TIME, LATEST_TIME
from lango.store.artifacts.artifacts import Kind
from lango.store.codec.json_text import dumps_untagged, loads_untagged
from lango.store.codec.rows import calls_from_json
from lango.store.contents import CHUNK_BYTES
from lango.store.memory.observations import Priority
from lango.store.tool_calls.tool_journal import Effect, JournalStatus
from lango.store.turns.ending import Outcome

FORMAT = "lango-session"
VERSION = 1
_MAX_NUMBER = 2**40
"""The largest turn, message, revision or epoch: later ones still fit into the columns."""
_MAX_COUNT = 2**40


def _storable(text: str) -> str:
    if storable_text(text) != text:
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

    def column(self, name: str) -> str | None:
        """Return the text of a column that holds JSON."""
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
    rewinds: Annotated[list[Annotated[list[Number], Field(min_length=2, max_length=2)]], Field(max_length=3_000)] = []


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


class _UsageLine(_TokensLine):
    cached_tokens: Count = 0
    model_calls: Count = 0
    cost_usd: Cost | None = None


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


class TurnLine(_UsageLine):
    """An ended turn."""

    json_columns: ClassVar[tuple[str, ...]] = ("extra", "resumptions")

    kind: Literal["turn"] = "turn"
    turn: Number
    status: Outcome | Literal["steered"]
    epoch: Count | None = None
    idempotency_key: Text | None = None
    created_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None
    invocation_id: Text | None = None
    first_seq: Number | None = None
    extra: Object | None = None
    digest: Text | None = None
    first_epoch: Count | None = None
    attempts: Count = 0
    resumptions: list[Object] | None = None
    begun_version: Text | None = None
    version: Text | None = None
    continued_seq: Number | None = None
    continued_epoch: Count | None = None


class ToolJournalLine(_Line):
    """A journal entry; its result is exported only if it is not a message."""

    json_columns: ClassVar[tuple[str, ...]] = ("result",)

    kind: Literal["effect"] = "effect"
    call_id: Id
    epoch: Count
    name: Text
    effect: Effect
    status: JournalStatus
    arguments: Text
    intended_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None
    result: Any = None
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
    priority: Priority
    day: Annotated[Text, Field(max_length=40)]
    text: Note


class ArtifactLine(_Line):
    """A version of an artifact."""

    json_columns: ClassVar[tuple[str, ...]] = ("part", "metadata")

    kind: Literal["artifact"] = "artifact"
    name: Id
    version: Count
    content: Kind
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


def columns_of(line: type[Line]) -> list[str]:
    """Return the columns of a table that the lines of a kind hold, in the order of the members."""
    return [name for name in line.model_fields if name != "kind"]


def row_to_line(kind: str, columns: Mapping[str, Any]) -> str:
    """Encode the columns of a row as a line: without NULL columns, and with JSON as JSON."""
    members: dict[str, Any] = {"kind": kind}
    for name, value in columns.items():
        if value is None or (value == "" and name in ("author", "content", "invocation_id")):
            continue
        if name in KINDS[kind].json_columns:
            try:
                members[name] = loads_untagged(value)
            except (ValueError, RecursionError) as error:
                raise StoreDamaged(f"the {name} of a {kind} cannot be read: see `lango sessions check`") from error
        else:
            members[name] = value
    return dump_line(members)


def dump_line(members: Mapping[str, Any]) -> str:
    """Encode an object as a line."""
    return dumps_untagged(members) + "\n"
