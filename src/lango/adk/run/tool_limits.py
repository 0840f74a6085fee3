"""Limit the model calls and tools of a turn, refuse calls that cannot run, and read the full text of results."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from google.adk.models.llm_request import LlmRequest
from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_internals import has_replaced_run, replace_run
from lango.adk.agents.app_builder import is_adk_control_flow
from lango.adk.agents.tools.adk_tool import AdkTool, DeclaredTool, attachments_to_parts, time_limit_s, with_files
from lango.adk.agents.tools.client_tools import WAITS_FOR_CLIENT
from lango.adk.agents.tools.mcp.results import read_mcp_result
from lango.adk.agents.tree import transfer_correction
from lango.adk.turn.limits import call_fingerprint
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.errors import InvalidArguments, TurnLimit
from lango.store.tool_calls import tool_journal
from lango.tools.execution import CANCELLED_INSIDE, convert_base_exceptions
from lango.tools.results import ResultFiles, to_result

MAX_SAME_CALLS = 5
"""How often a turn may make the same call that cannot run."""
WARN_AT_SHARE = 0.8
FINAL_STEP_INSTRUCTION = (
    "This is the last step of this turn, and you can no longer use tools. Say in plain words what you did, what you "
    "found out, and what is still open."
)


def is_unknown_tool(tool: BaseTool) -> bool:
    """Whether this is the `BaseTool` object that ADK makes for a tool that does not exist."""
    return type(tool) is BaseTool


def has_answer_schema(request: LlmRequest) -> bool:
    """Whether the answer must follow a JSON schema: then the model calls no tool."""
    return bool(request.config.response_schema or request.config.response_json_schema)


def remove_tools(request: LlmRequest) -> None:
    """Remove all tools from a request, so that the model must answer."""
    request.tools_dict.clear()
    request.config.tools = None
    request.config.tool_config = None
    request.append_instructions([FINAL_STEP_INSTRUCTION])


def check_transfer(turn: TurnRun, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any] | None:
    """Return an error for a transfer to an agent that does not exist: ADK would store it as done, and then fail."""
    if turn.waits.client_calls:
        return {"error": WAITS_FOR_CLIENT}
    wanted = str(arguments.get("agent_name", ""))
    valid = turn.app.agent_names(context.agent_name)
    if wanted in valid:
        return None
    turn.output.note_missing_agent(wanted, valid)
    context.actions.skip_summarization = True  # the run ends here; the engine runs again with a correction
    return {"error": transfer_correction(wanted, valid)}


def check_call(
    turn: TurnRun, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Return the error of a call with wrong arguments. The turn fails if its model repeats a call that cannot run."""
    error = None
    if isinstance(tool, DeclaredTool):
        try:
            tool.tool.validate(arguments)
        except InvalidArguments as wrong:
            error = {"error": str(wrong)}
    if error is None and not is_unknown_tool(tool):
        return None
    if turn.limits.count_wrong_call(call_fingerprint(tool.name, arguments)) < MAX_SAME_CALLS:
        return error
    failure = TurnLimit(f"the model called {tool.name} {MAX_SAME_CALLS} times in one turn in the same wrong way")
    turn.output.fail(failure)
    context.actions.skip_summarization = True
    return {"error": f"not run: {failure}"}


# -- the user's own tools, and results ---------------------------------------------------------------------------------

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
