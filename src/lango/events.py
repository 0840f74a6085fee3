"""The events of a turn, as a client sees them: a closed union, in order.

`Accepted` comes first, once the user's message is stored. Text and tool calls follow as they happen; a tool's end is
emitted only after its result is stored. `TurnDone` or a fatal `TurnError` comes last, exactly once. `id` grows within a
session.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, cast, get_args

from msgspec import Struct, field, json, to_builtins

from lango.errors import Unstorable
from lango.typed_values import convert
from lango.waits import Wait


class Usage(Struct, frozen=True):
    """Tokens and cost of model calls: of one, of a turn, or of a session."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_usd: float | None = None
    """None where the price of the model is not known."""
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


class Accepted(Struct, frozen=True, tag_field="type", tag="accepted"):
    """The user's message is stored, and is not lost whatever happens next."""

    type: ClassVar[str] = "accepted"
    id: int
    turn: int
    waiting: bool = False
    """Another turn of the session is running; this one runs after it."""
    invocation_id: str = ""
    """Stored with every message of this turn."""


class Queued(Struct, frozen=True, tag_field="type", tag="queued"):
    """The process runs as many turns as it may, and this one waits."""

    type: ClassVar[str] = "queued"
    id: int
    place: int
    """Position in the queue: 1 runs next, 0 runs now."""


class TextDelta(Struct, frozen=True, tag_field="type", tag="text_delta"):
    """A piece of the answer."""

    type: ClassVar[str] = "text_delta"
    id: int
    text: str
    author: str = ""


class ThoughtDelta(Struct, frozen=True, tag_field="type", tag="thought_delta"):
    """A piece of the model's thoughts."""

    type: ClassVar[str] = "thought_delta"
    id: int
    text: str
    author: str = ""


class ToolStart(Struct, frozen=True, tag_field="type", tag="tool_start"):
    """A tool call starts."""

    type: ClassVar[str] = "tool_start"
    id: int
    call_id: str
    name: str
    arguments: Mapping[str, Any] = {}
    author: str = ""


class ToolProgress(Struct, frozen=True, tag_field="type", tag="tool_progress"):
    """A running tool reports how far it is; at most one report a second, and the last one."""

    type: ClassVar[str] = "tool_progress"
    id: int
    call_id: str
    name: str
    progress: float
    total: float | None = None
    """What `progress` is at the end; None: not known."""
    message: str = ""


class ToolEnd(Struct, frozen=True, tag_field="type", tag="tool_end"):
    """A tool call ended, and its result is stored."""

    type: ClassVar[str] = "tool_end"
    id: int
    call_id: str
    name: str
    ok: bool = True
    result: Mapping[str, Any] = {}
    duration_s: float | None = None
    """How long the tool ran; None if it did not run."""


class WaitOpened(Struct, frozen=True, tag_field="type", tag="wait_opened"):
    """The turn needs something from outside: `Runtime.answer` gives it. Only a question of a tool lets the turn run."""

    type: ClassVar[str] = "wait_opened"
    id: int
    wait: Wait


class WaitClosed(Struct, frozen=True, tag_field="type", tag="wait_closed"):
    """A wait is no longer open: this turn brings its answer, or continued the conversation without one."""

    type: ClassVar[str] = "wait_closed"
    id: int
    wait: Wait
    outcome: Literal["answered", "refused", "expired", "withdrawn"]
    answered_by: str = ""
    """The user who answered; empty: there was no answer."""


class NodeProgress(Struct, frozen=True, tag_field="type", tag="node"):
    """A node of a workflow started, ended, failed, or waits for an answer."""

    type: ClassVar[str] = "node"
    id: int
    name: str
    path: str
    """The names of the nodes from the workflow down to this one, each with the number of its run."""
    status: Literal["started", "ended", "failed", "waiting"]
    attempt: int = 1
    """Larger than 1 if the node failed before and is tried again."""
    output: Any = None
    """What the node put out at its end."""
    error: str = ""
    """Why it failed."""


class Resumed(Struct, frozen=True, tag_field="type", tag="resumed"):
    """The turn goes on after its process died or stopped, or after a failure: what is stored is not done again."""

    type: ClassVar[str] = "resumed"
    id: int
    reason: Literal["crash", "handover", "failure"]
    attempt: int = 0
    """How often it was run again after a crash or a failure."""
    at: datetime | None = None
    """When it was resumed."""


class TextWithdrawn(Struct, frozen=True, tag_field="type", tag="text_withdrawn"):
    """Text of a model response that was never stored is withdrawn: the model is called again.

    It is the text, and the thoughts, of `author` in the events after `after_id`.
    """

    type: ClassVar[str] = "text_withdrawn"
    id: int
    after_id: int
    author: str = ""


class TurnError(Struct, frozen=True, tag_field="type", tag="turn_error"):
    """The turn failed, and its stream ends here; or, if not fatal, a tool call failed."""

    type: ClassVar[str] = "turn_error"
    id: int
    error: str
    """Name of the error class."""
    message: str
    fatal: bool = True
    call_id: str | None = None
    retry_after_s: float | None = None
    """After which time a new attempt may work, where that is known."""


class TurnDone(Struct, frozen=True, tag_field="type", tag="done"):
    """The turn ended, and with it its stream."""

    type: ClassVar[str] = "done"
    id: int
    turn: int
    status: Literal["done", "waiting", "cancelled"] = "done"
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    output: Any = None
    """The final output of a workflow, which is the turn's answer; its text came as the last `text_delta`."""
    waits: tuple[Wait, ...] = ()
    """What the turn waits for, if its status is `waiting`."""


TurnEvent = (
    Accepted
    | Queued
    | TextDelta
    | ThoughtDelta
    | ToolStart
    | ToolProgress
    | ToolEnd
    | WaitOpened
    | WaitClosed
    | NodeProgress
    | Resumed
    | TextWithdrawn
    | TurnError
    | TurnDone
)
_KIND_BY_TYPE: dict[str, type[TurnEvent]] = {kind.type: kind for kind in get_args(TurnEvent)}


def is_final(event: TurnEvent) -> bool:
    """Whether no event of the turn follows this one."""
    return isinstance(event, TurnDone) or (isinstance(event, TurnError) and event.fatal)


def to_json(event: TurnEvent, *, unchanged: Iterable[type] = ()) -> dict[str, Any]:
    """Return an event as a JSON object; values of the types in `unchanged` stay as they are."""
    return to_builtins(event, builtin_types=unchanged, enc_hook=to_jsonable)


def from_json(fields: Mapping[str, Any]) -> TurnEvent:
    """Return the event of a JSON object that `to_json` made."""
    return convert(fields, _KIND_BY_TYPE[fields["type"]])  # converting to the union is ten times slower


def to_plain_values(value: Any) -> Any:
    """Return a tool's arguments or result with JSON's types only; floats may still be NaN or infinite."""
    return to_builtins(value, str_keys=True, enc_hook=to_jsonable)


def output_to_text(output: Any) -> str:
    """Return the output of a workflow as readers see it: a text as it is, any other value as JSON."""
    return output if isinstance(output, str) else json.encode(to_plain_values(output)).decode()


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
