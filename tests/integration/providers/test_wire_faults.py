"""Faults on the wire, and connections that must close: each vendor's SDK against a server that misbehaves."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lango.errors import ProviderProtocolError, ProviderTimeout, ProviderUnavailable
from lango.messages import Message
from lango.providers import Delta, Request, ResilientProvider, Retries, TextDelta, Timeouts
from lango.providers.anthropic import AnthropicProvider
from lango.providers.gemini import GeminiProvider
from lango.providers.openai import OpenAIProvider
from tests.agents.parts import TIMEOUT_S, Leaps
from tests.support.servers.wire_server import Answer, Exchange, WireServer, wire_server

REQUEST = Request("m", (Message("user", "hi"),))


class Wire:
    """A vendor: its provider, and the beginning and continuation of its answers."""

    def __init__(self, kind: Any, first: list[Any], more: Any, named: bool, **settings: Any) -> None:
        self.kind = kind
        self.first = first
        self.more = more
        self.named = named
        self.settings = settings


_MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [],
    "model": "m",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
WIRES = {
    "chat": Wire(
        OpenAIProvider,
        [],
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
        False,
        api="chat",
    ),
    "responses": Wire(
        OpenAIProvider,
        [],
        {"type": "response.output_text.delta", "delta": "a", "item_id": "i", "output_index": 0, "content_index": 0},
        True,
        api="responses",
    ),
    "anthropic": Wire(
        AnthropicProvider,
        [
            {"type": "message_start", "message": _MESSAGE},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        True,
    ),
    "gemini": Wire(
        GeminiProvider, [], {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}, False
    ),
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


class Endpoint:
    """A loopback server that speaks a wire format, and the provider that uses it."""

    def __init__(self, wire: Wire, server: WireServer) -> None:
        self.server = server
        self.provider = wire.kind("key", base_url=server.url, **wire.settings)

    async def collect(self, **settings: Any) -> list[Delta]:
        retries = settings.pop("retries", Retries(attempts=1))
        provider = ResilientProvider(self.provider, retries=retries, **settings)
        return [delta async for delta in provider.stream(REQUEST)]


@asynccontextmanager
async def serve(wire: Wire, *answers: Answer) -> AsyncGenerator[Endpoint, None]:
    async with wire_server(*answers) as server:
        endpoint = Endpoint(wire, server)
        try:
            yield endpoint
        finally:
            await endpoint.provider.aclose()


def begun(wire: Wire, then: Answer) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.events(*wire.first, wire.more, named=wire.named)
        await then(exchange)

    return answer


async def hangs(exchange: Exchange) -> None:
    await exchange.until_closed()


async def cut(exchange: Exchange) -> None:
    """Return without an end: the connection closes in the middle of the body."""


async def ends_without_a_finish(exchange: Exchange) -> None:
    await exchange.end()


async def is_not_json(exchange: Exchange) -> None:
    await exchange.chunk('event: content_block_delta\ndata: {"half": \n\n')
    await exchange.end()


async def has_the_wrong_shape(exchange: Exchange) -> None:
    await exchange.chunk('event: content_block_delta\ndata: {"type": "content_block_delta", "candidates": 5, ')
    await exchange.chunk('"choices": [{"delta": 7}]}\n\n')
    await exchange.end()


@pytest.mark.parametrize("fault", [cut, ends_without_a_finish, is_not_json, has_the_wrong_shape])
async def test_a_broken_stream_is_a_protocol_error(wire: Wire, fault: Answer) -> None:
    async with serve(wire, begun(wire, fault)) as endpoint:
        with pytest.raises(ProviderProtocolError):
            await endpoint.collect()


async def test_closing_the_stream_closes_the_connection(wire: Wire) -> None:
    async with serve(wire, begun(wire, hangs)) as endpoint:
        stream = ResilientProvider(endpoint.provider).stream(REQUEST)
        async for delta in stream:
            if isinstance(delta, TextDelta):
                break
        await stream.aclose()
        await asyncio.wait_for(endpoint.server.closed_by_client.wait(), TIMEOUT_S)


async def test_cancelling_the_reader_closes_the_connection(wire: Wire) -> None:
    async with serve(wire, begun(wire, hangs)) as endpoint:
        heard = asyncio.Event()

        async def read() -> None:
            async for delta in ResilientProvider(endpoint.provider).stream(REQUEST):
                if isinstance(delta, TextDelta):
                    heard.set()

        task = asyncio.create_task(read())
        await asyncio.wait_for(heard.wait(), TIMEOUT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(endpoint.server.closed_by_client.wait(), TIMEOUT_S)


async def test_a_stream_that_stops_is_given_up_and_its_connection_closed(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(wire, begun(wire, hangs)) as endpoint:
        clock = Leaps(monkeypatch)
        stream = ResilientProvider(endpoint.provider, timeouts=Timeouts(idle_s=60)).stream(REQUEST)
        while not isinstance(await anext(stream), TextDelta):
            pass
        more = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # it waits for the next chunk by now
        await clock.pass_by(61)
        with pytest.raises(ProviderTimeout):
            await more
        await asyncio.wait_for(endpoint.server.closed_by_client.wait(), TIMEOUT_S)


async def test_a_trickling_stream_is_given_up_after_the_total_time() -> None:
    """With one SDK: the clock is the resilient provider's, and its unit tests have the rest."""
    wire = WIRES["anthropic"]

    async def trickles(exchange: Exchange) -> None:
        while True:
            await exchange.event(wire.more, named=wire.named)
            await asyncio.sleep(0.02)

    async with serve(wire, begun(wire, trickles)) as endpoint:
        ticks = itertools.count(1_000, 5)  # five seconds from one look at the clock to the next
        with pytest.raises(ProviderTimeout, match="not finished"):
            await endpoint.collect(timeouts=Timeouts(total_s=60), clock=lambda: next(ticks))
        await asyncio.wait_for(endpoint.server.closed_by_client.wait(), TIMEOUT_S)


async def test_the_sdks_timeout_is_translated(wire: Wire) -> None:
    async with wire_server(hangs) as server:
        provider = wire.kind("key", base_url=server.url, timeouts=Timeouts(idle_s=0.1), **wire.settings)
        with pytest.raises(ProviderTimeout):
            await anext(provider.stream(REQUEST))
        await provider.aclose()


async def test_busy_servers_are_retried_after_their_retry_after(wire: Wire) -> None:
    async def busy(exchange: Exchange) -> None:
        await exchange.status(503, {"error": {"message": "busy", "type": "x"}}, {"retry-after": "0.03"})

    async with serve(wire, busy) as endpoint:
        with pytest.raises(ProviderUnavailable, match="busy") as caught:
            await endpoint.collect(retries=Retries(attempts=3, base_s=0.001))
        assert caught.value.retry_after_s == 0.03
        assert caught.value.status == 503
        assert len(endpoint.server.requests) == 3  # the SDKs' own retries are off: three, not nine


async def test_an_html_error_page_is_a_one_line_error(wire: Wire) -> None:
    async def html(exchange: Exchange) -> None:
        await exchange.status(502, "<html><body>Bad Gateway</body></html>")

    async with serve(wire, html) as endpoint:
        with pytest.raises(ProviderUnavailable, match="502"):
            await endpoint.collect()
