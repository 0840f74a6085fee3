"""Test agents without a model: a provider that answers from a script.

```python
provider = ScriptedProvider(["hello", ToolCall("c1", "exec", {"cmd": "ls"}), RuntimeError("boom")])
```
"""

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import assert_never

from lango.messages import ToolCall
from lango.providers.protocol import CallDelta, Delta, Finish, Request, TextDelta, ThoughtDelta, UsageDelta

Piece = str | ToolCall | Delta
Answer = Piece | Sequence[Piece] | BaseException
Entry = Answer | Callable[[Request], Answer] | Callable[[Request], Awaitable[Answer]]
"""One model call of a script: text, a call, a list of both, deltas, an exception, or a function of the request."""


class ScriptEnded(AssertionError):
    """The model was called more often than the script has entries."""


class ScriptedProvider:
    """A provider that answers with the entries of a script, one per model call, and keeps the requests.

    - a text is streamed in a few pieces; a `ToolCall` is called; a list of both is one answer, with parallel calls
    - a list of only deltas is streamed unchanged: without a `Finish` the stream is broken
    - an exception is raised
    - a function gets the request and returns any of these; it may be async
    """

    def __init__(self, script: Iterable[Entry], *, name: str = "scripted", chunk_delay_s: float = 0.0) -> None:
        """`chunk_delay_s` is the delay before each delta."""
        self.requests: list[Request] = []
        self._script: Iterator[Entry] = iter(script)
        self.name = name
        self._chunk_delay_s = chunk_delay_s

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the next entry of the script."""
        self.requests.append(request)
        answer = await self._answer(request)
        if isinstance(answer, BaseException):
            raise answer
        for delta in deltas_of(answer):
            await asyncio.sleep(self._chunk_delay_s)
            yield delta

    async def _answer(self, request: Request) -> Answer:
        try:
            entry = next(self._script)
        except StopIteration:
            calls = len(self.requests)
            raise ScriptEnded(
                f"The script of {self.name!r} has {calls - 1} entries, and the model was called {calls} times"
            ) from None
        if not callable(entry):
            return entry
        answer = entry(request)
        return await answer if inspect.isawaitable(answer) else answer


def deltas_of(answer: Piece | Sequence[Piece]) -> list[Delta]:
    """Return the deltas of an answer. Unless it consists of deltas, a missing `Finish` is added."""
    pieces = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else list(answer)
    verbatim = isinstance(answer, Sequence) and not any(isinstance(piece, str | ToolCall) for piece in pieces)
    deltas: list[Delta] = []
    calls = 0
    for piece in pieces:
        match piece:
            case str():
                deltas += [TextDelta(part) for part in _split_text(piece)]
            case ToolCall():
                deltas += _call(calls, piece)
                calls += 1
            case TextDelta() | ThoughtDelta() | UsageDelta() | Finish():
                deltas.append(piece)
            case CallDelta():
                calls = max(calls, piece.index + 1)
                deltas.append(piece)
            case _:
                assert_never(piece)
    if not verbatim and not any(isinstance(delta, Finish) for delta in deltas):
        deltas.append(Finish("tool_calls" if calls else "stop"))
    return deltas


def _split_text(text: str) -> list[str]:
    size = max(1, -(-len(text) // 3))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _call(index: int, call: ToolCall) -> list[Delta]:
    arguments = json.dumps(dict(call.input or {}))
    half = len(arguments) // 2
    return [
        CallDelta(index, call.id, call.name, signature=call.signature),
        CallDelta(index, arguments=arguments[:half]),
        CallDelta(index, arguments=arguments[half:]),
    ]
