"""Record the start and the result of each tool call in the tool journal, from ADK's callbacks.

The journal itself is stored by `lango.store.turns.tool_journal`.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from google.adk.tools import BaseTool, ToolContext
from google.genai import types

from lango.adk.agents.adk_internals import defers_response
from lango.adk.run.turn_state import TurnState
from lango.errors import NotJson
from lango.store.sessions.sessions import check_epoch
from lango.store.turns import tool_journal
from lango.tools.results import error_text, to_result

if TYPE_CHECKING:
    from collections.abc import Iterable

_RECHECK_LEASE_AFTER_S = 2.0  # well before another process takes a turn without heartbeats over


async def record_start(state: TurnState, call_id: str) -> bool:
    """Journal that a tool starts; False: it was started before.

    A process that was suspended meanwhile may have lost the turn: it checks its lease again before the tool runs.
    """
    checked_at = time.monotonic()
    is_first = await state.store.write(tool_journal.record_start, state.turn, call_id, time.time())
    while time.monotonic() - checked_at > _RECHECK_LEASE_AFTER_S:
        checked_at = time.monotonic()
        await state.store.write(check_epoch, state.turn.session_key, state.turn.epoch)
    return is_first


async def record_result(
    state: TurnState, call_id: str, tool: BaseTool, context: ToolContext, result: Any
) -> dict[str, Any] | None:
    """Journal the result of a tool. Return the JSON object to use instead of a result that is not JSON, else None."""
    duration_s = time.monotonic() - state.started_at.pop(call_id)
    if call_id in context.actions.requested_tool_confirmations:
        # the tool itself requested approval: it has done nothing yet, and will be called again
        await state.store.write(tool_journal.record_result, state.turn, call_id, None, time.time(), "unknown")
        return None
    actions = context.actions.model_dump(mode="json", exclude_defaults=True)
    if not result and defers_response(tool):
        await state.store.write(tool_journal.record_result, state.turn, call_id, None, time.time(), actions=actions)
        return None
    state.durations_s[call_id] = duration_s
    plain = _to_json_object(result)
    await state.store.write(tool_journal.record_result, state.turn, call_id, plain, time.time(), actions=actions)
    # a result that is JSON is not replaced: the agent's own callbacks come later, and expect their own objects
    return None if plain in (result, {"result": result}) or _holds_media(result) else dict(plain)


async def record_error(state: TurnState, call_id: str, error: BaseException) -> dict[str, Any] | None:
    """Journal the error of a tool, and return it as the call's result."""
    if isinstance(error, asyncio.CancelledError):
        return None  # the row stays `started`: the outcome is unknown
    result = {"error": error_text(error)}
    state.durations_s[call_id] = time.monotonic() - state.started_at.pop(call_id)
    await state.store.write(tool_journal.record_result, state.turn, call_id, result, time.time())
    return result


def _to_json_object(result: Any) -> dict[str, Any]:
    try:
        return to_result(result)
    except NotJson as error:
        return {"error": str(error)}


def _holds_media(result: Any) -> bool:
    """Whether a result contains parts with bytes, which ADK moves to their own place in the event."""
    members: Iterable[Any] = [result]
    if isinstance(result, dict | list):
        members = cast("dict[str, Any]", result).values() if isinstance(result, dict) else cast("list[Any]", result)
    return any(isinstance(member, types.Part | types.FunctionResponse) for member in members)
