"""Collapse tool calls and thoughts to one line that can be opened."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lango.cli.terminal_text import one_line, printable

if TYPE_CHECKING:
    from lango.cli.chat.terminal.screen import Screen

_VALUE_CHARACTERS = 40
_SHORT_CHARACTERS = 80
_OPENED_LINES = 400


class CollapsedSection(Struct):
    """A tool call or thought, shown as one line until the user opens it."""

    title: str
    parts: list[tuple[str, str]] = []
    """Headings and texts."""
    note: str = ""
    """The end of the line: the duration, or the error."""
    failed: bool = False


class CollapsedSections:
    """The sections of a chat, by number."""

    def __init__(self) -> None:
        self._sections: list[CollapsedSection] = []

    def __len__(self) -> int:
        """Return the number of sections."""
        return len(self._sections)

    def add(self, section: CollapsedSection) -> int:
        """Add a section and return its number."""
        self._sections.append(section)
        return len(self._sections)

    def find(self, number: int | None) -> tuple[int, CollapsedSection] | None:
        """Return a section by its number, or the newest."""
        wanted = len(self._sections) if number is None else number
        return (wanted, self._sections[wanted - 1]) if 1 <= wanted <= len(self._sections) else None


def tool_call_section(
    name: str, arguments: Mapping[str, Any], result: Mapping[str, Any] | None, ok: bool, took_s: float | None
) -> CollapsedSection:
    """Return the section of a tool call."""
    note = "" if took_s is None else format_seconds(took_s)
    if not ok:
        note = " ".join(part for part in (note, f"failed: {one_line(_error_text(result))}") if part)
    shown_result = "none (any more)" if result is None else readable_result(result)
    parts = [("arguments", readable_result(arguments)), ("result", shown_result)]
    return CollapsedSection(call_title(name, arguments), parts, note, failed=not ok)


def call_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Format a call as one line: `read_file(path="a.txt")`, with long values cut."""
    arguments_text = (f"{one_line(str(key))}={_short_json(value)}" for key, value in arguments.items())
    return f"{one_line(name)}({', '.join(arguments_text)})"


def exact_arguments(arguments: Mapping[str, Any]) -> str:
    """Format all arguments in full, for a decision about them: long texts as they are, the rest as JSON."""
    texts = {key: value for key, value in arguments.items() if _is_long_text(value)}
    rest = {key: value for key, value in arguments.items() if key not in texts}
    blocks = [json.dumps(rest, ensure_ascii=False, indent=2, default=str)] if rest or not texts else []
    blocks += ["\n".join([f"{key}:", *(f"  {line}" for line in value.split("\n"))]) for key, value in texts.items()]
    return printable("\n".join(blocks))


def _is_long_text(value: Any) -> bool:
    return isinstance(value, str) and ("\n" in value or len(value) > _SHORT_CHARACTERS)


def show_diff(screen: "Screen", diff: str) -> None:
    """Write a unified diff with the colours that people know."""
    screen.print_line("what changes in the file:", "bold")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for number, line in enumerate(printable(diff).split("\n")):
        screen.print_line(line, "dim" if number < 2 else styles.get(line[:1], ""))  # first the names of the file


def readable_result(value: Mapping[str, Any]) -> str:
    """Format a result: texts as they are, other values as JSON."""
    return printable("\n".join(_limit_lines(_result_lines(value)))) or "{}"


def format_seconds(took_s: float) -> str:
    """Format a duration."""
    return f"{took_s:.1f} s" if took_s < 100 else f"{took_s / 60:.0f} min"


def _error_text(result: Mapping[str, Any] | None) -> str:
    reason = (result or {}).get("error") or (result or {}).get("result") or "no result"
    return str(reason)


def _short_json(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), _VALUE_CHARACTERS)


def _result_lines(value: Mapping[str, Any]) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, str) and "\n" in item:
            yield f"{key}:"
            yield from (f"  {line}" for line in item.rstrip("\n").split("\n"))
        else:
            yield f"{key}: {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)}"


def _limit_lines(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == _OPENED_LINES:
            yield f"... {1 + sum(1 for _ in lines)} more lines"
            return
        yield line
