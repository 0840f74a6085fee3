"""What a model is to Lango: something that streams deltas for a request.

The stream protocol: any number of `TextDelta`, `ThoughtDelta`, `CallDelta` and `UsageDelta`, in the order the provider
sent them, then exactly one `Finish`, last. A failure raises a `ProviderError` and nothing follows it. A stream that
ends without `Finish` is broken: whoever reads it raises `ProviderProtocolError`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from lango.messages import Message, Signature


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it: a name, what it is for, and the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Thinking(Struct, frozen=True):
    """How much a model may think before it answers, as far as its vendor can be told; None is the vendor's default."""

    level: Literal["minimal", "low", "medium", "high"] | None = None
    budget_tokens: int | None = None
    """0: not at all, -1: as the model sees fit."""
    shown: bool | None = None
    """Whether the thoughts are told."""


class Request(Struct, frozen=True):
    """One call of a model. `model` is the name as the provider knows it, without the `provider/` prefix."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    response_schema: Mapping[str, Any] | None = None
    """A JSON schema that the answer must follow (structured output)."""
    tool_choice: Literal["auto", "required", "none"] = "auto"
    thinking: Thinking | None = None
    """Gemini takes all of it, OpenAI's reasoning models the level; of others it is a matter of their `options`."""
    cut: bool = False
    """Something before the newest messages was left out or changed: a signature that covers it no longer holds."""


class TextDelta(Struct, frozen=True):
    """A piece of the answer."""

    text: str


class ThoughtDelta(Struct, frozen=True):
    """A piece of a thought; a signature closes the thought that it belongs to."""

    text: str = ""
    signature: Signature | None = None


class CallDelta(Struct, frozen=True):
    """A piece of a tool call: `index` says which call of this answer, `arguments` is a piece of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    signature: Signature | None = None


class UsageDelta(Struct, frozen=True):
    """Tokens that the provider counted; a later one replaces the fields that it sets."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    thought_tokens: int | None = None


FinishReason = Literal["stop", "length", "tool_calls", "safety", "error"]


class Finish(Struct, frozen=True):
    """The end of the answer. `detail` is the provider's own word for the reason."""

    reason: FinishReason
    detail: str = ""
    signature: Signature | None = None
    """A mark on the text of the answer (Gemini puts one on the last text part)."""
    model: str = ""
    """The exact version that answered, where the provider says it."""


Delta = TextDelta | ThoughtDelta | CallDelta | UsageDelta | Finish


class Provider(Protocol):
    """A model's API. One verb."""

    @property
    def name(self) -> str:
        """The provider's name: `gemini`, `openai`, `anthropic`, `local`, ..."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        ...


@asynccontextmanager
async def closing_stream(deltas: AsyncIterator[Delta]) -> AsyncGenerator[AsyncIterator[Delta], None]:
    """Close a stream, and with it the connection, however its reading ends."""
    try:
        yield deltas
    finally:
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()
