"""The agent of a server whose event loop is monitored: as its model, it does what hostile input asks for.

`LANGO_LOOP_LOG` names a file. Each callback of the loop that makes many calls, reads or writes much JSON or counts the
tokens of much text becomes a line of it. `LANGO_LOOP_DELAYS` names a file for the delays of the loop, in seconds.

A message is JSON: `{"say": text, "times": n}` is the text of the answer; `{"call": name, "arguments": [start, filling,
n, end]}` is a call with that text; `{"hold": [kind, n]}` does work on the loop that `LoopCounter` must notice. What
stands in a transcript as `NOTE{"note": [[text, n], ...]}END` is what the observer answers.
"""

import asyncio
import functools
import json
import math
import os
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
from types import FrameType
from typing import Any

from google.adk.agents import LlmAgent

from lango.adk import AdkTool, ProviderLlm
from lango.history.tokens import MAX_COUNTED_CHARACTERS, count_tokens
from lango.json_values import read_counted
from lango.memory.notes.note_format import OBSERVE_PROMPT
from lango.providers import Request
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, UsageDelta
from lango.store.engine.sqlite import writer as sqlite_writer
from lango.tools import Tool

_LEAST_DELAY_S = 0.005
_TICK_S = 0.002
_LEAST_CALLS, _LEAST_SIZE = 20_000, 100_000
SIZED = {
    "lango.json_values.read_counted": ("json", "data"),
    "lango.store.codec.json_text.dumps": ("json", ""),
    "lango.store.codec.json_text.loads": ("json", "text"),
    "lango.store.codec.json_text.dumps_untagged": ("json", ""),
    "lango.store.codec.json_text.loads_untagged": ("json", "text"),
    "lango.server.json_body._encode_any": ("json", ""),
    "lango.history.tokens.compact_json": ("json", ""),
    "lango.history.tokens._counted_tokens": ("tokens", "text"),
}
"""Functions whose work is a call of C: what they do, and the argument whose length counts, or `""` for the result."""
_NAMES = frozenset(name.rpartition(".")[2] for name in SIZED)


class LoopCounter:
    """Counts the calls and the sizes of each callback of the event loop, which are the same on any machine."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - as long as the process
        self._calls = 0
        self._sizes = {"json": 0, "tokens": 0}
        self._where = ""
        self._profile = self._count  # the same object each time

    def install(self) -> None:
        run: Any = asyncio.events.Handle._run

        def counted(handle: Any) -> Any:
            if sys.getprofile() is not self._profile:
                sys.setprofile(self._profile)  # of this thread, which runs the loop
            self._calls, self._where = 0, ""
            self._sizes["json"] = self._sizes["tokens"] = 0
            try:
                return run(handle)
            finally:
                if self._calls >= _LEAST_CALLS or max(self._sizes.values()) >= _LEAST_SIZE:
                    line = {"calls": self._calls, **self._sizes, "what": self._where or repr(handle)[:300]}
                    self._file.write(json.dumps(line) + "\n")

        asyncio.events.Handle._run = counted  # pyright: ignore[reportAttributeAccessIssue]

    def _count(self, frame: FrameType, event: str, given: Any) -> None:
        if event == "c_return":
            return
        if event != "return":
            self._calls += 1
            if self._calls == _LEAST_CALLS:
                self._where = _where(frame)
        if event == "c_call" or frame.f_code.co_name not in _NAMES:
            return
        kind, argument = SIZED.get(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}", ("", ""))
        if kind and (event == "return") == (not argument):
            self._add(frame, kind, frame.f_locals[argument] if argument else given or "")

    def _add(self, frame: FrameType, kind: str, value: str | bytes) -> None:
        self._sizes[kind] += len(value)
        if len(value) > _LEAST_SIZE:
            self._where = _where(frame)


class LoopDelays:
    """Measures how late the timers of the event loop are, for the benchmark `attacks`."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - as long as the process
        self._ticking: asyncio.Task[None] | None = None

    def install(self) -> None:
        run: Any = asyncio.events.Handle._run

        def first(handle: Any) -> Any:
            asyncio.events.Handle._run = run  # pyright: ignore[reportAttributeAccessIssue]
            self._ticking = asyncio.get_running_loop().create_task(self._tick())
            return run(handle)

        asyncio.events.Handle._run = first  # pyright: ignore[reportAttributeAccessIssue]

    async def _tick(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_S)
            late_s = time.monotonic() - began - _TICK_S
            if late_s > _LEAST_DELAY_S:
                self._file.write(f"{late_s}\n")


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
        if "hold" in order:
            _hold_loop(*order["hold"])
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


def _hold_loop(kind: str, amount: int) -> None:
    """Do on the event loop what no input may make it do, so that a test can show that it is noticed."""
    match kind:
        case "calls":
            for _ in range(amount):
                len("")
        case "json":
            read_counted(b"[" + b" " * amount + b"]")
        case _:
            for _ in range(amount // MAX_COUNTED_CHARACTERS + 1):
                count_tokens("word " * (MAX_COUNTED_CHARACTERS // 5))


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
    sqlite_writer._FAST_COMMIT_S, sqlite_writer._FAST_COMMITS_NEEDED = math.inf, 0  # pyright: ignore[reportPrivateUsage]
    LoopCounter(path).install()
elif path := os.environ.get("LANGO_LOOP_DELAYS"):
    LoopDelays(path).install()

root_agent = LlmAgent(
    name="hostile",
    model=ProviderLlm(provider=Hostile(), model="hostile/model"),
    tools=[
        AdkTool(Tool("give", "Return something large.", {"type": "object"}, _give)),
        _checked("pattern", {"a": {"type": "string", "pattern": "^(a+)+$"}}),
        _checked("around", {"a": {"type": "string", "pattern": "^((?=a)a+)+$"}}),
    ],
)
