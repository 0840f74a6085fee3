"""Limit model calls and repeated tool calls of a turn, and refuse calls that cannot run."""

from collections.abc import Mapping
from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.tools.adk_tool import DeclaredTool
from lango.adk.agents.tools.client_tools import WAITS_FOR_CLIENT
from lango.adk.agents.tree import transfer_correction
from lango.adk.turn.limits import call_fingerprint
from lango.adk.turn.turn_run import TurnRun
from lango.errors import InvalidArguments, TurnLimit

MAX_SAME_CALLS = 5
"""How often a tool may be called with the same arguments in one turn."""
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
    """Return the error of a call that cannot run even with approval: too often repeated, or bad arguments."""
    times = turn.limits.count_call(call_fingerprint(tool.name, arguments))
    if times >= MAX_SAME_CALLS and context.tool_confirmation is None:
        failure = TurnLimit(f"{tool.name} was called {MAX_SAME_CALLS} times in one turn with the same arguments")
        turn.output.fail(failure)
        context.actions.skip_summarization = True
        return {"error": f"not run: {failure}"}
    if isinstance(tool, DeclaredTool):
        try:
            tool.tool.validate(arguments)
        except InvalidArguments as error:
            return {"error": str(error)}
    return None
