"""What is folded to a line and can be opened: calls of tools, and what a model thought."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from lango.cli.terminal_text import one_line, visible

_VALUE_CHARACTERS = 40
_OPENED_LINES = 400


class Fold(Struct):
    """Something that is shown as one line until somebody opens it."""

    title: str
    parts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Headings, each with its text."""
    note: str = ""
    """What stands at the end of the line: how long it took, or what went wrong."""
    bad: bool = False


class Folds:
    """Everything that can be opened, by its number."""

    def __init__(self) -> None:
        self._folds: list[Fold] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._folds)

    def add(self, fold: Fold) -> int:
        """Keep a fold and return its number."""
        self._folds.append(fold)
        return len(self._folds)

    def find(self, number: int | None) -> tuple[int, Fold] | None:
        """Return a fold by its number, or the newest."""
        wanted = len(self._folds) if number is None else number
        return (wanted, self._folds[wanted - 1]) if 1 <= wanted <= len(self._folds) else None


def call_fold(
    name: str, arguments: Mapping[str, Any], result: Mapping[str, Any] | None, ok: bool, took_s: float | None
) -> Fold:
    """Fold a call of a tool."""
    note = "" if took_s is None else seconds(took_s)
    if not ok:
        note = " ".join(part for part in (note, f"failed: {one_line(_error(result))}") if part)
    parts = [("arguments", readable(arguments))]
    parts.append(("result", "none (any more)" if result is None else readable(result)))
    return Fold(call_title(name, arguments), parts, note, bad=not ok)


def call_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Say a call in a line: `read_file(path="a.txt")`, long values cut."""
    told = (f"{one_line(str(key))}={_short(value)}" for key, value in arguments.items())
    return f"{one_line(name)}({', '.join(told)})"


def exact(arguments: Mapping[str, Any]) -> str:
    """Say arguments exactly, for somebody who decides about them."""
    return visible(json.dumps(dict(arguments), ensure_ascii=False, indent=2, default=str))


def readable(value: Mapping[str, Any]) -> str:
    """Say a result for a reader: texts as they stand, everything else as JSON."""
    return visible("\n".join(_clipped(_lines(value)))) or "{}"


def seconds(took_s: float) -> str:
    """Say how long something took."""
    return f"{took_s:.1f} s" if took_s < 100 else f"{took_s / 60:.0f} min"


def _error(result: Mapping[str, Any] | None) -> str:
    told = (result or {}).get("error") or (result or {}).get("result") or "no result"
    return str(told)


def _short(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), _VALUE_CHARACTERS)


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    for key, one in value.items():
        if isinstance(one, str) and "\n" in one:
            yield f"{key}:"
            yield from (f"  {line}" for line in one.rstrip("\n").split("\n"))
        else:
            yield f"{key}: {one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, default=str)}"


def _clipped(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == _OPENED_LINES:
            yield f"... {1 + sum(1 for _ in lines)} more lines"
            return
        yield line
