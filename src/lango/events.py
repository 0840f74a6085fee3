"""What a client sees of a turn: a closed union, told in order.

`Accepted` comes first, once the user's message is stored. Then text and tools as they happen; a tool's end is told only
after its result is stored. `TurnDone` or a fatal `TurnError` comes last, exactly once. `id` grows within a session.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, convert, field
from msgspec.structs import asdict


class Usage(Struct, frozen=True):
    """Tokens and cost of a turn, all calls of the model together."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_usd: float | None = None
    """None where no price is known for the model."""


class Accepted(Struct, frozen=True):
    """The user's message is stored: whatever happens now, it is not lost."""

    type: ClassVar[str] = "accepted"
    id: int
    turn: int
    waiting: bool = False
    """Another turn of the session runs; this one comes after it."""
    invocation_id: str = ""
    """What the messages of this turn have in common in the store."""


class Queued(Struct, frozen=True):
    """The process runs as many turns as it carries: this one waits in the queue."""

    type: ClassVar[str] = "queued"
    id: int
    place: int
    """1 is the next one to run; 0: it runs now."""


class TextDelta(Struct, frozen=True):
    """A piece of the answer."""

    type: ClassVar[str] = "text_delta"
    id: int
    text: str
    author: str = ""


class ThoughtDelta(Struct, frozen=True):
    """A piece of what the model thinks."""

    type: ClassVar[str] = "thought_delta"
    id: int
    text: str
    author: str = ""


class ToolStart(Struct, frozen=True):
    """A tool begins."""

    type: ClassVar[str] = "tool_start"
    id: int
    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    author: str = ""


class ToolEnd(Struct, frozen=True):
    """A tool is done, and its result is stored."""

    type: ClassVar[str] = "tool_end"
    id: int
    call_id: str
    name: str
    ok: bool = True
    result: Mapping[str, Any] = field(default_factory=dict[str, Any])
    duration_s: float | None = None
    """How long it ran; None: it did not."""


class ApprovalNeeded(Struct, frozen=True):
    """A tool waits for somebody to say yes or no to exactly these arguments."""

    type: ClassVar[str] = "approval"
    id: int
    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expires_at: datetime | None = None
    """From then on it is a no; None: it waits as long as it takes."""


class TurnError(Struct, frozen=True):
    """Something failed: the turn, and the stream ends here; or, where it is not fatal, a tool."""

    type: ClassVar[str] = "error"
    id: int
    error: str
    """The name of the error's type."""
    message: str
    fatal: bool = True
    call_id: str | None = None


class TurnDone(Struct, frozen=True):
    """The end of the stream."""

    type: ClassVar[str] = "done"
    id: int
    turn: int
    status: Literal["done", "waiting_for_approval", "waiting_for_client", "cancelled"] = "done"
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""


_KINDS = (Accepted, Queued, TextDelta, ThoughtDelta, ToolStart, ToolEnd, ApprovalNeeded, TurnError, TurnDone)
TurnEvent = Accepted | Queued | TextDelta | ThoughtDelta | ToolStart | ToolEnd | ApprovalNeeded | TurnError | TurnDone


def to_json(event: TurnEvent) -> dict[str, Any]:
    """Return an event as JSON says it: its fields, and its type by name; times as ISO 8601 writes them."""
    fields = {"type": event.type} | asdict(event)
    if isinstance(event, TurnDone):
        fields["usage"] = asdict(event.usage)
    if isinstance(event, ApprovalNeeded) and event.expires_at is not None:
        fields["expires_at"] = event.expires_at.isoformat()
    return fields


def from_json(fields: Mapping[str, Any]) -> TurnEvent:
    """Read an event back from what `to_json` made of it."""
    return convert(fields, next(kind for kind in _KINDS if kind.type == fields["type"]))
