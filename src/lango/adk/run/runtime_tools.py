"""Run tools in a turn: bounded in time, with their full results stored."""

import asyncio
from typing import Any

from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_tool import AdkTool, limit_s
from lango.adk.agents.callback_guard import is_adks
from lango.adk.run.turn_state import current_turn
from lango.tools import Tool, ToolOutcome
from lango.tools.builtin.enabled_tools import HOW_TO_READ
from lango.tools.execution import CANCELLED_INSIDE, contained

_GRACE_S = 2.0


def adk_tool(tool: Tool, timeout_s: float) -> AdkTool:
    """Return a tool for an agent of the runtime: whether it may run, the plugin has decided for every kind of tool."""
    return AdkTool(tool, gate=_decided, on_end=_keep_whole, timeout_s=timeout_s, how_to_read=HOW_TO_READ)


async def _decided(*_: Any) -> None:
    return None


async def _keep_whole(call_id: str, outcome: ToolOutcome) -> None:
    """What the model is shown clipped is kept whole."""
    state = current_turn.get()
    if state is not None and outcome.whole is not None:
        await state.store.keep_whole(state.turn, call_id, outcome.whole)


async def read_clipped(call_id: str, offset: int, limit: int) -> str | None:
    """Read a piece of a result that was clipped, of the session whose turn is under way."""
    state = current_turn.get()
    return await state.store.read_whole(state.turn.session_key, call_id, offset, limit) if state else None


def contain(tool: BaseTool) -> None:
    """Bound a tool of the user's own in time, and keep what it raises inside, in turns of the runtime alone."""
    if isinstance(tool, AdkTool) or "run_async" in vars(tool):
        return
    run = tool.run_async

    async def bounded(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        state = current_turn.get()
        if state is None:
            return await run(args=args, tool_context=tool_context)
        task = asyncio.ensure_future(contained(run(args=args, tool_context=tool_context), is_adks))
        most_s = limit_s(tool, state.tool_timeout_s)
        ended = False
        try:
            ended = bool((await asyncio.wait({task}, timeout=most_s))[0])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=most_s and _GRACE_S)  # one that will not stop is left alone
        if task.done() and not task.cancelled():
            return task.result()
        return {"error": CANCELLED_INSIDE if ended else f"timed out after {most_s:g} s, and its outcome is unknown"}

    vars(tool)["run_async"] = bounded
