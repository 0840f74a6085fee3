"""The events of a turn, as a client sees them: a closed union, in order.

`Accepted` comes first, once the user's message is stored. Text and tool calls follow as they happen; a tool's end is
emitted only after its result is stored. `TurnDone` or a fatal `TurnError` comes last, exactly once. The
`id` of an event is its turn times a million, plus its number within the turn: ids grow within a session.

Agents that run in parallel speak at once: pieces of their texts alternate. Each response of a model is a block, which
its pieces name, and `TextEnd` ends it. `lango.events.text` puts the blocks one after the other, for a reader that can
show only one text at a time.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, cast, get_args

from msgspec import Struct, ValidationError, field, json, to_builtins

from lango.errors import SchemaError, Unstorable
from lango.json_values import convert, to_client_json
from lango.waits import Outcome, Wait

IDS_PER_TURN = 1_000_000


class Usage(Struct, frozen=True):
    """Tokens and cost of model calls: of one, of a turn, or of a session."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_usd: float | None = None
    """None if the price of the model is not known."""
    thought_tokens: int = 0
    """How many of the output tokens were thoughts, where the provider counts them."""
    cache_write_tokens: int = 0
    """How many of the input tokens were written to the provider's cache, where it counts them."""

    def __add__(self, other: "Usage") -> "Usage":
        """Add tokens, calls and known costs."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.model_calls + other.model_calls,
            sum(costs) if costs else None,
            self.thought_tokens + other.thought_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


class EventBase(Struct, frozen=True, tag_field="type"):
    """What events of every type have."""

    id: int

    @property
    def type(self) -> str:
        """The type of the event, as JSON names it."""
        return str(type(self).__struct_config__.tag)


class Accepted(EventBase, frozen=True, tag="accepted"):
    """The user's message is stored, and is not lost if anything fails later."""

    turn: int
    waiting: bool = False
    """Another turn of the session is running; this one runs after it."""
    invocation_id: str = ""
    """Stored with every message of this turn."""


class Queued(EventBase, frozen=True, tag="queued"):
    """The process runs as many turns as it may, and this one waits."""

    place: int
    """Position in the queue: 1 runs next, 0 runs now."""


class TextDelta(EventBase, frozen=True, tag="text_delta"):
    """A piece of the answer."""

    text: str
    author: str = ""
    """The agent that speaks."""
    block: int = 0
    """The response that it is a piece of, numbered within the turn; 0: its pieces cannot be mixed with others."""


class ThoughtDelta(EventBase, frozen=True, tag="thought_delta"):
    """A piece of the model's thoughts."""

    text: str
    author: str = ""
    """The agent that thinks."""
    block: int = 0
    """The response that it is a piece of, which may also have text."""


class TextEnd(EventBase, frozen=True, tag="text_end"):
    """The text of a block is complete, and stored. Without it, the end of the turn ends the block."""

    block: int
    author: str = ""


class ToolStart(EventBase, frozen=True, tag="tool_start"):
    """A tool call starts."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] = {}
    author: str = ""


class ToolProgress(EventBase, frozen=True, tag="tool_progress"):
    """Reports the progress of a running tool: at most once a second, and the last report."""

    call_id: str
    name: str
    progress: float
    total: float | None = None
    """What `progress` is at the end, or None if it is not known."""
    message: str = ""


class ToolEnd(EventBase, frozen=True, tag="tool_end"):
    """A tool call ended, and its result is stored."""

    call_id: str
    name: str
    ok: bool = True
    result: Mapping[str, Any] = {}
    duration_s: float | None = None
    """How long the tool ran; None if it did not run."""


class WaitOpened(EventBase, frozen=True, tag="wait_opened"):
    """The turn needs something from outside: `Runtime.answer` gives it. Only a question of a tool lets the turn run."""

    wait: Wait


class WaitClosed(EventBase, frozen=True, tag="wait_closed"):
    """A wait is no longer open: this turn brings its answer, continued without one, or was stopped by a user."""

    wait: Wait
    outcome: Outcome
    answered_by: str = ""
    """The user who answered; empty: there was no answer."""


class NodeProgress(EventBase, frozen=True, tag="node"):
    """A node of a workflow started, ended, failed, or waits for an answer."""

    name: str
    path: str
    """The names of the nodes from the workflow down to this one, each with the number of its run."""
    status: Literal["started", "ended", "failed", "waiting"]
    attempt: int = 1
    """Larger than 1 if the node failed before and is tried again."""
    input: Any = None
    """What the node got, when it starts."""
    output: Any = None
    """What the node put out at its end."""
    error: str = ""
    """Why it failed."""


class ArtifactSaved(EventBase, frozen=True, tag="artifact_saved"):
    """A tool, a callback or a node of a workflow saved a version of an artifact."""

    name: str
    version: int
    author: str = ""


class Resumed(EventBase, frozen=True, tag="resumed"):
    """The turn continues after its process died or stopped, or after a failure: what is stored is not done again.

    With the reason `update`, the application was updated, and the model continues from the stored messages.
    """

    reason: Literal["crash", "handover", "failure", "update"]
    attempt: int = 0
    """How often it was run again after a crash or a failure."""
    at: datetime | None = None
    """When it was resumed."""


class Steered(EventBase, frozen=True, tag="steered"):
    """A message that came while a turn ran was taken into that turn: the model reads it from its next call on.

    Readers of both turns get it: of the one that ran, and of the one that the message was accepted as, which ends here.
    """

    turn: int
    """The turn that the message was accepted as."""
    into: int
    """The turn that took it in."""
    seq: int
    """The stored message."""
    text: str = ""


class TextWithdrawn(EventBase, frozen=True, tag="text_withdrawn"):
    """A block of text is withdrawn, with its thoughts: its model response was not stored, or a callback changed it.

    No piece of the block follows; what is stored instead comes in a new block.
    """

    block: int
    author: str = ""


class TurnError(EventBase, frozen=True, tag="turn_error"):
    """The turn failed, and its stream ends here; or, if not fatal, a tool call failed."""

    error: str
    """Name of the error class."""
    message: str
    fatal: bool = True
    call_id: str | None = None
    retry_after_s: float | None = None
    """The time after which a new attempt may work, where it is known."""


class TurnDone(EventBase, frozen=True, tag="done"):
    """The turn ended, and with it its stream."""

    turn: int
    status: Literal["done", "waiting", "cancelled", "steered"] = "done"
    """`waiting`: for something from outside. `steered`: its message was taken into the turn that ran."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    output: Any = None
    """The final output of a workflow, which is the turn's answer; its text came as the last `text_delta`."""
    waits: tuple[Wait, ...] = ()
    """What the turn waits for, if its status is `waiting`."""
    stop_sequence: str = ""
    """The stop sequence of the client's that ended the answer, if the model's provider names it."""


TurnEvent = (
    Accepted
    | Queued
    | TextDelta
    | ThoughtDelta
    | TextEnd
    | ToolStart
    | ToolProgress
    | ToolEnd
    | WaitOpened
    | WaitClosed
    | NodeProgress
    | ArtifactSaved
    | Resumed
    | Steered
    | TextWithdrawn
    | TurnError
    | TurnDone
)
_KIND_BY_TYPE: dict[Any, type[TurnEvent]] = {kind.__struct_config__.tag: kind for kind in get_args(TurnEvent)}


def is_final(event: TurnEvent) -> bool:
    """Whether no event of the turn follows this one."""
    return isinstance(event, TurnDone) or (isinstance(event, TurnError) and event.fatal)


def event_id(turn: int, number: int) -> int:
    """Return the id of an event by its number within its turn, from 1 on."""
    return turn * IDS_PER_TURN + number


def number_of_event(event_id: int) -> int:
    """Return the number of an event within its turn."""
    return event_id % IDS_PER_TURN


def turn_of_event(event_id: int) -> int:
    """Return the turn that an event belongs to."""
    return event_id // IDS_PER_TURN


def id_range(turn: int) -> tuple[int, int]:
    """Return the bounds of a turn's ids; both are exclusive."""
    return event_id(turn, 0), event_id(turn + 1, 0)


def to_json(event: TurnEvent, *, unchanged: Iterable[type] = ()) -> dict[str, Any]:
    """Return an event as a JSON object; values of the types in `unchanged` stay as they are."""
    return to_builtins(event, builtin_types=unchanged, enc_hook=to_jsonable)


def from_json(fields: Mapping[str, Any]) -> TurnEvent:
    """Return the event of a JSON object that `to_json` made. Raise `SchemaError` for one of a newer version."""
    try:
        return convert(fields, _KIND_BY_TYPE[fields["type"]])  # converting to the union is ten times slower
    except (KeyError, ValidationError) as error:
        raise SchemaError(
            f"a newer Lango stored an event {fields.get('type')!r} that this one cannot read: install a newer version"
        ) from error


def to_plain_values(value: Any) -> Any:
    """Return a tool's arguments or result with JSON's types only; floats may still be NaN or infinite."""
    return to_builtins(value, str_keys=True, enc_hook=to_jsonable)


def output_to_text(output: Any) -> str:
    """Return the output of a workflow as readers see it: a text as it is, any other value as JSON."""
    return output if isinstance(output, str) else json.encode(to_client_json(to_plain_values(output))).decode()


def to_jsonable(value: Any) -> Any:
    """Convert a value of a type that JSON does not know, as pydantic does. Raise `Unstorable` if there is no way."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    from pydantic_core import to_jsonable_python  # later: the command line starts without it

    try:
        return to_jsonable_python(value)
    except Exception as error:
        raise Unstorable(
            f"a value of type {type(value).__name__} cannot be stored as JSON; store its data instead"
        ) from error
