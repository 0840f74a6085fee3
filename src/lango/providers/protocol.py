"""Define the provider protocol: a request in, a stream of deltas out.

The stream: any number of `TextDelta`, `ThoughtDelta`, `CallDelta` and `UsageDelta`, in the order that the provider sent
them, then exactly one `Finish`, last. A failure raises a `ProviderError` and nothing follows it. A stream that ends
without `Finish` is broken: its reader raises `ProviderProtocolError`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from lango.messages import Message, Signature


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it: name, purpose, and the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}


class Thinking(Struct, frozen=True):
    """How much a model may think before it answers, if the vendor's API can set it; None is the model's default."""

    level: Literal["minimal", "low", "medium", "high"] | None = None
    budget_tokens: int | None = None
    """0: no thinking, -1: the model decides."""
    shown: bool | None = None
    """Whether the answer includes the thoughts."""


class Request(Struct, frozen=True):
    """One model call. `model` is the provider's name for it, without the `provider/` prefix."""

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
    json_object: bool = False
    """The answer must be a JSON object, of any shape; a schema includes this."""
    tool_choice: str = "auto"
    """`auto`, `required`, `none`, or the name of the tool that must be called."""
    thinking: Thinking | None = None
    """Gemini uses all of it, OpenAI's reasoning models the level; for other models, set the provider's `options`."""
    cut: bool = False
    """Whether earlier messages were left out or changed, so that signatures that cover them are no longer valid."""


class TextDelta(Struct, frozen=True):
    """A piece of the answer's text."""

    text: str


class ThoughtDelta(Struct, frozen=True):
    """A piece of a thought; a signature ends its thought."""

    text: str = ""
    signature: Signature | None = None


class CallDelta(Struct, frozen=True):
    """A piece of a tool call: `index` is the number of the call in this answer, `arguments` a piece of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    signature: Signature | None = None


class UsageDelta(Struct, frozen=True):
    """Tokens that the provider counted; a later delta replaces the fields that it sets."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    thought_tokens: int | None = None
    cache_write_tokens: int | None = None


FinishReason = Literal["stop", "length", "tool_calls", "safety", "error"]


class Finish(Struct, frozen=True):
    """The end of the answer. `detail` is the reason as the provider names it."""

    reason: FinishReason
    detail: str = ""
    signature: Signature | None = None
    """The signature of the answer's text (Gemini signs the last text part)."""
    model: str = ""
    """The exact version that answered, if the provider reports it."""
    stop_sequence: str = ""
    """The stop sequence of the request that ended the answer, if the provider names it."""


Delta = TextDelta | ThoughtDelta | CallDelta | UsageDelta | Finish


class Provider(Protocol):
    """A model's API."""

    @property
    def name(self) -> str:
        """The provider's name: `gemini`, `openai`, `anthropic`, `local`, ..."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        ...


class EmbeddingRequest(Struct, frozen=True):
    """Texts to embed."""

    model: str
    """The name that the provider uses for it."""
    inputs: Sequence[str] | Sequence[Sequence[int]]
    """Texts, or the tokens of each, where the provider takes them."""
    dimensions: int | None = None
    """The length of the vectors, for models that support several."""


class Embeddings(Struct, frozen=True):
    """The vectors of an embedding request, in the order of its inputs."""

    vectors: Sequence[Sequence[float]]
    input_tokens: int | None = None
    """The tokens that the provider counts, if it says so."""


@runtime_checkable
class EmbeddingProvider(Protocol):
    """A provider that has embedding models."""

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return the vectors of texts."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A provider, or a stream of one, that holds connections."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class LoadableProvider(Protocol):
    """A provider whose models are loaded into this process."""

    def check(self, model: str) -> None:
        """Raise if the model cannot be loaded."""
        ...

    async def load(self, model: str) -> None:
        """Load the model, so that its first request need not wait for it."""
        ...


@runtime_checkable
class ContextSizedProvider(Protocol):
    """A provider that knows how many tokens its models can read."""

    def context_tokens(self, model: str) -> int:
        """Return the size of a model's context, prompt and answer together."""
        ...


@asynccontextmanager
async def closing_stream(deltas: AsyncIterator[Delta]) -> AsyncGenerator[AsyncIterator[Delta], None]:
    """Close a stream and its connection at the end of the body; a user's provider may return a plain iterator."""
    try:
        yield deltas
    finally:
        if isinstance(deltas, Closable):
            await deltas.aclose()
