"""docs/reference/commands.md: the help of every command."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from lango.cli.main import app
from tests.reference.source import heading, written

_WIDTH = 100  # the page is the same whatever the terminal


def page() -> str:
    lines = heading(
        "Commands",
        "`lango --help`, and the same of every command. Exit codes are with the [errors](errors.md).",
    )
    for name, text in _helps(get_command(app), "lango"):
        lines += [f"## `{name}`", "", "```text", *text.rstrip().splitlines(), "```", ""]
    return written(lines)


def _helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    # typer carries its own copy of click: contexts are made by the commands themselves
    context = command.make_context(
        name.split()[-1], [], parent=parent, resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield name, command.get_help(context)
    for below in getattr(command, "commands", {}).values():
        if not below.hidden:
            yield from _helps(below, f"{name} {below.name}", context)
