"""The engine's thread and its bridge to the loop, with a fake of the native server."""

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from lango.errors import MissingDependency
from lango.providers.local import model_engine as engine_module
from lango.providers.local.known_models import SMOLLM2
from lango.providers.local.model_engine import Chunk, Engine, close_engines, engine_for, threads

TIMEOUT_S = 120.0
ENDLESS = 10_000_000


class Counting:
    """Counts up to the number in the body, with a pause each; with `held`, only once it is released."""

    def __init__(self) -> None:
        self.count = 0
        self.at_once = 0
        self.most_at_once = 0
        self.may = threading.Event()

    def handle_chat_completions(self, prompt: Chunk, callback: Callable[[Chunk], bool]) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if prompt["held"]:
            assert self.may.wait(TIMEOUT_S)
        for number in range(prompt["to"]):
            time.sleep(0.0005)
            self.count += 1
            if callback({"number": number}):
                break
        self.at_once -= 1

    async def begun(self) -> None:
        """Wait until a request is served."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.at_once:
                await asyncio.sleep(0.001)


async def numbers(engine: Engine, to: int, *, held: bool = False) -> list[int]:
    return [chunk["number"] async for chunk in engine.chat({"to": to, "held": held}) if chunk]


@pytest.fixture
def server() -> Counting:
    return Counting()


@pytest.fixture
def engine(server: Counting) -> Any:
    engine = Engine(lambda: server)
    yield engine
    engine.close()


async def test_chunks_come_in_order_and_the_loop_runs_meanwhile(engine: Engine, server: Counting) -> None:
    counting = asyncio.create_task(numbers(engine, 30, held=True))
    await server.begun()  # it could not be seen from a loop that waits for it
    server.may.set()
    assert await counting == list(range(30))


async def test_requests_wait_for_each_other(engine: Engine, server: Counting) -> None:
    assert await asyncio.gather(*(numbers(engine, 5) for _ in range(4))) == [list(range(5))] * 4
    assert server.most_at_once == 1


async def test_closing_the_stream_stops_the_generation(engine: Engine, server: Counting) -> None:
    async with aclosing(engine.chat({"to": ENDLESS, "held": False})) as chunks:
        assert await anext(chunks) == {"number": 0}
    assert await numbers(engine, 1) == [0]  # it could only run because the other stopped
    assert server.count < ENDLESS


async def test_a_cancelled_reader_stops_the_generation(engine: Engine, server: Counting) -> None:
    reading = asyncio.create_task(numbers(engine, ENDLESS))
    await server.begun()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await numbers(engine, 1) == [0]
    assert server.count < ENDLESS


async def test_a_request_that_was_cancelled_in_the_queue_never_runs(engine: Engine, server: Counting) -> None:
    first = asyncio.create_task(numbers(engine, 20, held=True))
    await server.begun()
    waiting = asyncio.create_task(numbers(engine, ENDLESS))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    server.may.set()
    assert await first == list(range(20))
    assert await numbers(engine, 1) == [0]
    assert server.count == 21


async def test_a_queued_request_yields_empty_chunks(
    engine: Engine, server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_QUEUE_CHUNK_S", 0.01)
    first = asyncio.create_task(numbers(engine, 40, held=True))
    await server.begun()
    chunks: list[Chunk] = []
    async for chunk in engine.chat({"to": 2, "held": False}):
        chunks.append(chunk)
        server.may.set()
    assert await first == list(range(40))
    assert chunks[0] == {}
    assert [chunk for chunk in chunks if chunk] == [{"number": 0}, {"number": 1}]


async def test_an_error_of_the_native_server_is_raised_where_the_request_waits() -> None:
    loads = 0

    def load() -> Counting:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise MemoryError("no room")
        return Counting()

    engine = Engine(load)
    with pytest.raises(MemoryError):
        await numbers(engine, 1)
    assert await numbers(engine, 1) == [0]  # the next request tries to load again
    await engine.load()
    assert loads == 2
    engine.close()


async def test_a_panic_of_the_native_server_is_an_error_of_its_request_alone() -> None:
    class Panic(BaseException):
        """An error like the panic of a native library."""

    class Panicking(Counting):
        def handle_chat_completions(self, prompt: Chunk, callback: Callable[[Chunk], bool]) -> None:
            if prompt["to"] == 13:
                raise Panic("index out of bounds")
            super().handle_chat_completions(prompt, callback)

    engine = Engine(Panicking)
    with pytest.raises(RuntimeError, match="Panic: index out of bounds"):
        await numbers(engine, 13)
    assert await numbers(engine, 1) == [0]
    engine.close()


async def test_close_ends_a_generation_and_frees_the_model(engine: Engine, server: Counting) -> None:
    reading = asyncio.create_task(numbers(engine, ENDLESS))
    await server.begun()
    await asyncio.to_thread(engine.close)
    assert server.count < ENDLESS
    assert await reading == list(range(server.count))
    assert not engine._thread.is_alive()  # pyright: ignore[reportPrivateUsage]


def test_a_closed_event_loop_stops_the_generation(server: Counting) -> None:
    engine = Engine(lambda: server)
    left_open: list[Any] = []

    async def leave() -> None:
        left_open.append(engine.chat({"to": ENDLESS, "held": False}))
        await anext(left_open[0])

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()  # without closing what is open in it, as a crash would
    began = time.monotonic()
    while server.at_once:
        assert time.monotonic() - began < TIMEOUT_S
        time.sleep(0.001)
    assert server.count < ENDLESS
    engine.close()


def test_one_engine_per_file(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").symlink_to(tmp_path / "a.gguf")
    try:
        one = engine_for(SMOLLM2, tmp_path / "a.gguf")
        assert engine_for(SMOLLM2, tmp_path / "b.gguf") is one
        assert engine_for(SMOLLM2, tmp_path / "c.gguf") is not one
    finally:
        close_engines()


def test_a_missing_engine_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {"xllamacpp": None}.__getitem__)
    with pytest.raises(MissingDependency, match=r'pip install "lango-adk\[local\]"'):
        engine_for(SMOLLM2, tmp_path)


@pytest.mark.parametrize(("cores", "used"), [(1, 1), (2, 1), (8, 7)])
def test_the_engine_leaves_a_core_free(cores: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module.os, "sched_getaffinity", {0: set(range(cores))}.get, raising=False)
    assert threads() == used
