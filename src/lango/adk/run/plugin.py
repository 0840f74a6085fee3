"""Call approvals, the tool journal and the limits of a turn from ADK's callbacks.

One plugin serves every turn of a process. A context variable, which ADK's tasks inherit, holds the turn that a callback
belongs to. Without a turn, as in a user's own Runner, the plugin does nothing.
"""

import logging
import time
from typing import Any, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, ToolContext
from typing_extensions import override

from lango.adk.agents.adk_internals import confirmation_of_tool_node, tool_node_path
from lango.adk.agents.tools.adk_tool import time_limit_s
from lango.adk.agents.tools.client_tools import ClientTool, add_client_tools, mark_client_calls
from lango.adk.agents.transfers import TRANSFER_TOOL
from lango.adk.agents.tree import names_of, tools_of
from lango.adk.events.events_to_rows import complete_error
from lango.adk.model.call_checks import make_call_ids_unique, rename_reserved_calls
from lango.adk.model.content import unwrap_signatures
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.model.quoted_memory import insert_memory
from lango.adk.model.turn_options import append_client_instruction, apply_options, keep_first_call
from lango.adk.run.input.user_message import prepare_user_message
from lango.adk.run.pauses.approval_gate import check_approved_arguments, journal_intent, refusal_reason
from lango.adk.run.recall import insert_recalled
from lango.adk.run.record.divergence import await_record
from lango.adk.run.record.journal_recorder import record_error, record_result, record_start
from lango.adk.run.record.model_calls import (
    keep_adk_request,
    note_made_calls,
    note_model_call,
    note_response,
    store_requests,
)
from lango.adk.run.record.replay import (
    end_tool,
    enter_tool,
    nested_step_id,
    next_model_step,
    record_nested_response,
    replayed_response,
    replayed_result,
    runs_agents,
)
from lango.adk.run.runtime_tools import guard_tool
from lango.adk.run.turn_limits import (
    WARN_AT_SHARE,
    call_fingerprint,
    check_call,
    check_transfer,
    has_answer_schema,
    is_unknown_tool,
    remove_tools,
)
from lango.adk.run.turn_state import TurnState, current_state
from lango.adk.services.artifact_references import load_references
from lango.adk.services.request_context import LoadSummary, current_step, last_load, warn_left_out
from lango.adk.services.stored_session import prepare_for_requests
from lango.errors import ClientToolRefused, ModelOptionsRefused, TurnLimit
from lango.events import ToolStart
from lango.failure_log import log_failure

_log = logging.getLogger("lango.runtime")
_SERVERS_LOST = (
    "[The tools of these MCP servers are unavailable now: {servers}. Do without them, and say so where an answer needs "
    "them; they may be back with the next message.]"
)


class RuntimePlugin(BasePlugin):
    """Applies approvals, journal and limits to every turn of the runtime."""

    def __init__(self) -> None:
        super().__init__(name="lango")

    @override
    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Prepare the message of the user for the run, and the loaded events for the requests of the run."""
        state = current_state()
        if state is not None and invocation_context.session.id == state.session_id:
            await prepare_user_message(state, invocation_context)
            prepare_for_requests(invocation_context.session)  # ADK appends no message, so the service does not

    @override
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Prepare a model call, and limit how many a turn makes: the last one gets no tools and must answer."""
        state = current_state()
        if state is None:
            return None
        # an agent that is called as a tool has its own session, and its text is only a tool result
        in_agent_tool = callback_context.session.id != state.session_id
        if not in_agent_tool and (
            sink := state.text_sink_for(callback_context.agent_name, callback_context.branch or "")
        ):
            state.text_sinks[id(llm_request)] = sink
        if (refusal := _count_model_call(state)) is not None:
            return refusal
        step = next_model_step(state, callback_context, nested=in_agent_tool)
        if (known := replayed_response(state, callback_context, step, nested=in_agent_tool)) is not None:
            # ADK looks up the tools of the calls in the request
            return _add_client_tools(state, callback_context, llm_request) or known
        agent_name, branch = callback_context.agent_name, callback_context.branch or ""
        await await_record(state, f"a model call of agent {agent_name!r}", branch)
        await _begin_model_call(state, callback_context, nested=in_agent_tool)
        call = note_model_call(state, callback_context, llm_request, step, nested=in_agent_tool)
        if (refusal := _offer_tools(state, callback_context, llm_request)) is not None:
            return refusal
        insert_memory(callback_context, llm_request)
        if not in_agent_tool:
            await insert_recalled(state, callback_context, llm_request)
        await load_references(llm_request.contents, state.load_reference)
        await state.files.load_into(llm_request.contents)
        if in_agent_tool:
            last_load.set(LoadSummary())
        agent: Any = callback_context.get_invocation_context().agent
        if not isinstance(model := agent.canonical_model, ProviderLlm):
            _prepare_request_of_user_model(model, llm_request, callback_context)
            keep_adk_request(call, llm_request)
        return None

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Record the duration and tokens of a model call, and correct the names and ids of the tool calls it made.

        Names that ADK reserves are replaced. Ids are made unique in the session: some models count from 1.
        """
        state = current_state()
        agent: Any = callback_context.get_invocation_context().agent
        complete_error(llm_response)
        rename_reserved_calls(llm_response, lambda: names_of(tools_of(agent)))
        if state is not None and not llm_response.partial:
            note_response(state, callback_context, llm_response)
            await store_requests(state)
            if not state.options.parallel_tool_calls and state.answers_client(callback_context):
                keep_first_call(llm_response)
            parts = (llm_response.content and llm_response.content.parts) or []
            calls = [part.function_call for part in parts if part.function_call]
            make_call_ids_unique(calls, state.used_call_ids, callback_context.session)
            if state.offers_client_tools(callback_context):
                state.client_calls |= mark_client_calls(llm_response, state.client_tools)
            if callback_context.session.id != state.session_id:
                await record_nested_response(state, callback_context, llm_response)
                note_made_calls(state, callback_context, [call.id for call in calls if call.id])
                state.step_gate.leave()
        return None

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Decide whether a tool runs, and journal its start; a returned result is used instead of running it."""
        state = current_state()
        call_id = _stable_call_id(tool_context) if state is not None else None
        if state is None or not call_id:
            return None
        if state.client_calls and tool_context.session.id == state.session_id:
            tool_context.actions.skip_summarization = True  # the model continues with the client's results
        enter_tool(state, tool, call_id)
        current_step.set(nested_step_id(call_id))
        result = await replayed_result(state, call_id, tool, tool_args, tool_context)
        if result is not None or is_unknown_tool(tool):
            end_tool(state, call_id)
        if tool.name == TRANSFER_TOOL:
            return result or check_transfer(state, tool_args, tool_context)
        if isinstance(tool, ClientTool):
            state.emit(ToolStart(state.next_id(), call_id, tool.name, tool_args, tool_context.agent_name))
            if call_id in state.client_calls:
                return None
            return result or check_call(state, tool, tool_args, tool_context)
        if result is None:
            result = await _journal_and_admit(state, call_id, tool, tool_args, tool_context)
        if (request := confirmation_of_tool_node(tool_context, tool, tool_args)) is not None:
            return cast("dict[str, Any]", request)  # what the node yields: it has no model that could ask
        waits = call_id in {*tool_context.actions.requested_tool_confirmations, *state.confirmed_by_adk}
        if not waits and (call_id in state.call_ids or _runs_after_answer(state, tool_context)):
            state.emit(ToolStart(state.next_id(), call_id, tool.name, tool_args, tool_context.agent_name))
        return result

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Journal the result before it becomes a message."""
        state = current_state()
        call_id = tool_context.function_call_id or ""
        if state is None or call_id not in state.started_at:
            current_step.set("")
            return None
        try:
            refusal = refusal_reason(tool_context.tool_confirmation)
            return await record_result(state, call_id, tool, tool_context, result, refusal)
        finally:
            current_step.set("")  # not before: the files of the result belong to the step
            end_tool(state, call_id)
            _leave_tool(state, tool)

    @override
    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Journal the error of a tool, and make it the result that the model reads."""
        current_step.set("")
        state = current_state()
        call_id = tool_context.function_call_id or ""
        if state is not None:
            log_failure(f"tool {tool.name} failed in {state.place}", error)
        if state is None or call_id not in state.started_at:
            return None
        try:
            return await record_error(state, call_id, error, tool_context)
        finally:
            end_tool(state, call_id)
            _leave_tool(state, tool)


def _leave_tool(state: TurnState, tool: BaseTool) -> None:
    if not runs_agents(tool):
        state.tool_slots.release()
        state.step_gate.leave()


def _stable_call_id(context: ToolContext) -> str | None:
    """Return the id of a call, the same in every run of its turn."""
    if (path := tool_node_path(context)) is not None:
        context.function_call_id = f"node:{path}"
    return context.function_call_id


def _runs_after_answer(state: TurnState, context: ToolContext) -> bool:
    """Whether an earlier turn made the call, and it runs now that it is approved, or has its credential."""
    answered = context.tool_confirmation is not None or (
        state.brings_credential and context.session.id == state.session_id
    )
    return answered and tool_node_path(context) is None


def _count_model_call(state: TurnState) -> LlmResponse | None:
    """Count a model call; return an error instead of the response if the turn made too many."""
    state.model_calls += 1
    limit = state.max_model_calls
    if state.model_calls <= limit:
        return None
    state.failure = TurnLimit(f"the turn took more than {limit} model calls (setting agent.max_turns)")
    return LlmResponse(error_code="TURN_LIMIT", error_message=str(state.failure))


def _offer_tools(state: TurnState, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
    """Add the client's tools to a request, or remove all from the last one; return an error if that is not possible."""
    if state.failed_servers:
        request.append_instructions([_SERVERS_LOST.format(servers=", ".join(sorted(state.failed_servers)))])
    if (refusal := _add_client_tools(state, context, request)) is not None:
        return refusal
    limit = state.max_model_calls
    if state.model_calls == limit and limit > 1:
        remove_tools(request)
    elif state.model_calls == max(1, int(limit * WARN_AT_SHARE)):
        _log.warning("turn %s: %s of %s model calls are used", state.turn.turn, state.model_calls, limit)
    return _apply_options(state, context, request)


def _apply_options(state: TurnState, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
    """Set the options of the turn in a request; return an error if that is not possible."""
    if context.session.id == state.session_id:  # agents that run in parallel read it, too
        append_client_instruction(request, state.options.instruction)
    if not state.answers_client(context):
        return None
    try:
        apply_options(request, state.options, state.client_tools, is_first_call=state.model_calls == 1)
    except ModelOptionsRefused as error:
        state.failure = error
        return LlmResponse(error_code="MODEL_OPTIONS_REFUSED", error_message=str(error))
    return None


def _add_client_tools(state: TurnState, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
    """Add the client's tools to a request; return an error if the agent has a tool of the same name."""
    if not state.offers_client_tools(context) or has_answer_schema(request):
        return None
    try:
        add_client_tools(request, state.client_tools)
    except ClientToolRefused as error:
        state.failure = error
        return LlmResponse(error_code="CLIENT_TOOL_REFUSED", error_message=str(error))
    return None


async def _begin_model_call(state: TurnState, context: CallbackContext, *, nested: bool) -> None:
    """Begin a model call that really happens, unless the process stops."""
    if nested:
        await state.step_gate.enter()
    else:
        await state.begin_model_call(context.branch or "", context.agent_name)
        state.on_model_call(context.agent_name)


async def _journal_and_admit(
    state: TurnState, call_id: str, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Journal a call and check whether it may run. Return the result that the model reads instead; None: it runs."""
    if (context.tool_confirmation is not None or state.brings_credential) and state.has_other_pending:
        context.actions.skip_summarization = True  # the model continues when every request is answered
    refused = check_call(state, tool, arguments, context)
    if refused or is_unknown_tool(tool):  # ADK itself lists the existing tools for the model
        return refused
    fingerprint = call_fingerprint(tool.name, arguments)
    if context.tool_confirmation and (changed := await check_approved_arguments(state, call_id, fingerprint)):
        return changed
    is_known = state.recorded is not None and state.recorded.entry(call_id) is not None
    if not is_known and not runs_agents(tool):  # the record may have what a known one led to: a request for approval
        await await_record(state, f"tool {tool.name!r}", context.branch or "", is_tool=True)
    if refused := await journal_intent(state, call_id, tool, arguments, fingerprint, context):
        return refused
    if not runs_agents(tool):  # their own steps pass the gate
        await state.tool_slots.acquire()
        await state.step_gate.enter()
    if not await record_start(state, call_id) and call_id not in state.runs_again:
        _leave_tool(state, tool)
        return {"error": "not run: this call was begun before"}
    state.started_at[call_id] = time.monotonic()
    state.time_limits_s[call_id] = time_limit_s(tool, state.tool_timeout_s)
    guard_tool(tool, state.tool_timeout_s)
    return None


def _prepare_request_of_user_model(model: BaseLlm, request: LlmRequest, context: CallbackContext) -> None:
    """Remove signatures that a model of the user's own cannot read, and log what the load left out.

    `ProviderLlm` does both itself.
    """
    request.contents = unwrap_signatures(request.contents, request.model or "", gemini=isinstance(model, Gemini))
    load = last_load.get()
    if load.left_out and not load.logged:
        warn_left_out(load.left_out, load.left_out + len(context.session.events))
