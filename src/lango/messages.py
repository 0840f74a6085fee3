"""The one vocabulary of store and providers: plain values, frozen, without identity.

A `Message` is what the store saves and what a provider receives. Its place in a session (the sequence number) belongs
to the store, and ADK's `Content` is known only to `lango.adk.convert`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool", "event"]
"""Who speaks. `event` is a stored event that carries no content: a compaction, an error, a rewind."""


@dataclass(frozen=True, slots=True)
class Signature:
    """An opaque mark that a model puts on its thoughts or calls, to be returned to that provider and model only."""

    provider: str
    model: str
    value: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, or, where `output` is set, the result of one. Compares by value."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Thought:
    """What a model thought before it spoke. A redacted thought has no text, only its signature."""

    text: str = ""
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, a sound or a file: its bytes, or the address where the provider finds it."""

    mime_type: str
    data: bytes | None = None
    uri: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message: thoughts, then text, then media, then tool calls.

    A `tool` message holds the results in `tool_calls` (id, name, output) and, for people who read the store, the same
    as text in `content`.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    author: str = ""
    thoughts: tuple[Thought, ...] = ()
    media: tuple[Media, ...] = ()
    signature: Signature | None = None

    def __post_init__(self) -> None:
        """Take any sequence of calls, thoughts and media; keep tuples."""
        for name in ("tool_calls", "thoughts", "media"):
            value = getattr(self, name)
            if not isinstance(value, tuple):
                object.__setattr__(self, name, tuple(value))


def fresh_call_id(name: str, taken: Collection[str]) -> str:
    """Return the id of a call that came without one: `call_<name>`, then `call_<name>_2`, never one that is taken."""
    candidate, count = f"call_{name}", 1
    while candidate in taken:
        count += 1
        candidate = f"call_{name}_{count}"
    return candidate
