"""The agent of a server whose event loop is monitored: as its model, it does what hostile input asks for.

`LANGO_LOOP_LOG` names a file. Each callback of the loop that takes more than a few milliseconds of CPU, and each time
that the loop had to wait while this process was busy, becomes a line of it: what it was, milliseconds, and how much
slower this machine is than the one the bound was set on.

A message is JSON: `{"say": text, "times": n}` is the text of the answer; `{"call": name, "arguments": [start, filling,
n, end]}` is a call with that text. What stands in a transcript as `NOTE{"note": [[text, n], ...]}END` is what the
observer answers.
"""

import asyncio
import functools
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
from types import FrameType
from typing import Any

from google.adk.agents import LlmAgent

from lango.adk import AdkTool, ProviderLlm
from lango.memory.notes.note_format import OBSERVE_PROMPT
from lango.providers import Request
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, UsageDelta
from lango.store.engine import sqlite
from lango.tools import Tool

_LEAST_S = 0.005
_TICK_S = 0.002
_USUAL_S = (0.004, 0.002)  # what the two parts of `_calibrate` take where the bound was set


def _calibrate() -> float:
    """Return how many times slower this machine is just now than the usual one, in arithmetic or with new memory."""
    began = time.thread_time()
    total = 0
    for number in range(60_000):
        total += number % 7
    calculated = time.thread_time()
    objects = [[number] for number in range(20_000)]
    allocated = time.thread_time()
    del objects
    return max(1.0, (calculated - began) / _USUAL_S[0], (allocated - calculated) / _USUAL_S[1])


class Watchdog:
    """Measures an event loop from inside, by CPU time, which does not grow on a busy machine."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - as long as the process
        self._ticking: asyncio.Task[None] | None = None
        self._loop_thread = threading.get_ident()
        self._began = 0.0
        self._stack = ""

    def install(self) -> None:
        run: Any = asyncio.events.Handle._run

        def measured(handle: Any) -> Any:
            began = time.thread_time()
            self._loop_thread, self._began, self._stack = threading.get_ident(), time.monotonic(), ""
            try:
                return run(handle)
            finally:
                took = time.thread_time() - began
                if took > _LEAST_S:
                    self._write("callback", took, self._stack or repr(handle)[:300])
                self._began = 0.0
                if self._ticking is None:
                    self._ticking = asyncio.get_running_loop().create_task(self._tick())

        asyncio.events.Handle._run = measured  # pyright: ignore[reportAttributeAccessIssue]
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        """Record where a long callback is, for the message of a failing test."""
        while True:
            time.sleep(_LEAST_S)
            if self._began and time.monotonic() - self._began > 4 * _LEAST_S and not self._stack:
                frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
                self._stack = _where(frames.get(self._loop_thread))

    def _others(self) -> str:
        """Describe where the other threads are."""
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        return " | ".join(_where(frame) for ident, frame in frames.items() if ident != self._loop_thread)

    async def _tick(self) -> None:
        """Notice a thread that holds the interpreter's lock: the loop is late, and this process is busy."""
        while True:
            wall, busy, own, queued = time.monotonic(), time.process_time(), time.thread_time(), _queued_s()
            await asyncio.sleep(_TICK_S)
            others = time.process_time() - busy - (time.thread_time() - own)
            held = min(time.monotonic() - wall - _TICK_S - (_queued_s() - queued), others)
            if held > _LEAST_S:
                self._write("held", held, self._others())

    def _write(self, kind: str, took: float, what: str) -> None:
        line = {"kind": kind, "ms": round(took * 1000, 1), "slower": round(_calibrate(), 2), "what": what}
        self._file.write(json.dumps(line) + "\n")


def _queued_s() -> float:
    """Return how long this thread could run and had no core: other processes had them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _where(frame: FrameType | None) -> str:
    calls = reversed(traceback.extract_stack(frame)[-8:])
    return " < ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in calls)


class Hostile:
    name = "hostile"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        order: Any = {}
        if request.system.startswith(OBSERVE_PROMPT):
            yield TextDelta(await asyncio.to_thread(_notes, last.content))
            yield Finish("stop")
            return
        if last.role == "user" and last.content.startswith('{"') and len(last.content) < 10_000:
            order = json.loads(last.content)
        if "call" in order:
            for delta in await asyncio.to_thread(_calls, order):
                yield delta
            return
        text = await asyncio.to_thread(_made, order.get("say", "ok"))
        for number in range(order.get("times", 1)):
            if number % 100 == 99:
                await asyncio.sleep(0)  # a connection brings some pieces at a time
            yield TextDelta(text)
        yield UsageDelta(10, 5)
        yield Finish("stop")


def _calls(order: dict[str, Any]) -> list[Delta]:
    start, filling, count, end = order["arguments"]  # a text, not a value: a model sends no more, and it costs nothing
    text = start + filling * count + end
    calls = [CallDelta(at, f"c{at}", order["call"], text) for at in range(order.get("times", 1))]
    return [*calls, UsageDelta(10, 5), Finish("tool_calls")]


def _notes(transcript: str) -> str:
    """Return what the newest order in a transcript asks an observer to answer."""
    order = transcript.rpartition("NOTE{")[2].partition("}END")[0]
    pieces: list[Any] = [["- [low] (1-1) a note", 1]]
    if order and order != transcript:
        pieces = json.loads("{" + order + "}")["note"]
    return "".join(text.replace("#", str(at)) for text, count in pieces for at in range(count))


@functools.cache
def _repeated(text: str, count: int) -> str:
    return text * count


# made before anything is measured: the interpreter makes a text of 50 MB in one go, and no other thread runs meanwhile
for _text, _count in (("word ", 10_000_000), ("a", 10_000_000), ("漢字", 5_000_000)):
    _repeated(_text, _count)


def _made(value: Any) -> Any:
    """Make what is too long to be sent: `{"repeat": [text, n]}`, `{"deep": n}`, `{"many": n}`."""
    match value:
        case {"repeat": [str(text), int(count)]}:
            return _repeated(text, count)
        case {"deep": int(count)}:
            nested: Any = 1
            for _ in range(count):
                nested = [nested]
            return nested
        case {"many": int(count)}:
            return [{"key": number} for number in range(count)]
        case _:
            return value


def _give(arguments: dict[str, Any]) -> Any:
    return _made(arguments["what"])


def _checked(name: str, schema: dict[str, Any]) -> AdkTool:
    return AdkTool(Tool(name, name, {"type": "object", "properties": schema}, lambda arguments: "fits"))  # pyright: ignore


if path := os.environ.get("LANGO_LOOP_LOG"):
    # as on the fastest disk: whatever may be written on the event loop is
    sqlite._FAST_COMMIT_S, sqlite._FAST_COMMITS_NEEDED = math.inf, 0  # pyright: ignore[reportPrivateUsage]
    Watchdog(path).install()

root_agent = LlmAgent(
    name="hostile",
    model=ProviderLlm(provider=Hostile(), model="hostile/model"),
    tools=[
        AdkTool(Tool("give", "Return something large.", {"type": "object"}, _give)),
        _checked("pattern", {"a": {"type": "string", "pattern": "^(a+)+$"}}),
        _checked("around", {"a": {"type": "string", "pattern": "^((?=a)a+)+$"}}),
    ],
)
