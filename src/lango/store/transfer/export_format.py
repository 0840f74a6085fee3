"""The format in which a session leaves one store and enters another: JSON, one object a line.

The first line names the format and its version, the second is the session, then come its events in order, the turns
that are over, the journal of its calls, what was observed, and a last line that says that nothing is missing. Every
line has a `kind`; a later version may add kinds, and whoever does not know one refuses the whole.
`docs/reference/store.md` describes each.

Columns that hold JSON are members of the line; one whose text is not as we would write it is kept as it is in `raw`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lango.json_pieces import decode
from lango.store.codec.ids import expand
from lango.store.codec.json_text import dumps_untagged, loads_untagged, printable_text
from lango.store.codec.rows import calls_from_json
from lango.store.engine.database import Row

FORMAT = "lango-session"
VERSION = 1
_MAX_NUMBER = 2**40
"""Of turns, messages, revisions and epochs: what goes on from there still has room."""
_MAX_COUNT = 2**40
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_SHORT_IDS = ("event_id", "invocation_id")


def _storable(text: str) -> str:
    if printable_text(text) != text:
        raise ValueError("holds NUL or half a character")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Id = Annotated[Text, Field(max_length=512)]
Note = Annotated[Text, Field(max_length=4_000)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Number = Annotated[int, Field(ge=1, le=_MAX_NUMBER)]
Time = Annotated[float, Field(ge=_YEAR_1, le=_YEAR_9999, allow_inf_nan=False)]
Cost = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Object = dict[str, Any]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    json_columns: ClassVar[tuple[str, ...]] = ()
    raw: dict[str, Text] = {}
    """Texts of columns that hold JSON in another spelling."""

    @model_validator(mode="after")
    def _raw_is_json(self) -> "_Line":
        for name, text in self.raw.items():
            if name not in self.json_columns:
                raise ValueError(f"raw: {name} is no column that holds JSON")
            try:
                decode(text)
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


class MessageLine(_Line):
    """A message, or an event that carries no content."""

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


class StateLine(_Line):
    """An event that only changed state; that of revision 0 is what the session began with."""

    json_columns: ClassVar[tuple[str, ...]] = ("state_delta", "extra")

    kind: Literal["state"] = "state"
    seq: Count
    revision: Count
    event_id: Id
    created_at: Time
    state_delta: Object = {}
    extra: Object | None = None


class TurnLine(_Line):
    """A turn that is over."""

    json_columns: ClassVar[tuple[str, ...]] = ("extra",)

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
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0
    model_calls: Count = 0
    cost_usd: Cost | None = None
    extra: Object | None = None
    digest: Text | None = None


class ToolJournalLine(_Line):
    """What the journal says of a call. Its result is here only while it is no message."""

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


class BatchLine(_Line):
    """An answer of an observer or a reflector."""

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
    input_tokens: Count = 0
    output_tokens: Count = 0
    tokens: Count = 0
    created_at: Time


class ObservationLine(_Line):
    """An observation, with the messages that it came from."""

    kind: Literal["observation"] = "observation"
    batch: Number
    number: Number
    first_seq: Count
    last_seq: Count
    priority: Literal["high", "medium", "low"]
    day: Annotated[Text, Field(max_length=40)]
    text: Note


class EndLine(_Line):
    """The last line: nothing is missing."""

    kind: Literal["end"] = "end"
    lines: Count


Line = (
    Header | SessionLine | MessageLine | StateLine | TurnLine | ToolJournalLine | BatchLine | ObservationLine | EndLine
)
KINDS: Mapping[str, type[Line]] = {
    "header": Header,
    "session": SessionLine,
    "message": MessageLine,
    "state": StateLine,
    "turn": TurnLine,
    "effect": ToolJournalLine,
    "observation_batch": BatchLine,
    "observation": ObservationLine,
    "end": EndLine,
}


def row_to_line(kind: str, columns: Sequence[str], row: Row) -> str:
    """Spell a row as a line: without what is not set, JSON as JSON, ids as ADK knows them."""
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
    """Spell an object as a line."""
    return dumps_untagged(members) + "\n"


def _parse_canonical(text: str) -> Any:
    """Return what a text of JSON says, if it says it as we would; None is no value that a column holds."""
    try:
        value: Any = loads_untagged(text)
        return value if text[:1] in "{[" and dumps_untagged(value) == text else None
    except (ValueError, RecursionError):
        return None
