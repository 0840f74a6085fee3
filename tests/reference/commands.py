"""docs/reference/commands.md: the help of every command."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from lango.cli.main import app
from tests.reference.source import heading, to_page

_WIDTH = 100  # independent of the terminal


def page() -> str:
    lines = heading(
        "Commands",
        "The `--help` of every command. [Errors](errors.md) lists the exit codes.",
    )
    for name, text in _helps(get_command(app), "lango"):
        lines += [f"## `{name}`", "", "```text", *text.rstrip().splitlines(), "```", ""]
    return to_page(lines)


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    # typer has its own copy of click: only the commands can create contexts
    context = command.make_context(
        name.split()[-1], [], parent=parent, resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield name, command.get_help(context)
    for below in getattr(command, "commands", {}).values():
        if not below.hidden:
            yield from _helps(below, f"{name} {below.name}", context)
