"""Complete the commands that error messages name, so that they work as they are printed."""

import re
import shlex
from typing import Any

from lango.cli.options import StoreOptions, chosen_options

_COMMAND = re.compile(r"`lango ([^`]+)`")


def complete_hints(message: str, commands: Any) -> str:
    """Add the options of this command to the commands in a message: they are for the same store and agent.

    `commands` is typer's group of all commands.
    """
    chosen = chosen_options.get()
    return message if chosen is None else _COMMAND.sub(lambda found: _complete(found, commands, chosen), message)


def _complete(found: re.Match[str], commands: Any, chosen: StoreOptions) -> str:
    words = found[1].split()
    command, depth = find_command(commands, words)
    if command is None or any(word.startswith("--") for word in words):
        return found[0]
    accepted = {option for parameter in command.params for option in parameter.opts}
    more = [part for name, value in chosen.named_values() if name in accepted for part in (name, value)]
    takes_path = any(one.name == "path" and one.metavar == "[PATH]" for one in command.params)
    path = [chosen.agent_path] if takes_path and chosen.agent_path is not None else []
    return f"`{' '.join(['lango', *words[:depth], *map(shlex.quote, path), *words[depth:], *map(shlex.quote, more)])}`"


def find_command(commands: Any, words: list[str]) -> tuple[Any, int]:
    """Return the command that words begin with, and how many of them name it; None if there is none."""
    command, depth = commands, 0
    while (below := getattr(command, "commands", None)) and depth < len(words) and words[depth] in below:
        command, depth = below[words[depth]], depth + 1
    return (command, depth) if depth else (None, 0)
