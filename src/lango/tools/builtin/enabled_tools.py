"""Create the built-in tools that the settings enable."""

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from lango.config import ToolSettings
from lango.errors import ConfigError, ToolError
from lango.tools.builtin.files import file_tools
from lango.tools.builtin.shell import shell_tool
from lango.tools.builtin.workspace import Workspace
from lango.tools.tool import Tool, tool
from lango.waits.pauses import Sleep, sleep

ReadResult = Callable[[str, int, int], Awaitable[str | None]]
"""Reads a piece of a clipped result by call id, offset and length; returns None if there is none."""

FILE_TOOLS = ("read_file", "list_files", "search_files", "write_file", "edit_file")
BUILTIN_NAMES = (*FILE_TOOLS, "shell", "web_fetch", "current_time", "wait_until", "schedule")
HOW_TO_READ = 'read them with read_result, call_id "{call_id}"'
"""`how_to_read` of an `AdkTool`, if the model has `read_result`."""
_MAX_PIECE = 20_000
_MAX_WAIT_S = 366 * 86_400.0


def builtin_tools(
    settings: ToolSettings,
    *,
    protected: Iterable[Path] = (),
    read_result: ReadResult | None = None,
    schedule: Tool | None = None,
) -> list[Tool]:
    """Return the tools that `[tools] enabled` names, and the tool `read_result` if there is a function for it.

    No tool reads or writes the `protected` files and folders. `schedule` is the tool of that name. Raise `ConfigError`
    for an unknown tool, and for a workspace that is not a folder.
    """
    unknown = [name for name in settings.enabled if name not in BUILTIN_NAMES and name != "read_result"]
    if unknown:
        raise ConfigError(f"tools.enabled: there is no tool {', '.join(unknown)}; there are {', '.join(BUILTIN_NAMES)}")
    available = {tool.name: tool for tool in _make_tools(settings, protected)}
    if schedule is not None:
        available["schedule"] = schedule
    chosen = [available[name] for name in dict.fromkeys(settings.enabled) if name in available]
    return [*chosen, read_result_tool(read_result)] if read_result else chosen


def _make_tools(settings: ToolSettings, protected: Iterable[Path]) -> list[Tool]:
    made = [current_time, wait_until]
    if "web_fetch" in settings.enabled:
        from lango.tools.builtin.web import web_tool  # the HTTP library is slow to import

        made.append(web_tool())
    if {*FILE_TOOLS, "shell"} & {*settings.enabled}:  # only these need a workspace
        workspace = Workspace(_workspace_folder(settings), protected=tuple(protected))
        may_read = "read_file" in settings.enabled  # without it, a diff would show files that no tool may read
        made += [*file_tools(workspace, show_changes=may_read), shell_tool(workspace, sandbox=settings.sandbox)]
    return made


def _workspace_folder(settings: ToolSettings) -> Path:
    """Return the workspace, which is created if only its last folder is missing."""
    folder = Path(settings.workspace).expanduser()
    with contextlib.suppress(OSError):  # `Workspace` says what is wrong
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@functools.cache
def read_result_tool(read: ReadResult) -> Tool:
    """Return the tool that reads a clipped result in pieces."""

    @tool(level="safe", effect="none")
    async def read_result(
        call_id: Annotated[str, Field(max_length=200)],
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=_MAX_PIECE)] = _MAX_PIECE,
    ) -> dict[str, Any]:
        """Read part of an earlier tool result that was too long to show in full.

        Args:
            call_id: The call whose result was clipped; it is named where the result was cut.
            offset: The first character to read, counted from 0.
            limit: How many characters to read.
        """
        piece = await read(call_id, offset, limit)
        if piece is None:
            raise ToolError(f"there is no stored result for call {call_id!r}")
        return {"offset": offset, "characters": len(piece), "text": piece}

    return read_result


@tool(level="safe", effect="none")
def current_time(timezone: str = "UTC") -> dict[str, Any]:
    """Return the current date and time.

    Args:
        timezone: A name such as Europe/Berlin.
    """
    try:
        zone = UTC if timezone.upper() == "UTC" else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ToolError(f"there is no time zone {timezone!r}: use a name such as Europe/Berlin, or UTC") from error
    now = datetime.now(zone)
    return {"time": now.isoformat(timespec="seconds"), "weekday": now.strftime("%A"), "timezone": timezone}


@tool(level="safe", effect="none", long_running=True)
def wait_until(
    time: str = "",
    seconds: Annotated[float | None, Field(ge=0, le=_MAX_WAIT_S)] = None,
    reason: Annotated[str, Field(max_length=500)] = "",
) -> Sleep:
    """Wait until a time or for a duration, even for days; then you continue. The user can write in between.

    Args:
        time: When to continue, as ISO 8601 with a time zone or offset, such as 2026-05-01T09:00:00+02:00.
        seconds: How long to wait instead.
        reason: What you will do then; the user reads it.
    """
    if bool(time) == (seconds is not None):
        raise ToolError("give time or seconds, and not both")
    if seconds is not None:
        return sleep(seconds, reason=reason)
    try:
        until = datetime.fromisoformat(time)
    except ValueError as error:
        raise ToolError(f"{time!r} is not a time: use ISO 8601, such as 2026-05-01T09:00:00+02:00") from error
    if until.tzinfo is None:
        raise ToolError(f"{time!r} has no time zone: add an offset such as +02:00, or Z for UTC")
    return sleep(until=until, reason=reason)
