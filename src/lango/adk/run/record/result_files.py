"""Keep the files in tool results as artifacts, so that a turn that is run again has them.

A tool returns files as ADK's parts. The journal has the result without them, and the name and version of the artifact
of each; the message of the result has the parts themselves.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from google.adk.errors.input_validation_error import InputValidationError
from google.adk.tools import BaseTool, ToolContext
from google.genai import types

from lango.adk.agents.tools.adk_tool import with_files
from lango.tools.results import file_name

RESULT_FILES = "result_files"
"""The key of the files among the journaled actions of a tool."""

_log = logging.getLogger("lango.runtime")
_MAX_DEPTH = 3


def parts_in(result: Any, depth: int = 0) -> Iterator[types.Part]:
    """Yield the parts with a file in a tool's result, in order."""
    if isinstance(result, types.Part):
        if (result.inline_data and result.inline_data.data) or (result.file_data and result.file_data.file_uri):
            yield result
    elif isinstance(result, dict | list | tuple) and depth <= _MAX_DEPTH:
        members = cast("dict[Any, Any]", result).values() if isinstance(result, dict) else cast("list[Any]", result)
        for member in members:
            yield from parts_in(member, depth + 1)


def without_parts(result: Any, depth: int = 0) -> Any:
    """Return a tool's result as ADK sends it to the model: without the parts, and what held nothing else."""
    if isinstance(result, types.Part):
        return {}
    if depth > _MAX_DEPTH or not isinstance(result, dict | list | tuple):
        return result
    if isinstance(result, dict):
        members = cast("dict[Any, Any]", result)
        return {name: without_parts(value, depth + 1) for name, value in members.items() if not _is_only_parts(value)}
    return [without_parts(item, depth + 1) for item in cast("list[Any]", result) if not _is_only_parts(item)]


def _is_only_parts(value: Any) -> bool:
    return any(parts_in(value, 1)) and not without_parts(value, 1)


async def keep_files(tool: BaseTool, context: ToolContext, parts: Sequence[types.Part]) -> list[dict[str, Any]]:
    """Save the files of a result as artifacts of the session, and return references to them for the journal."""
    kept: list[dict[str, Any]] = []
    for part in parts:
        if part.inline_data is None:
            kept.append({"uri": part.file_data and part.file_data.model_dump(mode="json", exclude_none=True)})
            continue
        blob = part.inline_data
        name = file_name(blob.display_name or tool.name, blob.mime_type or "")
        try:
            kept.append({"name": name, "version": await context.save_artifact(name, part)})
        except InputValidationError as error:
            _log.warning("a file of tool %s is not kept as an artifact: %s", tool.name, error)
            kept.append({"name": name})
    return kept


async def load_files(
    result: Mapping[str, Any], actions: Mapping[str, Any], context: ToolContext
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return a journaled result with its files, and the tool's other actions."""
    kept: Sequence[Mapping[str, Any]] = actions.get(RESULT_FILES) or ()
    parts = [part for reference in kept if (part := await _load(reference, context)) is not None]
    return with_files(result, parts), {name: value for name, value in actions.items() if name != RESULT_FILES}


async def _load(reference: Mapping[str, Any], context: ToolContext) -> types.Part | None:
    if "uri" in reference:
        return types.Part(file_data=types.FileData.model_validate(reference["uri"]))
    if "version" not in reference:
        return None
    return await context.load_artifact(reference["name"], reference["version"])
