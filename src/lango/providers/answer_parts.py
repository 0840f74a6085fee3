"""Merge the deltas of an answer as they come: what a model wrote, thought and called, whatever its provider sends."""

from typing import Any, assert_never

from msgspec import Struct, to_builtins

from lango.json_values import read_json
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, ThoughtDelta, UsageDelta

_MAX_CHARACTERS = 4_000_000
_MAX_VALUES = 10_000


class _Call(Struct):
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerParts(Struct):
    """An answer so far, also one that never ends."""

    text: list[str] = []
    thoughts: list[str] = []
    calls: dict[int, _Call] = {}
    usage: dict[str, int] = {}
    finish: str = ""
    size: int = 0
    """The characters that are kept; beyond a bound, no more are."""

    def add(self, delta: Delta) -> None:
        """Add a delta."""
        match delta:
            case TextDelta(text):
                self._keep(self.text, text)
            case ThoughtDelta(text):
                self._keep(self.thoughts, text)
            case CallDelta():
                call = self.calls.setdefault(delta.index, _Call())
                call.id = call.id or delta.id
                call.name = delta.name or call.name
                call.arguments += self._within_bound(delta.arguments)
            case UsageDelta():
                counted: dict[str, int | None] = to_builtins(delta)
                self.usage |= {name: count for name, count in counted.items() if count is not None}
            case Finish():
                self.finish = delta.detail or delta.reason
            case _:
                assert_never(delta)

    def _keep(self, pieces: list[str], text: str) -> None:
        if kept := self._within_bound(text):
            pieces.append(kept)

    def _within_bound(self, text: str) -> str:
        """Count a piece; return it, or nothing if the answer is too long to be kept whole."""
        self.size += len(text)
        return text if self.size <= _MAX_CHARACTERS else ""

    def to_json(self) -> dict[str, Any] | None:
        """Return the answer as a JSON object, or None if nothing came."""
        if not (self.text or self.thoughts or self.calls or self.finish):
            return None
        calls = [
            {"id": call.id, "name": call.name, "arguments": _arguments(call.arguments)} for call in self.calls.values()
        ]
        return {
            "text": "".join(self.text),
            "thoughts": "".join(self.thoughts),
            "calls": calls,
            "finish": self.finish,
            "usage": self.usage,
        }


def _arguments(text: str) -> Any:
    try:
        return read_json(text or "{}", _MAX_VALUES)
    except (ValueError, RecursionError):
        return text
