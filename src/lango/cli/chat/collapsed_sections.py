"""Describe tool calls, thoughts and nodes of workflows in one line each; those of calls and thoughts can be opened."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.padding import Padding
from rich.text import Text

from lango.cli.terminal_text import one_line, printable
from lango.events import NodeProgress, output_to_text

if TYPE_CHECKING:
    from lango.cli.chat.terminal.screen import Screen

_VALUE_CHARACTERS = 40
_SHORT_CHARACTERS = 80
_OPENED_LINES = 400
_OUTPUT_CHARACTERS = 100


class CollapsedSection(Struct):
    """A tool call or thought, shown as one line until the user opens it."""

    title: str
    parts: list[tuple[str, str]] = []
    """Headings and texts."""
    note: str = ""
    """The end of the line: the duration, or the error."""
    failed: bool = False


def tool_call_section(
    name: str, arguments: Mapping[str, Any], result: Mapping[str, Any] | None, ok: bool, took_s: float | None
) -> CollapsedSection:
    """Return the section of a tool call."""
    note = "" if took_s is None else format_seconds(took_s)
    if not ok:
        reason = (result or {}).get("error") or (result or {}).get("result") or "no result"
        note = f"{note} failed: {one_line(str(reason))}".lstrip()
    shown_result = "no longer stored" if result is None else readable_result(result)
    parts = [("arguments", readable_result(arguments)), ("result", shown_result)]
    return CollapsedSection(call_title(name, arguments), parts, note, failed=not ok)


def call_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Format a call as one line: `read_file(path="a.txt")`, with long values cut."""
    values = {key: json.dumps(value, ensure_ascii=False, default=str) for key, value in arguments.items()}
    shown = (f"{one_line(str(key))}={one_line(value, _VALUE_CHARACTERS)}" for key, value in values.items())
    return f"{one_line(name)}({', '.join(shown)})"


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
    screen.print_line("changes to the file:", "bold")
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for number, line in enumerate(printable(diff).split("\n")):
        screen.print_line(line, "dim" if number < 2 else styles.get(line[:1], ""))  # first the names of the file


def readable_result(value: Mapping[str, Any]) -> str:
    """Format a result: texts as they are, other values as JSON."""
    lines = list(_result_lines(value))
    if len(lines) > _OPENED_LINES:
        lines[_OPENED_LINES:] = [f"... {len(lines) - _OPENED_LINES} more lines"]
    return printable("\n".join(lines)) or "{}"


def format_seconds(took_s: float) -> str:
    """Format a duration."""
    return f"{took_s:.1f} s" if took_s < 100 else f"{took_s / 60:.0f} min"


def _result_lines(value: Mapping[str, Any]) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, str) and "\n" in item:
            yield f"{key}:"
            yield from (f"  {line}" for line in item.rstrip("\n").split("\n"))
        else:
            yield f"{key}: {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)}"


def show_section(screen: "Screen", sections: list[CollapsedSection], section: CollapsedSection) -> None:
    """Add a section, and write its line."""
    sections.append(section)
    number = len(sections)
    sign = screen.symbol("✗", "x") if section.failed else screen.symbol("▸", ">")
    line = Text.assemble(
        (f"{sign} {number} {section.title}", "red" if section.failed else "cyan"), (f" {section.note}", "dim")
    )
    line.no_wrap, line.overflow = True, "ellipsis"
    screen.print_renderables(line)


def show_section_content(screen: "Screen", number: int, section: CollapsedSection) -> None:
    """Write the content of a section."""
    screen.print_line(f"{screen.symbol('▾', 'v')} {number} {section.title} {section.note}".rstrip(), "cyan")
    for heading, text in section.parts:
        if heading:
            screen.print_line(f"  {heading}", "dim")
        screen.print_renderables(Padding(Text(text), (0, 0, 0, 4)))


def node_title(event: NodeProgress) -> str:
    """Return the path of a node below its workflow, with the number of its run where it is not the first."""
    steps = [step.rpartition("@") for step in event.path.split("/")[1:]]
    names = [name if run == "1" else f"{name} {run}" for name, _, run in steps]
    title = one_line(" / ".join(names) or event.name)
    return title if event.attempt == 1 else f"{title}, attempt {event.attempt}"


def show_node(screen: "Screen", event: NodeProgress) -> None:
    """Write a line about a node that ended, failed or waits."""
    match event.status:
        case "started":
            return
        case "ended":
            output = "" if event.output is None else one_line(output_to_text(event.output), _OUTPUT_CHARACTERS)
            screen.print_line(f"{screen.symbol('✓', '+')} {node_title(event)}{': ' if output else ''}{output}", "dim")
        case "failed":
            line = f"{screen.symbol('✗', 'x')} {node_title(event)} failed: {one_line(event.error)}"
            screen.print_line(line, "yellow")
        case "waiting":
            screen.print_line(f"{screen.symbol('…', '~')} {node_title(event)} waits", "dim")
