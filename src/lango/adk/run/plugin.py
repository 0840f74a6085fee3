"""Call approvals, the tool journal and the limits of a turn from ADK's callbacks.

One plugin serves every turn of a process. A context variable, which ADK's tasks inherit, holds the turn that a callback
belongs to. Without a turn, as in a user's own Runner, the plugin does nothing.
"""

import inspect
import logging
from typing import Any, cast

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, ToolContext
from msgspec import Struct
from typing_extensions import override

from lango.adk.agents.adk_internals import confirmation_of_tool_node, let_agent_answer, tool_node_path
from lango.adk.agents.tools.adk_tool import time_limit_s
from lango.adk.agents.tools.client_tools import ClientTool, add_client_tools, mark_client_calls
from lango.adk.agents.tree import TRANSFER_TOOL, names_of, tools_of
from lango.adk.events.events_to_rows import complete_error
from lango.adk.model.call_checks import make_call_ids_unique, rename_reserved_calls
from lango.adk.model.content import unwrap_signatures
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.model.quoted_memory import insert_memory
from lango.adk.model.request_config import append_client_instruction, apply_options, keep_first_call
from lango.adk.run.input.user_messages import prepare_user_message, show_recorded_messages, take_new_messages
from lango.adk.run.pauses.approval_gate import check_approved_arguments, journal_intent, refusal_reason
from lango.adk.run.recall import insert_recalled
from lango.adk.run.record.journal_recorder import record_error, record_result
from lango.adk.run.record.model_requests import keep_adk_request, store_requests
from lango.adk.run.record.replay import (
    end_tool,
    enter_tool,
    next_model_step,
    record_nested_response,
    replayed_response,
    replayed_result,
    require_used_up,
    result_before_update,
    runs_agents,
)
from lango.adk.run.tool_limits import (
    WARN_AT_SHARE,
    check_call,
    check_transfer,
    guard_tool,
    has_answer_schema,
    is_unknown_tool,
    remove_tools,
)
from lango.adk.services.stored_session import prepare_for_requests
from lango.adk.turn.limits import call_fingerprint
from lango.adk.turn.step import LoadSummary, current_step, enter_step, note_load, note_model
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.development.failures import log_failure
from lango.errors import ClientToolRefused, ModelOptionsRefused, TurnLimit

_log = logging.getLogger("lango.runtime")
_SERVERS_LOST = (
    "[The tools of these MCP servers are currently unavailable: {servers}. Continue without them, and say so if your "
    "answer needs them; they may be available again later.]"
)


class RuntimePlugin(BasePlugin):
    """Applies approvals, journal and limits to every turn of the runtime."""

    def __init__(self) -> None:
        super().__init__(name="lango")

    @override
    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Prepare the message of the user for the run, and the loaded events for the requests of the run."""
        turn = current_turn.get()
        if turn is not None and invocation_context.session.id == turn.session.id:
            await prepare_user_message(turn, invocation_context)
            prepare_for_requests(invocation_context.session)  # ADK appends no message, so the service does not

    @override
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Prepare a model call, and limit how many a turn makes: the last one gets no tools and must answer."""
        turn = current_turn.get()
        if turn is None:
            return None
        try:
            return await _prepare_model_call(turn, callback_context, llm_request)
        except (TurnLimit, ClientToolRefused, ModelOptionsRefused) as failure:
            turn.output.fail(failure)
            return LlmResponse(error_code=type(failure).__name__, error_message=str(failure))

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Record the duration and tokens of a model call, and correct the names and ids of the tool calls it made.

        Names that ADK reserves are replaced. Ids are made unique in the session: some models count from 1.
        """
        turn = current_turn.get()
        agent: Any = callback_context.get_invocation_context().agent
        complete_error(llm_response)
        rename_reserved_calls(llm_response, lambda: names_of(tools_of(agent)))
        if turn is not None and not llm_response.partial:
            ended = turn.output.model_calls.end(callback_context, llm_response)
            await store_requests(turn)
            if not turn.input.options.parallel_tool_calls and turn.answers_client(callback_context):
                keep_first_call(llm_response)
            parts = (llm_response.content and llm_response.content.parts) or []
            calls = [part.function_call for part in parts if part.function_call]
            used_ids = make_call_ids_unique(calls, turn.record.used_call_ids, callback_context.session)
            turn.record.note_call_ids(used_ids)
            if turn.offers_client_tools(callback_context):
                turn.waits.note_client_calls(mark_client_calls(llm_response, turn.input.client_tools))
            if ended is not None and not turn.has_session(callback_context):
                await record_nested_response(turn, ended, llm_response)
                turn.limits.step_gate.leave()
        return None

    @override
    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Note that a response failed: its text is withdrawn when a retried node calls its model again."""
        turn = current_turn.get()
        if turn is not None and turn.has_session(callback_context):
            turn.output.sink.blocks.note_failure(callback_context.agent_name, callback_context.branch or "")

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Decide whether a tool runs, and journal its start; a returned result is used instead of running it."""
        turn = current_turn.get()
        call_id = _stable_call_id(tool_context) if turn is not None else None
        if turn is None or not call_id:
            return None
        if turn.waits.client_calls and turn.has_session(tool_context):
            tool_context.actions.skip_summarization = True  # the model continues with the client's results
        enter_tool(tool, call_id)
        result = await replayed_result(turn, call_id, tool, tool_args, tool_context)
        if result is not None or is_unknown_tool(tool):
            end_tool(turn, call_id)
        if tool.name == TRANSFER_TOOL:
            return result or check_transfer(turn, tool_args, tool_context)
        if isinstance(tool, ClientTool):
            turn.output.start_tool(call_id, tool.name, tool_args, tool_context.agent_name)
            if call_id in turn.waits.client_calls:
                return None
            return result or check_call(turn, tool, tool_args, tool_context)
        if result is None:
            result = await _journal_and_admit(turn, call_id, tool, tool_args, tool_context)
        if (request := confirmation_of_tool_node(tool_context, tool, tool_args)) is not None:
            return cast("dict[str, Any]", request)  # what the node yields: it has no model that could ask
        waits = call_id in {*tool_context.actions.requested_tool_confirmations, *turn.waits.confirmed_by_adk}
        if not waits and (turn.output.shows_call(call_id) or _runs_after_answer(turn, tool_context)):
            turn.output.start_tool(call_id, tool.name, tool_args, tool_context.agent_name)
        return result

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Journal the result before it becomes a message."""
        turn = current_turn.get()
        call_id = tool_context.function_call_id or ""
        if turn is None or not turn.record.is_running(call_id):
            enter_step("")
            return None
        await turn.store_failures()  # of a tool of Lango's, which returns its error as its result
        try:
            refusal = refusal_reason(tool_context.tool_confirmation)
            instead = await record_result(turn, call_id, tool, tool_context, result, refusal)
        finally:
            enter_step("")  # not before: the files of the result belong to the step
            end_tool(turn, call_id)
            _leave_tool(turn, tool)
        if not instead:
            return instead
        changed = await self._ask_callbacks_of_user(_AFTER_TOOL, tool, tool_args, tool_context, result)
        return instead if changed is None else changed

    @override
    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Journal the error of a tool, and make it the result that the model reads."""
        enter_step("")
        turn = current_turn.get()
        call_id = tool_context.function_call_id or ""
        if turn is not None:
            log_failure(f"tool {tool.name} failed in {turn.place}", error, call_id)
            await turn.store_failures()
        if turn is None or not turn.record.is_running(call_id):
            return None
        if isinstance(error, Exception) and tool_node_path(tool_context) is None:
            instead = await self._ask_callbacks_of_user(_TOOL_ERROR, tool, tool_args, tool_context, error)
            if instead is not None:
                return instead  # the result of the call: ADK gives it to `after_tool_callback`, which journals it
        try:
            return await record_error(turn, call_id, error, tool_context)
        finally:
            end_tool(turn, call_id)
            _leave_tool(turn, tool)

    async def _ask_callbacks_of_user(
        self, about: "_ToolCallbacks", tool: BaseTool, arguments: dict[str, Any], context: ToolContext, value: Any
    ) -> dict[str, Any] | None:
        """Call the callbacks that ADK skips because this plugin answers, in ADK's order; return the first answer."""
        invocation = context.get_invocation_context()
        agent = invocation.agent if tool_node_path(context) is None else None
        plugins = [
            getattr(plugin, about.of_plugin) for plugin in invocation.plugin_manager.plugins if plugin is not self
        ]
        calls = [(callback, {"tool_args": arguments, about.plugin_value: value}) for callback in plugins] + [
            (callback, {"args": arguments, about.agent_value: value}) for callback in getattr(agent, about.of_agent, ())
        ]
        for callback, values in calls:
            answer = callback(tool=tool, tool_context=context, **values)
            answer = await answer if inspect.isawaitable(answer) else answer
            if answer is not None:
                return answer
        return None


class _ToolCallbacks(Struct, frozen=True):
    """The names of one kind of callbacks around tools, in plugins and agents, and of what they are called with."""

    of_plugin: str
    plugin_value: str
    of_agent: str
    agent_value: str


_AFTER_TOOL = _ToolCallbacks("after_tool_callback", "result", "canonical_after_tool_callbacks", "tool_response")
_TOOL_ERROR = _ToolCallbacks("on_tool_error_callback", "error", "canonical_on_tool_error_callbacks", "error")


def _leave_tool(turn: TurnRun, tool: BaseTool) -> None:
    if not runs_agents(tool):
        turn.limits.leave_tool()


def _stable_call_id(context: ToolContext) -> str | None:
    """Return the id of a call, the same in every run of its turn."""
    if (path := tool_node_path(context)) is not None:
        context.function_call_id = f"node:{path}"
    return context.function_call_id


def _runs_after_answer(turn: TurnRun, context: ToolContext) -> bool:
    """Whether an earlier turn made the call, and it runs now that it is approved, or has its credential."""
    answered = context.tool_confirmation is not None or (turn.brings_credential and turn.has_session(context))
    return answered and tool_node_path(context) is None


async def _prepare_model_call(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
    """Prepare a model call, or return its recorded response. Raise the error of a call that cannot be made."""
    # an agent that is called as a tool has its own session, and its text is only a tool result
    in_agent_tool = not turn.has_session(context)
    turn.limits.count_model_call()
    step = next_model_step(turn, context, nested=in_agent_tool)
    show_recorded_messages(turn, context, request)
    if (known := replayed_response(turn, context, step, nested=in_agent_tool)) is not None:
        _add_client_tools(turn, context, request)  # ADK looks up the tools of the calls in the request
        return known
    agent_name, branch = context.agent_name, context.branch or ""
    await require_used_up(turn, f"a model call of agent {agent_name!r}", branch)
    call = await turn.begin_model_call(context, request.model or "", step)
    await take_new_messages(turn, context, request)
    _offer_tools(turn, context, request)
    set_agent_options(turn, context, request)
    insert_memory(context, request)
    if not in_agent_tool:
        await insert_recalled(turn, context, request)
    await turn.app.load_references(turn.session, request.contents)
    await turn.app.load_files(request.contents)
    if in_agent_tool:
        note_load(LoadSummary())
    agent: Any = context.get_invocation_context().agent
    if not isinstance(model := agent.canonical_model, ProviderLlm):
        _prepare_request_of_user_model(turn, model, request, context)
        keep_adk_request(call, request)
    elif not in_agent_tool and agent_name in turn.app.direct_text_agents:
        turn.output.stream_directly(request, agent_name, branch)
    return None


def _offer_tools(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Add the client's tools to a request, or remove all from the last one, and set the options of the turn.

    Raise `ClientToolRefused` or `ModelOptionsRefused` if that is not possible.
    """
    if turn.failed_servers:
        request.append_instructions([_SERVERS_LOST.format(servers=", ".join(sorted(turn.failed_servers)))])
    _add_client_tools(turn, context, request)
    limit = turn.limits.max_model_calls
    if turn.limits.model_calls == limit and limit > 1:
        remove_tools(request)
    elif turn.limits.model_calls == max(1, int(limit * WARN_AT_SHARE)):
        _log.warning("turn %s: %s of %s model calls are used", turn.record.lease.turn, turn.limits.model_calls, limit)
    if turn.has_session(context):  # agents that run in parallel read it, too
        append_client_instruction(request, turn.input.options.instruction)
    if turn.answers_client(context):
        is_first_call = turn.limits.model_calls == 1
        apply_options(request, turn.input.options, turn.input.client_tools, is_first_call=is_first_call)


def _add_client_tools(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Add the client's tools to a request. Raise `ClientToolRefused` if the agent has a tool of the same name."""
    if turn.offers_client_tools(context) and not has_answer_schema(request):
        add_client_tools(request, turn.input.client_tools)


async def _journal_and_admit(
    turn: TurnRun, call_id: str, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Journal a call and check whether it may run. Return what the model reads instead, or None if it runs."""
    if (context.tool_confirmation is not None or turn.brings_credential) and turn.waits.has_others:
        context.actions.skip_summarization = True  # the model continues when every request is answered
    refused = check_call(turn, tool, arguments, context)
    if refused or is_unknown_tool(tool):  # ADK itself lists the existing tools for the model
        return refused
    fingerprint = call_fingerprint(tool.name, arguments)
    if (known := result_before_update(turn, fingerprint, context)) is not None:
        return known
    if context.tool_confirmation and (changed := await check_approved_arguments(turn, call_id, fingerprint)):
        return changed
    # a known call is not held back: the record may have what it led to, such as a request for approval
    if turn.record.earlier_run.entry(call_id) is None and not runs_agents(tool):
        await require_used_up(turn, f"tool {tool.name!r}", context.branch or "", is_tool=True)
    if refused := await journal_intent(turn, call_id, tool, arguments, fingerprint, context):
        return refused
    if not runs_agents(tool):  # their own steps pass the gate
        await turn.limits.enter_tool()
    if not await turn.record.start(call_id) and not turn.record.may_repeat(call_id):
        _leave_tool(turn, tool)
        return {"error": "not run: this call was already started"}
    turn.record.begin_call(call_id)
    turn.limits.time.limit_call(call_id, time_limit_s(tool, turn.limits.tool_timeout_s))
    guard_tool(tool)
    return None


def _prepare_request_of_user_model(
    turn: TurnRun, model: BaseLlm, request: LlmRequest, context: CallbackContext
) -> None:
    """Remove signatures that a model of the user's own cannot read, and log what the load left out.

    `ProviderLlm` does both itself.
    """
    request.contents = unwrap_signatures(request.contents, request.model or "", gemini=isinstance(model, Gemini))
    load = current_step().load
    if load.left_out and not load.logged:
        log, in_all = turn.app.left_out_log, load.left_out + len(context.session.events)
        log.note(turn.session.id, load.left_out, in_all, load.limit, log.rules)


def set_agent_options(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Set what the turn's options say about the agent that calls its model now."""
    options = turn.input.options.agents.get(context.agent_name)
    chosen = turn.tried_models.get(context.agent_name)
    note_model(chosen)  # the model call follows in this task
    if options is not None and options.system:
        request.config.system_instruction = options.system
    agent = context.get_invocation_context().agent
    if chosen is not None and isinstance(agent, LlmAgent) and not isinstance(agent.canonical_model, ProviderLlm):
        # a model object of the user's own: ADK asks the agent of the invocation for its model next
        let_agent_answer(context, agent.model_copy(update={"model": chosen}))
        request.model = chosen.model
