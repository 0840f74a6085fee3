"""Choose the agent of a command by its path and its name."""

import sys
from typing import TYPE_CHECKING

from lango.cli.terminal_text import printable
from lango.errors import LangoError, UsageError

if TYPE_CHECKING:
    from lango.config import Settings


def choose_agent(settings: "Settings", path: str | None, name: str | None) -> "Settings":
    """Return the settings for the agent at a path. Of several, `name` selects one, or the user in a terminal."""
    from lango.config.agent_files import find_agents

    if path is None:
        if name is not None:
            raise UsageError("--agent selects one of the agents at a path: give the path of their folder, too")
        return settings
    paths = find_agents(path)
    if len(paths) == 1 and name is None:
        return settings.with_agent(paths[0])
    from lango.runtime.app_names import load_agents

    loaded, broken = load_agents(settings, paths)
    found = {chosen.app_name: chosen for chosen, _ in loaded}
    for one in broken:
        if name == one.name and name not in found:
            raise one.error
        print(f"lango: {printable(str(one.error))}", file=sys.stderr)
    if name is None and sys.stdin.isatty() and sys.stderr.isatty():
        name = _ask([*found])
    if name is None:
        raise UsageError(f"there are {len(found)} agents in {path}: select one with --agent ({', '.join(found)})")
    if name not in found:
        raise UsageError(f"there is no agent {name!r} in {path}; there is {', '.join(found)}")
    return found[name]


def _ask(names: list[str]) -> str:
    """Ask which agent is meant: by its number or its name."""
    for number, name in enumerate(names, 1):
        print(f"{number}. {printable(name)}", file=sys.stderr)
    while True:
        print("Which agent? ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            raise UsageError("no agent was selected")
        answer = line.strip()
        if answer in names:
            return answer
        if answer.isdecimal() and 0 < int(answer) <= len(names):
            return names[int(answer) - 1]
        print(f"type a number from 1 to {len(names)}, or a name", file=sys.stderr)


def configured_apps(settings: "Settings", path: str | None) -> set[str] | None:
    """Return the names of the apps at a path, or of the configured one; or None if an agent cannot be loaded."""
    from lango.config.agent_files import find_agents
    from lango.runtime.app_names import load_agents, load_named_agent

    try:
        if path is not None:
            loaded, broken = load_agents(settings, find_agents(path))
            return None if broken else {chosen.app_name for chosen, _ in loaded}
        return {load_named_agent(settings)[0].app_name}
    except LangoError:
        return None
