"""The messages that the store saves and providers receive: frozen values without identity.

The sequence number of a message belongs to the store. Only `lango.adk.services` and `lango.adk.model` know ADK's
`Content`.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import force_setattr

Role = Literal["system", "user", "assistant", "tool", "event"]
"""The author's role. `event` is a stored event without content: a compaction, an error, a rewind."""

RESERVED_PREFIX = "adk_"
"""ADK speaks to itself by calls whose names begin so: no model, client, tool or import may make them."""
MAX_PARTS = 1_000
"""The most parts of a message that comes from outside: texts, files, calls and results."""
MAX_TEXT_CHARACTERS = 60_000
"""How much of a text file is sent to a model: some 15,000 tokens."""
FILE_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
MIME_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")
_TEXTUAL = re.compile(r"text/|application/(json|xml|yaml|x-yaml|toml|javascript|sql)\b|.*\+(json|xml)$")


class Signature(Struct, frozen=True):
    """An opaque signature on a model's thoughts or calls, to be returned to that provider and model only."""

    provider: str
    model: str
    value: bytes


class ToolCall(Struct, frozen=True):
    """A tool call, or, if `output` is set, its result."""

    id: str
    name: str
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    signature: Signature | None = None


class Thought(Struct, frozen=True):
    """A thought of a model. A redacted thought has no text, only its signature."""

    text: str = ""
    signature: Signature | None = None


class StoredBytes(bytes):
    """Stands for bytes that are in the store and were not loaded: empty itself, with their SHA-256 and size."""

    hash: str
    size: int

    def __new__(cls, hash_: str, size: int) -> Self:
        """Create one for the bytes of a hash."""
        made = super().__new__(cls)
        made.hash, made.size = hash_, size
        return made

    def __getnewargs__(self) -> Any:
        """Return the arguments to make a copy with."""
        return self.hash, self.size

    def __eq__(self, other: object) -> bool:
        """Compare the bytes of both, loaded or not."""
        return isinstance(other, StoredBytes) and other.hash == self.hash

    def __hash__(self) -> int:
        """Return a hash that is equal for the same bytes."""
        return hash(self.hash)


def content_hash(data: bytes) -> str:
    """Return the hash that names a content."""
    return data.hash if isinstance(data, StoredBytes) else hashlib.sha256(data).hexdigest()


def byte_size(data: bytes) -> int:
    """Return the number of bytes, also of bytes that were not loaded."""
    return data.size if isinstance(data, StoredBytes) else len(data)


class Media(Struct, frozen=True):
    """An image, a sound or a file: its bytes, or a URI for the provider."""

    mime_type: str
    data: bytes | None = None
    uri: str | None = None
    name: str | None = None

    @property
    def text(self) -> str | None:
        """The name and text of a text file for a model; of a very long one, its head and tail."""
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
    """A file that a user sends with a message."""

    name: str
    mime_type: str
    data: bytes


def make_attachment(number: int, name: str | None, mime_type: str | None, data: bytes | None) -> Attachment:
    """Make the attachment of a file, named after its number if its own name is not valid."""
    encodable = (name or "").encode(errors="replace").decode()  # JSON can hold lone surrogates, the store cannot
    valid_name = encodable if FILE_NAME.fullmatch(encodable) else f"file {number}"
    return Attachment(valid_name, (mime_type or "").lower(), data or b"")


class ArtifactFile(Struct, frozen=True):
    """An artifact that a user sends with a message: by its name and version, or by its address `artifact://...`."""

    name: str
    version: int | None = None


class Message(Struct, frozen=True):
    """One message: thoughts, then text, then media, then tool calls.

    A `tool` message holds results in `tool_calls` (id, name, output) and, for people who read the store, the same as
    text in `content`.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    author: str = ""
    thoughts: tuple[Thought, ...] = ()
    media: tuple[Media, ...] = ()
    signature: Signature | None = None

    def __post_init__(self) -> None:
        """Convert sequences of calls, thoughts and media to tuples."""
        if not (type(self.tool_calls) is type(self.thoughts) is type(self.media) is tuple):
            for name in ("tool_calls", "thoughts", "media"):
                force_setattr(self, name, tuple(getattr(self, name)))


def fresh_call_id(name: str, taken: Collection[str]) -> str:
    """Return an id for a call without one: `call_<name>`, then `call_<name>_2`, never one in `taken`."""
    candidate, count = f"call_{name}", 1
    while candidate in taken:
        count += 1
        candidate = f"call_{name}_{count}"
    return candidate
