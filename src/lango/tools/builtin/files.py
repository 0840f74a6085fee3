"""Read, list, search, write and edit files of the workspace."""

import asyncio
import difflib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice, takewhile
from typing import Annotated, Any

from pydantic import Field

from lango.errors import ToolError
from lango.tools.builtin.limited_process import LimitExceeded, run_limited
from lango.tools.builtin.workspace import Workspace, WorkspaceEntry
from lango.tools.tool import Tool, tool

MAX_READ_BYTES = 200_000
MAX_FILE_BYTES = 20_000_000
MAX_WRITTEN_BYTES = 5_000_000
MAX_COMPARED_CHARACTERS = 200_000
MAX_DIFF_LINES = 2_000
_MOST_COMPARED_LINES = 500
_CONTEXT_LINES = 3
_PLACE = re.compile(r"([-+])(\d+)(?=,\d+ | )")
MAX_LISTED = 500
MAX_VISITED = 20_000
MAX_SEARCHED_BYTES = 100_000_000
MAX_SEARCHED_FILE_BYTES = 2_000_000
MAX_MATCHES = 200
MAX_LINE = 400
REGEX_TIMEOUT_S = 10.0
_NO_MORE = b"null\n"
SKIPPED = frozenset({".git", ".hg", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"})
"""Folders of generated files, which are searched only if named."""

RelativePath = Annotated[str, Field(description="Path relative to the workspace, separated by /.", max_length=4096)]


def file_tools(workspace: Workspace, *, show_changes: bool = True) -> list[Tool]:
    """Return the file tools for one workspace; with `show_changes`, approval requests show what would change."""

    @tool(level="safe", effect="none")
    def read_file(
        path: RelativePath,
        first_line: Annotated[int, Field(ge=1)] = 1,
        max_lines: Annotated[int, Field(ge=1, le=5000)] = 2000,
    ) -> dict[str, Any]:
        """Read a text file in the workspace, or some of its lines.

        Args:
            first_line: The first line to read, counted from 1.
            max_lines: How many lines to read at most.
        """
        return _read(workspace, path, first_line, max_lines)

    @tool(level="safe", effect="none")
    def list_files(
        path: RelativePath = ".",
        pattern: Annotated[str, Field(max_length=200)] = "*",
        recursive: bool = False,
    ) -> dict[str, Any]:
        """List the files and folders in a folder of the workspace.

        Args:
            pattern: Only list entries whose name or path matches this pattern, such as *.py.
            recursive: Include the contents of subfolders.
        """
        found = _list_entries(workspace, path, recursive, frozenset() if not recursive else SKIPPED)
        entries = [entry for entry in found if _matches_pattern(entry, pattern)]
        listed = [
            {"path": entry.path, "kind": entry.kind} | ({"bytes": entry.size} if entry.kind == "file" else {})
            for entry in entries[:MAX_LISTED]
        ]
        more = {"left_out": len(entries) - MAX_LISTED} if len(entries) > MAX_LISTED else {}
        return {"entries": listed, **more}

    @tool(level="write", effect="idempotent")
    def write_file(path: RelativePath, content: str) -> dict[str, Any]:
        """Write a text file in the workspace. Replaces an existing file; creates missing folders."""
        data = _encoded(content)
        created = workspace.write(path, data)
        return {"path": path, "bytes": len(data), "created": created}

    @tool(level="write", effect="once")
    def edit_file(path: RelativePath, old: Annotated[str, Field(min_length=1)], new: str) -> dict[str, Any]:
        """Replace one passage of a text file in the workspace. Read the file first.

        Args:
            old: The exact passage, with enough context to occur only once in the file.
            new: The text that replaces it.
        """
        text = _whole_text(workspace, path)
        count = text.count(old)
        if count != 1:
            problem = "is not in the file" if count == 0 else f"occurs {count} times; include more context"
            raise ToolError(f"nothing was changed: the old passage {problem}")
        workspace.write(path, _encoded(text.replace(old, new)))
        return {"path": path, "line": text[: text.index(old)].count("\n") + 1, "replaced": 1}

    changing: list[Tool] = [write_file, edit_file]
    if show_changes:
        changing = [replace(tool, diff=partial(change_as_diff, workspace)) for tool in changing]
    return [read_file, list_files, _search_tool(workspace), *changing]


def change_as_diff(workspace: Workspace, arguments: Mapping[str, Any]) -> str:
    """Return what a call of `write_file` or `edit_file` would change as a unified diff, or "" if it cannot be shown."""
    path, old, new = (str(arguments.get(name, "")) for name in ("path", "old", "new"))
    try:
        before = _whole_text(workspace, path)
    except ToolError:
        before = ""  # a new file, or one that the call itself refuses
    after = before.replace(old, new, 1) if old else str(arguments.get("content", ""))
    if len(before) + len(after) > MAX_COMPARED_CHARACTERS:
        return ""
    lines = _unified_diff(before.splitlines(), after.splitlines(), path)
    return "\n".join(islice(lines, MAX_DIFF_LINES))


def _unified_diff(before: list[str], after: list[str], path: str) -> Iterator[str]:
    """Compare what lies between the equal lines at the start and at the end, in time linear in the lines.

    Python's search for equal lines takes time that grows with the square of their number. So it is used for a few
    hundred; more are shown as removed and added.
    """
    same = _count_equal(zip(before, after, strict=False))
    rest = min(len(before), len(after)) - same
    same_end = _count_equal(islice(zip(reversed(before), reversed(after), strict=False), rest))
    first = max(0, same - _CONTEXT_LINES)
    old, new = (lines[first : len(lines) - max(0, same_end - _CONTEXT_LINES)] for lines in (before, after))
    if len(old) * len(new) <= _MOST_COMPARED_LINES**2:
        for line in difflib.unified_diff(old, new, path, path, lineterm=""):
            is_place = line.startswith("@@")
            yield _PLACE.sub(lambda found: f"{found[1]}{int(found[2]) + first}", line) if is_place else line
        return
    yield from (f"--- {path}", f"+++ {path}", f"@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@")
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _count_equal(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read(workspace: Workspace, path: str, first_line: int, max_lines: int) -> dict[str, Any]:
    with workspace.open(path) as file:
        start = file.read(8192)
        if b"\0" in start:
            raise ToolError(f"{path} is a binary file", bytes=file.seek(0, 2))
        file.seek(0)
        lines: list[bytes] = []
        number = size = passed = 0
        more = False
        while line := file.readline(MAX_READ_BYTES):
            number, passed = number + 1, passed + len(line)
            if number < first_line:
                if passed > MAX_FILE_BYTES:
                    raise ToolError(f"{path} is too large to read that far: use search_files", bytes=file.seek(0, 2))
                continue
            if len(lines) == max_lines or size + len(line) > MAX_READ_BYTES:
                more = True
                break
            lines.append(line)
            size += len(line)
    text = b"".join(lines).decode("utf-8", "replace")
    continuation = {"next_line": first_line + len(lines)} if more else {}
    return {"path": path, "first_line": first_line, "lines": len(lines), **continuation, "text": text}


def _whole_text(workspace: Workspace, path: str) -> str:
    with workspace.open(path) as file:
        data = file.read(MAX_WRITTEN_BYTES + 1)
    if len(data) > MAX_WRITTEN_BYTES:
        raise ToolError(f"{path} is larger than {MAX_WRITTEN_BYTES} bytes, too large to edit")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not UTF-8 text") from error


def _encoded(text: str) -> bytes:
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError("the text contains a lone surrogate and cannot be written") from error
    if len(data) > MAX_WRITTEN_BYTES:
        raise ToolError(f"the text has {len(data)} bytes; the limit is {MAX_WRITTEN_BYTES}")
    return data


def _list_entries(workspace: Workspace, path: str, recursive: bool, skip: frozenset[str]) -> list[WorkspaceEntry]:
    found: list[WorkspaceEntry] = []
    for entry in workspace.walk(path, recursive=recursive, skip=skip):
        found.append(entry)
        if len(found) > MAX_VISITED:
            raise ToolError(f"more than {MAX_VISITED} files under {path}: choose a subfolder")
    return sorted(found, key=lambda entry: entry.path.split("/"))


def _matches_pattern(found: WorkspaceEntry, pattern: str) -> bool:
    return fnmatchcase(found.path.rsplit("/", 1)[-1], pattern) or fnmatchcase(found.path, pattern)


# Search.


def _search_tool(workspace: Workspace) -> Tool:
    @tool(level="safe", effect="none")
    async def search_files(
        query: Annotated[str, Field(min_length=1, max_length=1000)],
        path: RelativePath = ".",
        pattern: Annotated[str, Field(max_length=200)] = "*",
        regex: bool = False,
        ignore_case: bool = False,
    ) -> dict[str, Any]:
        """Search the text files of the workspace for lines that contain a text or match a regular expression.

        Args:
            query: The text, or the regular expression (Python's).
            pattern: Only search files whose name or path matches this pattern, such as *.py.
            regex: Treat the query as a regular expression.
        """
        expression = query if regex else re.escape(query)
        limits = {"matches": MAX_MATCHES, "line": MAX_LINE}
        job = {"expression": expression, "ignore_case": ignore_case, "limits": limits}
        return await _search(job, _texts(workspace, path, pattern))

    return search_files


async def _search(job: dict[str, Any], texts: Iterator[list[str]]) -> dict[str, Any]:
    """Match the lines in a child process: a hostile expression can take forever."""

    async def lines() -> AsyncIterator[bytes]:
        yield _line(job)
        while (line := await asyncio.to_thread(lambda: _line(next(texts, None)))) != _NO_MORE:
            yield line

    try:
        found: dict[str, Any] = json.loads(await run_limited("match_lines", lines(), timeout_s=REGEX_TIMEOUT_S))
    except LimitExceeded as error:
        raise ToolError(
            f"the search was stopped because {error}: search fewer files, or use a simpler query"
        ) from error
    if "wrong" in found:
        raise ToolError(f"the query is not a regular expression: {found['wrong']}")
    return found


def _line(value: Any) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _texts(workspace: Workspace, path: str, pattern: str) -> Iterator[list[str]]:
    """Yield the path and text of each text file under a path."""
    total = 0
    for found in _list_entries(workspace, path, True, SKIPPED):
        if found.kind != "file" or found.size > MAX_SEARCHED_FILE_BYTES or not _matches_pattern(found, pattern):
            continue
        try:
            with workspace.open(found.path) as file:
                data = file.read(MAX_SEARCHED_FILE_BYTES)
        except ToolError:  # deleted in between, or not readable
            continue
        total += len(data)
        if total > MAX_SEARCHED_BYTES:
            return
        if b"\0" not in data[:8192]:
            yield [found.path, data.decode("utf-8", "replace")]
