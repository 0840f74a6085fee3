"""Streams that are left before their end: every generator of a vendor's SDK is closed there, none by the collector.

A generator that is left to the garbage collector is closed in a task of its own, at some later time, side by side with
those inside it: "async generator already executing" on stderr is one of the ends of that.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from lango import open_runtime
from lango.events import TextDelta as TextDeltaEvent
from lango.providers import Delta, Finish, Provider, Request, ResilientProvider, Retries, TextDelta
from lango.providers.protocol import closing_stream
from lango.providers.wrappers.observed_provider import ObservedProvider, trace_request
from tests.agents.parts import TIMEOUT_S, collect, last_error, settings_for, until
from tests.integration.providers.test_wire_faults import REQUEST, WIRES, begun, hangs, serve
from tests.support.servers.wire_server import Answer, Exchange

ENDS: dict[str, list[Any]] = {
    "chat": [{"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"],
    "responses": [{"type": "response.completed", "response": {"status": "completed", "output": []}}],
    "anthropic": [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "gemini": [{"candidates": [{"finishReason": "STOP"}]}],
}
LEFT_BY_SDK = {"AsyncStream._iter_events", "SSEDecoder.aiter_bytes"}
"""OpenAI's SDK leaves these itself when it reads the end of a chat, `[DONE]`."""


@contextmanager
def nothing_left_behind() -> Generator[None]:
    """Check that no generator is left to the collector, and that nothing is reported to the loop or the interpreter."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    hooks, unraisable = sys.get_asyncgen_hooks(), sys.unraisablehook
    close_later = hooks.finalizer
    assert close_later

    def finalizer(generator: Any) -> None:
        if generator.__qualname__ not in LEFT_BY_SDK:
            found.append(generator.__qualname__)
        close_later(generator)

    gc.collect()
    sys.set_asyncgen_hooks(finalizer=finalizer)
    sys.unraisablehook = lambda report: found.append(f"{report.err_msg}: {report.exc_value}")
    loop.set_exception_handler(lambda _, context: found.append(str(context)))
    try:
        yield
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(finalizer=close_later)
        sys.unraisablehook = unraisable
        loop.set_exception_handler(None)
    assert found == []


def answering(name: str, *, more: int = 1) -> Answer:
    """Send a whole answer of some pieces, and leave the connection open for the client to close."""
    wire = WIRES[name]

    async def then(exchange: Exchange) -> None:
        for event in [wire.more] * (more - 1) + ENDS[name]:
            await exchange.event(event, named=wire.named)
        await exchange.end()

    return begun(wire, then)


def whole(provider: Provider) -> Provider:
    """Wrap a provider as the runtime does."""
    return ObservedProvider(ResilientProvider(provider, retries=Retries(attempts=1)), trace_request)


async def read(provider: Provider, stop_at: Callable[[Delta], bool], request: Request = REQUEST) -> list[Delta]:
    found: list[Delta] = []
    async with closing_stream(provider.stream(request)) as deltas:
        async for delta in deltas:
            found.append(delta)
            if stop_at(delta):
                break
    return found


def is_text(delta: Delta) -> bool:
    return isinstance(delta, TextDelta)


@pytest.mark.parametrize("name", WIRES)
async def test_a_whole_answer_leaves_nothing_behind(name: str) -> None:
    async with serve(WIRES[name], answering(name, more=3)) as served:
        with nothing_left_behind():
            found = await read(whole(served.provider), lambda _: False)
        assert (sum(map(is_text, found)), isinstance(found[-1], Finish)) == (3, True)


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("more", [1, 30])
async def test_a_reader_that_leaves_in_mid_answer_leaves_nothing_behind(name: str, more: int) -> None:
    """As when the budget is reached; with more pieces that are there already, and with none."""
    answer = answering(name, more=more) if more > 1 else begun(WIRES[name], hangs)
    async with serve(WIRES[name], answer) as served:
        with nothing_left_behind():
            await read(whole(served.provider), is_text)
        if more == 1:
            async with asyncio.timeout(TIMEOUT_S):
                await served.server.closed_by_client.wait()


@pytest.mark.parametrize("name", WIRES)
async def test_an_error_of_the_reader_leaves_nothing_behind(name: str) -> None:
    def fail(delta: Delta) -> bool:
        raise LookupError(str(delta))

    async with serve(WIRES[name], answering(name, more=3)) as served:
        with nothing_left_behind(), pytest.raises(LookupError):
            await read(whole(served.provider), fail)


@pytest.mark.parametrize("name", WIRES)
async def test_a_cancelled_reader_leaves_nothing_behind(name: str) -> None:
    async with serve(WIRES[name], begun(WIRES[name], hangs)) as served:
        first = asyncio.Event()

        def note(delta: Delta) -> bool:
            first.set() if is_text(delta) else None
            return False

        with nothing_left_behind():
            reading = asyncio.create_task(read(whole(served.provider), note))
            await first.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading


async def test_an_answer_that_is_cut_at_a_stop_sequence_leaves_nothing_behind() -> None:
    request = Request(REQUEST.model, REQUEST.messages, stop=("aa",))
    async with serve(WIRES["responses"], answering("responses", more=5)) as served:
        with nothing_left_behind():
            found = await read(whole(served.provider), lambda _: False, request)
        assert found == [Finish("stop", "stop_sequence", stop_sequence="aa")]


@pytest.mark.parametrize("name", WIRES)
async def test_a_turn_that_is_cancelled_in_mid_answer_writes_nothing_to_stderr(
    name: str, sqlite_url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    unraisable = sys.unraisablehook
    sys.unraisablehook = lambda report: reports.append(f"{report.err_msg}: {report.exc_value}")
    loop.set_exception_handler(lambda _, context: reports.append(str(context)))
    try:
        async with serve(WIRES[name], begun(WIRES[name], hangs)) as served:
            async with open_runtime(settings_for(sqlite_url), provider=whole(served.provider)) as runtime:
                turn = await runtime.submit("s", "hi")
                await until(turn.follow(), TextDeltaEvent)
                assert await runtime.cancel("s")
                assert last_error(await collect(turn.follow())).error == "TurnCancelled"
            gc.collect()
            await asyncio.sleep(0)  # generators that the collector found are closed in tasks
    finally:
        sys.unraisablehook = unraisable
        loop.set_exception_handler(None)
    assert reports == []
    assert capfd.readouterr().err == ""
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
