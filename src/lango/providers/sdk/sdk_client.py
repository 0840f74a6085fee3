"""Create vendor SDK clients on first use, one per event loop, and stream and check their answers."""

import asyncio
import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, Generic, Protocol, TypedDict, TypeVar, Unpack, cast
from weakref import WeakKeyDictionary

from msgspec import Struct

from lango.errors import MissingDependency, ProviderError
from lango.providers.call_log import note_request, note_response
from lango.providers.protocol import Delta, EmbeddingRequest, Embeddings, Request
from lango.providers.sdk.error_translation import VendorRequest, translate_errors
from lango.providers.sdk.json_answers import stream_json

T = TypeVar("T")


class Timeouts(Struct, frozen=True):
    """Time limits of a model call: to connect, for the next chunk, and in total with retries."""

    connect_s: float = 10.0
    idle_s: float = 120.0
    total_s: float = 900.0


def load_sdk(module: str, install: str) -> ModuleType:
    """Import a vendor's SDK. Raises `MissingDependency` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise MissingDependency(f'The package {module!r} is not installed: pip install "{install}"') from exc


class ClientPerLoop(Generic[T]):
    """One client per event loop: a connection pool works only in the loop that opened it."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._making: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def get(self) -> T:
        """Return this loop's client; it is made in a thread, because importing an SDK takes a second.

        Concurrent first requests share one client: each client reads all certificates, which takes 50 ms.
        """
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            async with self._making.setdefault(loop, asyncio.Lock()):
                client = self._clients.get(loop)
                if client is None:
                    client = self._clients[loop] = await asyncio.to_thread(self._make)
        return client

    async def aclose(self) -> None:
        """Close this loop's client; the next request makes a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await self._close(client)


class StreamReader(Protocol):
    """Converts the events of one answer to deltas."""

    def deltas(self, event: Any, /) -> list[Delta]:
        """Return the deltas of an event."""
        ...

    def end(self) -> list[Delta]:
        """Return the last deltas after the stream; raise if the answer is broken."""
        ...


class CommonOptions(TypedDict, total=False):
    """What every provider of an SDK can be made with, in addition to its key."""

    name: str
    base_url: str | None
    timeouts: Timeouts
    options: Mapping[str, Any]
    """Fields that are added to every request."""


class SdkProvider(ABC, Generic[T]):
    """A provider that uses a vendor's SDK with the client `T`."""

    vendor: ClassVar[str]
    """The provider's name, unless the configuration gives it another."""

    def __init__(self, api_key: str | None = None, **common: Unpack[CommonOptions]) -> None:
        self.name = common.get("name") or self.vendor
        """The provider's name in the configuration."""
        self._api_key = api_key or ""
        self._base_url = common.get("base_url")
        self._timeouts = common.get("timeouts", Timeouts())
        self._options = dict(common.get("options", {}))
        self._clients = ClientPerLoop(self._make_client, self._close_client)

    def __repr__(self) -> str:
        """Show the name without the key."""
        return f"<{type(self).__name__} {self.name}>"

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the answer to a request; closing the iterator closes the connection."""
        return self._stream(request) if self.constrains_answer(request) else stream_json(request, self._stream)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        await self._clients.aclose()

    @staticmethod
    def constrains_answer(request: Request) -> bool:
        """Whether the API constrains the answer to this request, if it must be JSON."""
        del request
        return True

    @staticmethod
    @abstractmethod
    def translate(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
        """Translate an error of the SDK; return None for other exceptions."""

    @abstractmethod
    def _reader(self, request: Request, exchange: VendorRequest) -> StreamReader: ...

    @abstractmethod
    async def _send(self, request: Request, exchange: VendorRequest) -> Any:
        """Send a request; return its answer, an asynchronous context manager and iterable."""

    @abstractmethod
    def _make_client(self) -> T: ...

    async def _close_client(self, client: T) -> None:
        await cast("Any", client).close()

    async def _stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Send a request and yield its answer, with errors translated; closing the iterator closes the connection."""
        exchange = VendorRequest(self.name, request.model, self._api_key)
        reader = self._reader(request, exchange)
        with translate_errors(self.translate, exchange):
            async with await self._send(request, exchange) as answer:
                events = aiter(answer)
                try:
                    async for event in events:
                        for delta in reader.deltas(event):
                            yield delta
                finally:
                    await _end_generators(events)
                for delta in reader.end():
                    yield delta

    def _generated_client(self, package: str, kind: str) -> T:
        """Make a client of OpenAI's or Anthropic's SDK, which one generator makes."""
        sdk = load_sdk(package, f"lango-adk[{package}]")
        return getattr(sdk, kind)(
            api_key=self._api_key or "none",  # a self-hosted server often needs no key; the SDK requires one
            base_url=self._base_url,
            timeout=sdk.Timeout(self._timeouts.idle_s, connect=self._timeouts.connect_s),
            max_retries=0,
            http_client=sdk.DefaultAsyncHttpxClient(
                event_hooks={"request": [note_request], "response": [note_response]}
            ),
        )


async def _end_generators(events: AsyncIterator[Any]) -> None:
    """End all generators of an SDK inside each other by cancelling the read of the next event in the innermost one.

    The SDKs close none of them: left in mid-answer, they would be closed by the garbage collector, at any time and
    side by side.
    """

    async def has_next() -> bool:
        async for _ in events:
            return True
        return False

    while True:
        step = asyncio.create_task(has_next())
        await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        if step.cancelled() or step.exception() is not None or not step.result():
            return


def checked_embeddings(
    request: EmbeddingRequest, exchange: VendorRequest, vectors: Sequence[Any], input_tokens: int | None = None
) -> Embeddings:
    """Return the vectors of a request. Raise `ProviderProtocolError` unless there is one of numbers for each input."""
    if len(vectors) != len(request.inputs):
        raise exchange.protocol_error(f"{len(vectors)} vectors for {len(request.inputs)} texts")
    for vector in vectors:
        if not isinstance(vector, list) or not all(isinstance(number, int | float) for number in vector):  # pyright: ignore[reportUnknownVariableType]
            raise exchange.protocol_error("a vector is not a list of numbers")
    return Embeddings(vectors, input_tokens)
