"""The one vocabulary of store and providers: plain values, frozen, without identity.

A `Message` is what the store saves and what a provider receives. Its place in a session (the sequence number) belongs
to the store, and ADK's `Content` is known only to `lango.adk.services.events_to_rows`.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

Role = Literal["system", "user", "assistant", "tool", "event"]
"""Who speaks. `event` is a stored event that carries no content: a compaction, an error, a rewind."""

MAX_TEXT_CHARACTERS = 60_000
"""Of a text file, what a model is sent: some 15,000 tokens."""
FILE_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
MIME_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")
_TEXTUAL = re.compile(r"text/|application/(json|xml|yaml|x-yaml|toml|javascript|sql)\b|.*\+(json|xml)$")


class Signature(Struct, frozen=True):
    """An opaque mark that a model puts on its thoughts or calls, to be returned to that provider and model only."""

    provider: str
    model: str
    value: bytes


class ToolCall(Struct, frozen=True):
    """A call of a tool, or, where `output` is set, the result of one. Compares by value."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    signature: Signature | None = None


class Thought(Struct, frozen=True):
    """What a model thought before it spoke. A redacted thought has no text, only its signature."""

    text: str = ""
    signature: Signature | None = None


class Media(Struct, frozen=True):
    """A picture, a sound or a file: its bytes, or the address where the provider finds it."""

    mime_type: str
    data: bytes | None = None
    uri: str | None = None
    name: str | None = None

    @property
    def text(self) -> str | None:
        """A text file as a model reads it: its name, and its text, of a very long one the head and the tail."""
        if not self.data or not _TEXTUAL.match(self.mime_type):
            return None
        text = self.data.decode("utf-8", "replace")
        left_out = len(text) - MAX_TEXT_CHARACTERS
        if left_out > 0:
            tail = MAX_TEXT_CHARACTERS // 3
            head = MAX_TEXT_CHARACTERS - tail
            text = f"{text[:head]}\n[... {left_out} of {len(text)} characters left out ...]\n{text[-tail:]}"
        return f"[{self.name or self.mime_type}]\n{text}"


class Attachment(Struct, frozen=True):
    """A file that a user sends with a message: a picture, a PDF, a text."""

    name: str
    mime_type: str
    data: bytes


class Message(Struct, frozen=True):
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
        if not (type(self.tool_calls) is type(self.thoughts) is type(self.media) is tuple):
            for name in ("tool_calls", "thoughts", "media"):
                force_setattr(self, name, tuple(getattr(self, name)))


def fresh_call_id(name: str, taken: Collection[str]) -> str:
    """Return the id of a call that came without one: `call_<name>`, then `call_<name>_2`, never one that is taken."""
    candidate, count = f"call_{name}", 1
    while candidate in taken:
        count += 1
        candidate = f"call_{name}_{count}"
    return candidate
