"""Find the agents in a file or folder by their files alone, as ADK's own commands do."""

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from lango.errors import ConfigError

_ROOT_NAMES = frozenset({"root_agent", "app"})
_YAML = "root_agent.yaml"
_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".toml", ".env"})
_NOT_WATCHED = frozenset({"node_modules", "site-packages", "__pycache__"})

Snapshot = dict[Path, int]
"""When each source file was changed."""


def find_agents(path: str | None) -> list[str]:
    """Return the paths of the agents at a path: a file, an agent's folder, or a folder of such folders.

    Without a path there are none. Raise `ConfigError` if a path has no agent.
    """
    if path is None:
        return []
    place = Path(path)
    if not place.exists():
        raise ConfigError(f"there is no {path}: name an agent's file or folder, or a folder of agents")
    if place.is_file():
        if place.suffix != ".py" and place.name != _YAML:
            raise ConfigError(f"{path} is not an agent: give a Python file, a {_YAML}, or a folder")
        return [path]
    if (place / "agent.py").is_file() or (place / _YAML).is_file() or _root_line(place / "__init__.py"):
        return [path]
    found = [
        str(folder)
        for folder in sorted(place.iterdir())
        if folder.is_dir()
        and not folder.name.startswith((".", "__"))
        and any((folder / name).is_file() for name in ("agent.py", _YAML, "__init__.py"))
    ]
    if not found:
        raise ConfigError(
            f"there is no agent in {path}: it has no agent.py with a root_agent, no {_YAML}, and no folder with one"
        )
    return found


def agent_location(path: str) -> str:
    """Return the file and line that define the root agent at a path, or the path if its files do not show them."""
    place = Path(path)
    for file in [place / "__init__.py", place / "agent.py"] if place.is_dir() else [place]:
        if line := _root_line(file):
            return f"{file}, line {line}"
    if (place / _YAML).is_file():
        lines = (place / _YAML).read_text("utf-8", errors="replace").splitlines()
        line = next((number for number, text in enumerate(lines, 1) if text.startswith("name:")), 1)
        return f"{place / _YAML}, line {line}"
    return path


def agent_lines(path: str, agent: str, argument: str) -> list[str]:
    """Return where the files at a path make an agent of a name: the file, and the line of an argument of that agent."""
    place = Path(path)
    found: list[str] = []
    for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        for call in (node for node in ast.walk(_parse(file)) if isinstance(node, ast.Call)):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            name = given.get("name")
            if isinstance(name, ast.Constant) and name.value == agent:
                found.append(f"{file}, line {given.get(argument, call).lineno}")
    for file in sorted(place.rglob("*.yaml")) if place.is_dir() else []:
        lines = [line.strip() for line in file.read_text("utf-8", errors="replace").splitlines()]
        if f"name: {agent}" in lines:
            start = f"{argument}:"
            line = next((number for number, text in enumerate(lines, 1) if text.startswith(start)), 1)
            found.append(f"{file}, line {line}")
    return found


def _root_line(file: Path) -> int | None:
    """Return the line of a Python file that assigns or imports `app` or `root_agent`, or None if there is none."""
    module = _parse(file)
    lines = [line for statement in module.body for name, line in _bound_names(statement) if name in _ROOT_NAMES]
    return min(lines, default=None)


def _bound_names(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, statement.lineno
    if isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name, statement.lineno


def _parse(file: Path) -> ast.Module:
    """Parse a Python file; an empty module if it cannot be read or parsed: loading the agent reports that."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def snapshot(paths: Iterable[Path], excluded: Path) -> Snapshot:
    """Return the times at which the source files at some paths were changed; a file counts with its whole folder."""
    times: Snapshot = {}
    for path in paths:
        for file in [path, *_source_files(path if path.is_dir() else path.parent, excluded)]:
            try:
                times[file] = file.stat().st_mtime_ns if file.is_file() else 0
            except OSError:  # deleted just now
                continue
    return times


def _source_files(folder: Path, excluded: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_WATCHED
            and (here / name).resolve() != excluded
            and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / name for name in names if name == ".env" or Path(name).suffix in _SUFFIXES)
