"""Record the result of each tool call in the tool journal, from ADK's callbacks.

The journal itself is stored by `lango.store.tool_calls.tool_journal`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_internals import defers_response, tool_node_path
from lango.adk.agents.tools.adk_tool import with_files
from lango.adk.model.content import plain_model
from lango.adk.run.record.replay import PAUSE, agent_place, may_await_result
from lango.adk.run.record.result_files import RESULT_FILES, keep_files, parts_in, without_parts
from lango.adk.services.credential_secrets import seal_actions
from lango.adk.turn.turn_run import TurnRun
from lango.errors import NotJson, TurnDiverged
from lango.tools.results import error_text, to_result
from lango.waits.pauses import AwaitedEvent, Pause, Sleep

NOT_LONG_RUNNING = (
    "this tool cannot wait: make it a LongRunningFunctionTool, or a Tool with long_running=True; in a workflow, wait "
    "in a function node"
)
CANNOT_WAIT = "an agent that is called as a tool cannot wait: its answer is awaited. Let the agent that called it wait"


async def record_result(
    turn: TurnRun, call_id: str, tool: BaseTool, context: ToolContext, result: Any, refusal: str = ""
) -> dict[str, Any] | None:
    """Journal the result of a tool. Return the JSON object to use instead of a result that is not JSON, else None.

    A tool that asked by its own code gets the reason of a `refusal`; the model reads it, too.
    """
    duration_s = turn.record.end_call(call_id)
    actions = context.actions
    if call_id in actions.requested_tool_confirmations or call_id in actions.requested_auth_configs:
        # the tool itself requested approval or a credential: it has done nothing yet, and will be called again
        await turn.record.finish(call_id, None, "unknown")
        if turn.brings_credential or context.tool_confirmation is not None:
            actions.skip_summarization = True  # the model continues with the result, and not with the request
        return None
    parts = [*parts_in(result)]
    kept = await keep_files(tool, context, parts) if parts else []
    done = seal_actions(actions, turn.app.box, call_id) | ({RESULT_FILES: kept} if kept else {})
    if isinstance(result, Sleep | AwaitedEvent):
        return await _record_pause(turn, call_id, tool, context, result, done)
    awaits_result = may_await_result(turn, tool, context)
    if not result and defers_response(tool):
        await turn.record.finish(call_id, None, actions=done, awaits_result=awaits_result)
        if awaits_result:
            turn.waits.note_pause(agent_place(context), "long_running_result")
        return None
    turn.waits.note_result(agent_place(context), actions)
    turn.output.note_duration(call_id, duration_s)
    rest = without_parts(result) if parts else result
    plain = _to_json_object(rest)
    if refusal and refusal not in str(plain):
        plain["refusal"] = refusal
    await turn.record.finish(call_id, plain, actions=done, awaits_result=awaits_result)
    # a result that is JSON is not replaced: ADK wraps it itself
    return None if plain in (rest, {"result": rest}) else with_files(plain, parts)


async def _record_pause(
    turn: TurnRun, call_id: str, tool: BaseTool, context: ToolContext, pause: Pause, actions: Mapping[str, Any]
) -> dict[str, Any]:
    """Journal that a call waits, and open its wait. Return the result that ADK takes for none yet, or an error."""
    if not tool.is_long_running or tool_node_path(context) is not None:
        refused = {"error": NOT_LONG_RUNNING}
    elif not turn.has_session(context):
        refused = {"error": CANNOT_WAIT}
    else:
        actions = {**actions, PAUSE: pause.kind}
        await turn.record.finish(call_id, None, actions=actions, awaits_result=True, pause=pause)
        turn.waits.note_pause(agent_place(context), pause.kind)
        return {}
    await turn.record.finish(call_id, refused, actions=actions)
    turn.waits.note_result(agent_place(context), context.actions)
    return refused


async def record_error(
    turn: TurnRun, call_id: str, error: BaseException, context: ToolContext
) -> dict[str, Any] | None:
    """Journal the error of a tool, and return it as the call's result, or None if it is raised instead.

    A tool that is a node of a workflow fails its node, which ADK may retry.
    """
    if isinstance(error, asyncio.CancelledError):
        return None  # the row stays `started`: the outcome is unknown
    if isinstance(turn.output.failure, TurnDiverged):
        return None  # of a step inside the tool: the turn ends
    result = {"error": error_text(error)}
    turn.output.note_duration(call_id, turn.record.end_call(call_id))
    if tool_node_path(context) is not None:
        turn.record.allow_repeat(call_id)
        await turn.record.finish(call_id, None, "unknown")
        return None
    await turn.record.finish(call_id, result)
    turn.waits.note_result(agent_place(context), context.actions)
    return result


def _to_json_object(result: Any) -> dict[str, Any]:
    """Return the result that the model reads: as in ADK, a value other than a dict, such as a model, is in `result`."""
    try:
        plain = to_result(plain_model(result))
    except NotJson as error:
        return {"error": str(error)}
    return plain if isinstance(result, Mapping) or plain.keys() == {"result"} else {"result": plain}
