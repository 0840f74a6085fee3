"""Answer model calls and tools of a turn that is run again from what its earlier run stored.

What is stored, and how a step is recognised, is in `lango.adk.events.recorded_run`. The record is used up in the order
in which it was made: a new step before that shows that the code is not the same, although the app has the same shape.
Nothing may run then: the turn continues from its stored history instead.
"""

import asyncio
import uuid
from typing import Any, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from msgspec import json

from lango.adk.agents.adk_internals import node_of_tool, tool_node_path
from lango.adk.agents.tools.adk_tool import AdkTool
from lango.adk.agents.tools.client_tools import ClientTool, mark_client_calls
from lango.adk.events.recorded_run import WHY, restore_actions
from lango.adk.run.record.result_files import load_files
from lango.adk.services.credential_secrets import open_actions
from lango.adk.turn.limits import call_fingerprint
from lango.adk.turn.model_calls import ModelCallStats
from lango.adk.turn.step import current_step, enter_call, enter_step
from lango.adk.turn.turn_run import TurnRun
from lango.errors import TurnDiverged
from lango.store.tool_calls.tool_journal import JournalEntry
from lango.store.waits.recovery import UNKNOWN_RESULT

PAUSE = "pause"
"""The key of the kind of wait among the journaled actions of a tool that sleeps, or waits for an event."""
CALLED_BEFORE_UPDATE = (
    "this call was made before the application was updated, and was not repeated; call it again if it must be repeated"
)
_PASSES = 20
"""How often the event loop runs the tasks that begin together with a step: they ask for their own recorded steps."""


def runs_agents(tool: BaseTool) -> bool:
    """Whether a tool only runs agents or nodes, whose own steps are recorded: it is harmless to run it again."""
    return isinstance(tool, AgentTool) or node_of_tool(tool) is not None


def may_await_result(turn: TurnRun, tool: BaseTool, context: ToolContext) -> bool:
    """Whether results of a tool may come from outside after the turn: of ADK's long-running tools."""
    return tool.is_long_running and not isinstance(tool, ClientTool | AdkTool) and turn.has_session(context)


def enter_tool(tool: BaseTool, call_id: str) -> None:
    """Note that this code runs in a tool call, and the agents inside the tool run for it."""
    if runs_agents(tool):
        enter_call(call_id)
    enter_step(current_step().inner_id(call_id))


def end_tool(turn: TurnRun, call_id: str) -> None:
    """Note that a tool call has its result: what the record has of the agents inside it is no longer needed."""
    outer = current_step().outer_calls
    turn.record.earlier_run.end("/".join(outer if outer[-1:] == (call_id,) else (*outer, call_id)))


def agent_place(context: CallbackContext) -> str:
    """Name an agent with its branch: several may run at once."""
    return f"{context.agent_name}@{context.branch or ''}"


def next_model_step(turn: TurnRun, context: CallbackContext, *, nested: bool) -> str:
    """Return the id of an agent's next model call, the same in every run of the turn."""
    place = agent_place(context)
    if not nested:
        turn.waits.begin_response(place)
    return turn.record.next_step(current_step().inner_id(place) if nested else place)


def replayed_response(turn: TurnRun, context: CallbackContext, step: str, *, nested: bool) -> LlmResponse | None:
    """Return the recorded response to a model call, or None if the call was not made yet."""
    agent, branch = context.agent_name, context.branch or ""
    if nested:
        entry = turn.record.earlier_run.entry(step)
        return LlmResponse.model_validate_json(json.encode(entry.result)) if entry else None
    if (known := turn.record.earlier_run.next_response(agent, branch)) is None:
        return None
    response, state_delta = known
    for name, value in state_delta.items():
        context.state[name] = value
    turn.output.model_calls.add_replayed(response, agent, branch, step)
    if turn.offers_client_tools(context):
        turn.waits.note_client_calls(mark_client_calls(response, turn.input.client_tools))
    return response


async def record_nested_response(turn: TurnRun, call: ModelCallStats, response: LlmResponse) -> None:
    """Record the response to a model call inside a tool: its session is not stored.

    Its calls get their ids now, as ADK would give them later: they are known by these when the turn is run again.
    """
    parts = (response.content and response.content.parts) or ()
    made = [part.function_call for part in parts if part.function_call is not None]
    for function_call in made:
        function_call.id = function_call.id or f"adk-{uuid.uuid4()}"
    call.note_made([function_call.id or "" for function_call in made])
    await turn.record.add_finished(call.step, call.agent, json.decode(response.model_dump_json(exclude_none=True)))


async def replayed_result(
    turn: TurnRun, call_id: str, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Return the recorded result of a tool call, or None if the tool runs, for the first time or harmlessly again."""
    entry = turn.record.earlier_run.entry(call_id)
    fingerprint = call_fingerprint(tool.name, arguments)
    if turn.has_session(context) and (known := turn.record.earlier_run.next_result(call_id)) is not None:
        if known.response.get("note") == CALLED_BEFORE_UPDATE:
            result_before_update(turn, fingerprint, context)
        if known.actions is not None:
            restore_actions(context.actions, known.actions)
        if known.confirmation is not None:
            context.actions.requested_tool_confirmations[call_id] = known.confirmation
        return known.response
    if entry is not None and entry.status == "unknown":  # it only asked for an approval or a credential, or failed
        turn.record.allow_repeat(call_id)
    if entry is None or entry.is_not_run:
        return None
    return await _journaled_result(turn, entry, call_id, tool, fingerprint, context)


def result_before_update(turn: TurnRun, fingerprint: str, context: ToolContext) -> dict[str, Any] | None:
    """Return the result of the same call, made before the turn continued after an update, or None if it runs.

    The agent that makes the call now may not know of the earlier one. Each earlier call answers one call, so an agent
    that knows of it can still repeat it.
    """
    history, agent = turn.app.continued_history, context.agent_name
    earlier = turn.record.earlier_calls.get(fingerprint, [])
    for place, call in enumerate(earlier):
        if not (turn.has_session(context) and history.shows_call(call.author, agent)):
            del earlier[place]
            known = cast("dict[str, Any]", call.result or {"error": UNKNOWN_RESULT, "outcome": "unknown"})
            return {**known, "note": CALLED_BEFORE_UPDATE}
    return None


async def _journaled_result(
    turn: TurnRun, entry: JournalEntry, call_id: str, tool: BaseTool, fingerprint: str, context: ToolContext
) -> dict[str, Any] | None:
    """Return the result of a call that began before, or None if it runs again, which is harmless."""
    if entry.arguments != fingerprint:
        raise TurnDiverged(
            f"call {call_id!r} of {tool.name} was not run: its arguments differ from the first run; {WHY}"
        )
    if entry.status == "finished":
        result = cast("dict[str, Any]", entry.result or {})  # empty: the result comes later
        result, actions = await load_files(result, open_actions(entry.actions, turn.app.box, call_id), context)
        paused_for = actions.get(PAUSE)
        restore_actions(context.actions, {name: value for name, value in actions.items() if name != PAUSE})
        if paused_for is not None or (entry.result is None and may_await_result(turn, tool, context)):
            turn.waits.note_pause(agent_place(context), paused_for or "long_running_result")
        else:
            turn.waits.note_result(agent_place(context), context.actions)
        return result
    path = tool_node_path(context)
    asked = path is not None and turn.record.earlier_run.requests_credential(path)
    if runs_agents(tool) or entry.effect != "once" or asked:
        turn.record.allow_repeat(call_id)
        return None
    unknown = {"error": UNKNOWN_RESULT, "outcome": "unknown"}
    await turn.record.finish(call_id, unknown)
    return unknown


async def require_used_up(turn: TurnRun, step: str, branch: str, *, is_tool: bool = False, node: str = "") -> None:
    """Raise `TurnDiverged` if the record has steps that come before a new one, and that this run has not used.

    `node` is the id of a new function node.
    """
    earlier, place = turn.record.earlier_run, (current_step().outer_calls, branch, node)
    passes, uses = 0, earlier.uses
    while unused := earlier.unused_before(*place, is_tool=is_tool):
        if passes == _PASSES:
            diverged = TurnDiverged(f"{step} was not run: the first run had {unused} before it: {WHY}")
            turn.output.fail(diverged)  # even if the user's code or ADK replaces the exception
            raise diverged
        await asyncio.sleep(0)
        passes, uses = (passes + 1 if earlier.uses == uses else 0), earlier.uses
