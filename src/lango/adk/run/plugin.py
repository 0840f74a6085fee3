"""What the runtime does inside ADK's own loop: approvals, the journal of effects, and guards.

One plugin serves every turn of a process; which turn a callback belongs to is in a context variable, which ADK's tasks
inherit. Without a turn (somebody's own Runner) the plugin does nothing.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, ToolContext
from google.genai import types
from typing_extensions import override

from lango.adk.agents.adk_tool import AdkTool
from lango.adk.agents.client_tools import WAITS_FOR_CLIENT, ClientTool, mark_calls, offer
from lango.adk.agents.transfers import TRANSFER_TOOL, correction
from lango.adk.model.call_checks import make_unique
from lango.adk.model.content import open_envelopes
from lango.adk.model.direct_text import speak
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.model.quoted_memory import add_memory
from lango.adk.reserved_names import rename_reserved_calls
from lango.adk.run.model_call_stats import ModelCall
from lango.adk.run.turn_state import TurnState, contain, current_turn, limit_s
from lango.adk.services.session_service import Loaded, loaded, warn_of_cut
from lango.errors import ClientToolRefused, InvalidArguments, NotJson, TurnLimit
from lango.events import ToolStart
from lango.store.turns.tool_journal import POLICY, Approval
from lango.tools.approval_policy import fingerprint
from lango.tools.results import error_text, to_result

_log = logging.getLogger("lango.runtime")

SAME_CALLS = 5
"""How often a tool may be called with the same arguments in one turn."""
WARN_AT = 0.8
WRAP_UP = (
    "This is the last step of this turn and no tool can be used any more. Say in plain words what was done, what was "
    "found, and what is still open."
)
_STOOD_STILL_S = 5.0  # well before a turn is taken over for want of a heartbeat
WAITING = "not run: it waits for a person's approval, which lapses when the conversation goes on without it"
REFUSED = "not run: a person refused this call"
DENIED = "not run: this tool is not allowed here"
NOBODY_TO_ASK = (
    "not run: this needs a person's approval, and an agent that is called as a tool has nobody to ask. Say so in your "
    "answer: whoever called you may call this tool directly"
)
CHANGED = "not run: these are not the arguments that were approved"


_current_call: ContextVar[ModelCall | None] = ContextVar("lango_model_call", default=None)  # parallel agents: one each


class RuntimePlugin(BasePlugin):
    """Guards and journals every turn of the runtime."""

    def __init__(self) -> None:
        super().__init__(name="lango")

    @override
    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Count calls of the model: warn near the limit, let the last one only wrap up, and allow none after it."""
        state = current_turn.get()
        if state is None:
            return None
        # an agent that is a tool has a session of its own, and what it says is only a result
        inside = callback_context.session.id != state.session_id
        speak(llm_request, None if inside else state.say(callback_context.agent_name, callback_context.branch or ""))
        state.model_calls += 1
        limit = state.max_model_calls
        if state.model_calls > limit:
            state.failure = TurnLimit(f"the turn took more than {limit} calls of the model (setting agent.max_turns)")
            return LlmResponse(error_code="TURN_LIMIT", error_message=str(state.failure))
        if state.lost is not None:
            state.failure = state.lost
            return LlmResponse(error_code="TOOLS_LOST", error_message=str(state.lost))
        state.log.append(call := ModelCall(llm_request.model or "", callback_context.agent_name))
        _current_call.set(call)
        if state.offers_client_tools(callback_context) and not _has_schema(llm_request):
            try:
                offer(llm_request, state.client_tools)
            except ClientToolRefused as error:
                state.failure = error
                return LlmResponse(error_code="CLIENT_TOOL_REFUSED", error_message=str(error))
        if state.model_calls == limit and limit > 1:
            _without_tools(llm_request)
        elif state.model_calls == max(1, int(limit * WARN_AT)):
            _log.warning("turn %s: %s of %s calls of the model are used", state.turn.turn, state.model_calls, limit)
        add_memory(callback_context, llm_request)
        if inside:
            loaded.set(Loaded())  # an agent that is a tool has a session of its own
        agent: Any = callback_context.get_invocation_context().agent
        if not isinstance(model := agent.canonical_model, ProviderLlm):
            _fit_for(model, llm_request, callback_context)
        return None

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Check the calls of a response, and record what the model call took.

        Calls of ADK's reserved names are refused. Ids are made unique in the session: some models count from 1.
        """
        state = current_turn.get()
        parts = (llm_response.content and llm_response.content.parts) or []
        rename_reserved_calls(llm_response)
        if state is not None and not llm_response.partial:
            if (call := _current_call.get()) is not None:
                call.end(llm_response.model_version, llm_response.usage_metadata)
            calls = [part.function_call for part in parts if part.function_call]
            make_unique(calls, state.made, callback_context.session)
            if state.offers_client_tools(callback_context):
                state.client_calls |= mark_calls(llm_response, state.client_tools)
        return None

    @override
    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Decide whether a tool runs; if it does, journal that it begins."""
        state = current_turn.get()
        call_id = tool_context.function_call_id
        if state is None or not call_id:
            return None
        if state.client_calls and tool_context.session.id == state.session_id:
            tool_context.actions.skip_summarization = True  # the model goes on with the client's results
        if isinstance(tool, ClientTool):
            state.tell(ToolStart(state.next_id(), call_id, tool.name, tool_args, tool_context.agent_name))
            return None if call_id in state.client_calls else _refuse_call(state, tool, tool_args, tool_context)
        if tool.name == TRANSFER_TOOL:
            return _check_transfer(state, tool_args, tool_context)
        answer = await self._check(state, call_id, tool, tool_args, tool_context)
        waits = call_id in tool_context.actions.requested_tool_confirmations
        if not waits and (call_id in state.asked or tool_context.tool_confirmation is not None):
            state.tell(ToolStart(state.next_id(), call_id, tool.name, tool_args, tool_context.agent_name))
        return answer

    async def _check(
        self, state: TurnState, call_id: str, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
    ) -> dict[str, Any] | None:
        """Return what the model is told in place of a result; None: the tool runs."""
        if context.tool_confirmation is not None and state.more_approvals:
            context.actions.skip_summarization = True  # the model goes on when every question is answered
        refused = _refuse_call(state, tool, arguments, context)
        if refused or is_unknown(tool):  # ADK tells the model which tools there are
            return refused
        same = _fingerprint(tool.name, arguments)
        shown = await state.store.effect(state.turn.session_key, call_id) if context.tool_confirmation else None
        if shown is not None and shown.arguments != same:
            return {"error": CHANGED}
        allowed = _approval(state, tool, context)
        await state.store.intend_effect(state.turn, call_id, tool.name, state.effect_of(tool), same, allowed)
        refused = _check_approval(state, tool, context)
        if refused:
            return refused
        if not await _begin(state, call_id):
            return {"error": "not run: this call was begun before"}
        state.started[call_id] = time.monotonic()
        state.limits_s[call_id] = limit_s(tool, state.tool_timeout_s)
        contain(tool)
        return None

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Journal the result before it becomes a message; a foreign tool's odd result is made plain JSON."""
        state = current_turn.get()
        call_id = tool_context.function_call_id or ""
        if state is None or call_id not in state.started:
            return None
        took_s = time.monotonic() - state.started.pop(call_id)
        if call_id in tool_context.actions.requested_tool_confirmations:
            # it asks by itself: it has not done anything yet, and will be called again
            await state.store.finish_effect(state.turn, call_id, None, "unknown")
            return None
        if not result and (tool.is_long_running or getattr(tool, "_defers_response", False)):
            return None  # its result comes later
        state.durations_s[call_id] = took_s
        plain = _plain(result)
        await state.store.finish_effect(state.turn, call_id, plain)
        # only what JSON cannot say is replaced: somebody's own callbacks come after this one, and see their result
        return None if plain in (result, {"result": result}) or _holds_media(result) else dict(plain)

    @override
    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """Tell the model of a tool that raised; a tool that was cancelled has an unknown outcome."""
        state = current_turn.get()
        call_id = tool_context.function_call_id or ""
        if state is None or call_id not in state.started:
            return None
        if isinstance(error, asyncio.CancelledError):
            return None  # the row stays `started`: what became of it nobody knows
        told = {"error": error_text(error)}
        state.durations_s[call_id] = time.monotonic() - state.started.pop(call_id)
        await state.store.finish_effect(state.turn, call_id, told)
        return told


async def _begin(state: TurnState, call_id: str) -> bool:
    """Journal that a tool begins; False: it began before.

    A process that stood still meanwhile may have lost the turn since: it asks again before the tool runs.
    """
    asked_at = time.monotonic()
    begins = await state.store.start_effect(state.turn, call_id)
    while time.monotonic() - asked_at > _STOOD_STILL_S:
        asked_at = time.monotonic()
        await state.store.check_lease(state.turn)
    return begins


def is_unknown(tool: BaseTool) -> bool:
    """Whether this stands for a tool that does not exist: ADK then makes one of its bare class."""
    return type(tool) is BaseTool


def _fit_for(model: BaseLlm, request: LlmRequest, context: CallbackContext) -> None:
    """Do for a model that is not ours what ours do themselves: leave foreign signatures out, and log what was cut."""
    request.contents = open_envelopes(request.contents, request.model or "", gemini=isinstance(model, Gemini))
    load = loaded.get()
    if load.left_out and not load.logged:
        warn_of_cut(load.left_out, load.left_out + len(context.session.events))


def _has_schema(request: LlmRequest) -> bool:
    """Whether the answer must be JSON of a schema: then no tool is called."""
    return bool(request.config.response_schema or request.config.response_json_schema)


def _without_tools(request: LlmRequest) -> None:
    """Leave the model nothing but to answer."""
    request.tools_dict.clear()
    request.config.tools = None
    request.config.tool_config = None
    request.append_instructions([WRAP_UP])


def _check_transfer(state: TurnState, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any] | None:
    """A transfer to nobody is answered as what it is, an error, before ADK stores it as a success and fails."""
    if state.client_calls:
        return {"error": WAITS_FOR_CLIENT}
    wanted = str(arguments.get("agent_name", ""))
    valid = state.agent_names(context.agent_name)
    if wanted in valid:
        return None
    state.bad_transfer, state.valid_agents = wanted, valid
    context.actions.skip_summarization = True  # the run ends here; the runtime tells the model and runs again
    return {"error": correction(wanted, valid)}


def _refuse_call(
    state: TurnState, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Return what is wrong with a call in itself, whoever may allow it."""
    return _check_repetition(state, tool, arguments, context) or _check_arguments(tool, arguments)


def _check_arguments(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(tool, AdkTool | ClientTool):
        try:
            tool.tool.validate(arguments)
        except InvalidArguments as error:
            return {"error": str(error)}
    return None


def _check_repetition(
    state: TurnState, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    same = _fingerprint(tool.name, arguments)
    state.calls[same] += 1
    if state.calls[same] < SAME_CALLS or context.tool_confirmation is not None:
        return None
    state.failure = TurnLimit(f"{tool.name} was called {SAME_CALLS} times in one turn with the same arguments")
    context.actions.skip_summarization = True
    return {"error": f"not run: {state.failure}"}


def _check_approval(state: TurnState, tool: BaseTool, context: ToolContext) -> dict[str, Any] | None:
    decision = state.decide(tool)
    if decision == "run":
        return None
    if decision == "deny":
        return {"error": DENIED}
    if context.tool_confirmation is None and context.session.id != state.session_id:
        return {"error": NOBODY_TO_ASK}
    if context.tool_confirmation is None:
        context.request_confirmation(hint=f"May {tool.name} run with exactly these arguments?")
        context.actions.skip_summarization = True
        return {"status": WAITING}
    # ADK and the journal have compared the arguments with those that were shown; only a yes is a yes
    return None if context.tool_confirmation.confirmed else {"error": REFUSED}


def _approval(state: TurnState, tool: BaseTool, context: ToolContext) -> Approval | None:
    """Return who decided about a call: whoever was asked, or the settings in their place; None: nobody had to."""
    if context.tool_confirmation is not None:
        return Approval(bool(context.tool_confirmation.confirmed), state.answered_by)
    decision = state.decide(tool)
    if decision == "ask" or not (decision == "deny" or needs_approval(tool)):
        return None
    return Approval(decision == "run", POLICY)


def needs_approval(tool: BaseTool) -> bool:
    """Whether a tool does more than look."""
    return isinstance(tool, AdkTool) and tool.tool.level != "safe"


def _plain(result: Any) -> dict[str, Any]:
    try:
        return to_result(result)
    except NotJson as error:
        return {"error": str(error)}


def _holds_media(result: Any) -> bool:
    """Whether ADK will take parts with bytes out of a result: those have their own place in an event."""
    members: Iterable[Any] = [result]
    if isinstance(result, dict | list):
        members = cast("dict[str, Any]", result).values() if isinstance(result, dict) else cast("list[Any]", result)
    return any(isinstance(one, types.Part | types.FunctionResponse) for one in members)


def _fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    try:
        return fingerprint(name, arguments)
    except (TypeError, ValueError):
        return f"{name}: not JSON"
