"""Answer model calls and tools of a turn that is run again from what its earlier run stored.

What is stored, and how a step is recognised, is in `lango.adk.events.recorded_run`.
"""

import time
import uuid
from contextvars import ContextVar
from typing import Any, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from msgspec import json

from lango.adk.agents.adk_internals import node_of_tool, tool_node_path
from lango.adk.agents.tools.client_tools import mark_client_calls
from lango.adk.events.recorded_run import restore_actions
from lango.adk.run.model_call_stats import ModelCallStats
from lango.adk.run.record.result_files import load_files
from lango.adk.run.turn_limits import call_fingerprint
from lango.adk.run.turn_state import TurnState
from lango.adk.services.credential_secrets import open_actions
from lango.errors import TurnDiverged
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import TurnEntry
from lango.store.turns.recovery import UNKNOWN_RESULT

_outer_calls: ContextVar[tuple[str, ...]] = ContextVar("lango_outer_calls", default=())
"""The ids of the calls that this code runs inside of: agents that are called as tools."""


def runs_agents(tool: BaseTool) -> bool:
    """Whether a tool only runs agents or nodes, whose own steps are recorded: it is harmless to run it again."""
    return isinstance(tool, AgentTool) or node_of_tool(tool) is not None


def enter_tool(state: TurnState, tool: BaseTool, call_id: str) -> None:
    """Note that the agents inside a tool run for this call."""
    if runs_agents(tool):
        state.agent_calls.add(call_id)
        _outer_calls.set((*_outer_calls.get(), call_id))


def end_tool(state: TurnState, call_id: str) -> None:
    """Note that a tool call has its result: what the record has of the agents inside it is no longer needed."""
    outer = _outer_calls.get()
    if state.recorded is not None:
        state.recorded.end("/".join(outer if outer[-1:] == (call_id,) else (*outer, call_id)))


def nested_step_id(step_id: str) -> str:
    """Return the id of a step, after the ids of the calls that it runs inside of."""
    return "/".join((*_outer_calls.get(), step_id))


def outer_call() -> str:
    """Return the id of the call that this code runs inside of; empty: none."""
    return (_outer_calls.get() or ("",))[-1]


def next_model_step(state: TurnState, context: CallbackContext, *, nested: bool) -> str:
    """Return the id of an agent's next model call, the same in every run of the turn."""
    place = f"{context.agent_name}@{context.branch or ''}"
    place = nested_step_id(place) if nested else place
    state.model_steps[place] += 1
    return f"{place}#{state.model_steps[place]}"


def replayed_response(state: TurnState, context: CallbackContext, step: str, *, nested: bool) -> LlmResponse | None:
    """Return the recorded response to a model call; None: the call was not made yet."""
    agent, branch = context.agent_name, context.branch or ""
    if nested:
        return _nested_response(state, agent, branch)
    if state.recorded is None or (response := state.recorded.next_response(agent, branch)) is None:
        return None
    for name, value in state.recorded.state_delta_of_response(agent, branch).items():
        context.state[name] = value
    call = ModelCallStats(response.model_version or "", agent, step=step, branch=branch, replayed=True)
    call.end(response.model_version, response.usage_metadata)
    state.model_call_stats.append(call)
    if state.offers_client_tools(context):
        state.client_calls |= mark_client_calls(response, state.client_tools)
    return response


def _nested_response(state: TurnState, agent: str, branch: str) -> LlmResponse | None:
    """Return the recorded response to a model call inside a tool, and count the call."""
    place = nested_step_id(f"{agent}@{branch}")
    state.nested_calls[place] += 1
    entry = state.recorded.entry(f"{place}#{state.nested_calls[place]}") if state.recorded else None
    return LlmResponse.model_validate_json(json.encode(entry.result)) if entry else None


async def record_nested_response(state: TurnState, context: CallbackContext, response: LlmResponse) -> None:
    """Record the response to a model call inside a tool: its session is not stored.

    Its calls get their ids now, as ADK would give them later: they are known by these when the turn is run again.
    """
    for part in (response.content and response.content.parts) or ():
        if part.function_call is not None and not part.function_call.id:
            part.function_call.id = f"adk-{uuid.uuid4()}"
    place = nested_step_id(f"{context.agent_name}@{context.branch or ''}")
    members = json.decode(response.model_dump_json(exclude_none=True))
    await state.store.write(
        tool_journal.record_finished_step,
        state.turn,
        f"{place}#{state.nested_calls[place]}",
        context.agent_name,
        members,
        time.time(),
    )


async def replayed_result(
    state: TurnState, call_id: str, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Return the recorded result of a tool call; None: the tool runs, for the first time or harmlessly again."""
    recorded = state.recorded
    if recorded is None:
        return None
    entry = recorded.entry(call_id)
    fingerprint = call_fingerprint(tool.name, arguments)
    nested = context.session.id != state.session_id
    if not nested and (known := recorded.next_result(call_id)) is not None:
        state.call_counts[fingerprint] += 1
        if known.actions is not None:
            restore_actions(context.actions, known.actions)
        if known.confirmation is not None:
            context.actions.requested_tool_confirmations[call_id] = known.confirmation
        return known.response
    if entry is not None and entry.status == "unknown":  # it only asked for an approval or a credential, or failed
        state.runs_again.add(call_id)
    if entry is None or entry.status in ("intended", "unknown"):
        return None
    return await _journaled_result(state, entry, call_id, tool, fingerprint, context)


async def _journaled_result(
    state: TurnState, entry: TurnEntry, call_id: str, tool: BaseTool, fingerprint: str, context: ToolContext
) -> dict[str, Any] | None:
    """Return the result of a call that began before; None: it runs again, which is harmless."""
    if entry.arguments != fingerprint:
        raise TurnDiverged(f"call {call_id!r} of {tool.name} has other arguments than in the first run: it is not run")
    if entry.status == "finished":
        state.call_counts[fingerprint] += 1
        result = cast("dict[str, Any]", entry.result or {})  # empty: the result comes later
        result, actions = await load_files(result, open_actions(entry.actions, state.box, call_id), context)
        restore_actions(context.actions, actions)
        if entry.result is None:
            state.awaits_result = state.awaits_result or state.may_await_result(tool, context)
        return result
    path, recorded = tool_node_path(context), state.recorded
    asked = path is not None and recorded is not None and recorded.requests_credential(path)
    if runs_agents(tool) or entry.effect != "once" or asked:
        state.runs_again.add(call_id)
        return None
    state.call_counts[fingerprint] += 1
    unknown = {"error": UNKNOWN_RESULT, "outcome": "unknown"}
    await state.store.write(tool_journal.record_result, state.turn, call_id, unknown, time.time())
    return unknown
