"""Bound a user's own tools in time, and read the full text of clipped results."""

import asyncio
from typing import Any, cast

from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_internals import has_replaced_run, replace_run
from lango.adk.agents.app_builder import is_adk_control_flow
from lango.adk.agents.tools.adk_tool import AdkTool, attachments_to_parts, time_limit_s, with_files
from lango.adk.agents.tools.mcp.results import read_mcp_result
from lango.adk.turn.turn_run import current_turn
from lango.store.tool_calls import tool_journal
from lango.tools.execution import CANCELLED_INSIDE, convert_base_exceptions
from lango.tools.results import ResultFiles, to_result

_CANCEL_GRACE_S = 2.0


async def read_full_result(call_id: str, offset: int, limit: int) -> str | None:
    """Read a piece of a clipped result of the current turn's session."""
    turn = current_turn.get()
    if turn is None:
        return None
    key = turn.record.lease.session_key
    return await turn.record.store.read(tool_journal.read_full_result, key, call_id, offset, limit)


async def _without_base64(tool: BaseTool, result: Any) -> Any:
    """Return the result of ADK's own MCP tool with its files as parts; that of any other tool as it is."""
    if type(tool).__name__ != "McpTool" or not isinstance(result, dict):
        return result
    files, found = ResultFiles(), cast("dict[str, Any]", result)
    plain = await asyncio.to_thread(lambda: to_result(read_mcp_result(tool.name, found), files))
    return with_files(plain, attachments_to_parts(files.files))


def guard_tool(tool: BaseTool) -> None:
    """Limit the time of a user's own tool in turns of the runtime, and convert what it raises to an `Exception`."""
    if isinstance(tool, AdkTool) or has_replaced_run(tool):
        return
    run = tool.run_async

    async def bounded(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        turn = current_turn.get()
        if turn is None:
            return await run(args=args, tool_context=tool_context)
        task = asyncio.ensure_future(
            convert_base_exceptions(run(args=args, tool_context=tool_context), is_adk_control_flow)
        )
        allowed_s = time_limit_s(tool, turn.limits.tool_timeout_s)
        ended = False
        try:
            ended = bool((await asyncio.wait({task}, timeout=allowed_s))[0])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=allowed_s and _CANCEL_GRACE_S)
        if task.done() and not task.cancelled():
            return await _without_base64(tool, task.result())
        return {"error": CANCELLED_INSIDE if ended else f"timed out after {allowed_s:g} s, and its outcome is unknown"}

    replace_run(tool, bounded)
