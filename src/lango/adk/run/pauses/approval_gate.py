"""Ask for approval through ADK before a tool runs.

Which tools need approval is decided by `lango.tools.execution`.
"""

import logging
import time
from typing import Any

from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.tool_confirmation import ToolConfirmation

from lango.adk.agents.adk_internals import confirmation_id_of_tool_node
from lango.adk.agents.tools.adk_tool import needs_approval
from lango.adk.turn.turn_run import TurnRun
from lango.json_values import as_object
from lango.store.tool_calls.grants import record_intent_by_grant
from lango.store.tool_calls.tool_journal import DECIDED_BY_POLICY, ApprovalDecision
from lango.waits import REFUSAL_REASON

_log = logging.getLogger("lango.runtime")

AWAITS_APPROVAL = "not run yet: waiting for a person's approval, which expires if the conversation continues without it"
REFUSED = "not run: a person refused this call"
DENIED = "not run: this tool is not allowed here"
NO_APPROVER = (
    "not run: this needs a person's approval, which an agent that is called as a tool cannot request. Say so in "
    "your answer, so that the agent that called you can call this tool directly"
)
ARGUMENTS_CHANGED = "not run: the arguments differ from the approved ones"


async def journal_intent(
    turn: TurnRun, call_id: str, tool: BaseTool, arguments: dict[str, Any], fingerprint: str, context: ToolContext
) -> dict[str, Any] | None:
    """Journal that a tool is about to run, and who approved it; return the result of a call that may not run (yet)."""
    call = call_id, tool.name, turn.app.effect(tool), fingerprint
    if restored := await _restore_approval(turn, call_id, fingerprint, context):
        await turn.record.intend(*call, restored)
        return require_approval(turn, tool, context)
    # a person is asked who has not answered yet; an agent that is called as a tool cannot ask
    decision, can_ask = turn.app.decide(tool), context.tool_confirmation is None and turn.has_session(context)
    adk_asks = decision == "run" and can_ask and await _requires_confirmation(tool, arguments, context)
    if not adk_asks and (decision != "ask" or not can_ask):
        await turn.record.intend(*call, approval_decision(turn, tool, context))
        return require_approval(turn, tool, context) or await _refused_confirmation(tool, arguments, context)
    asked = time.time(), arguments, confirmation_id_of_tool_node(context)
    grant = await turn.record.store.write(record_intent_by_grant, turn.record.lease, *call, *asked)
    if grant is None:
        if not adk_asks:
            return require_approval(turn, tool, context)
        turn.waits.note_confirmed_by_adk(call_id)
        return None
    context.tool_confirmation = ToolConfirmation(confirmed=True)  # the tool may have its own gate
    return None


async def _refused_confirmation(
    tool: BaseTool, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any] | None:
    """Return the result of a call that ADK asked about and a person refused with a reason: ADK's own leaves it out."""
    answer = context.tool_confirmation
    if answer is None or not refusal_reason(answer) or not await _requires_confirmation(tool, arguments, context):
        return None
    return {"error": refusal(answer)}


async def _requires_confirmation(tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> bool:
    try:
        return await tool.check_require_confirmation(arguments, context)
    except Exception as error:  # noqa: BLE001 - the agent's own code, which fails again when the tool runs
        _log.info("could not check whether %s needs confirmation: %s", tool.name, type(error).__name__)
        return False


def require_approval(turn: TurnRun, tool: BaseTool, context: ToolContext) -> dict[str, Any] | None:
    """Return the result of a call that is denied, refused or waits for approval, or None if it may run."""
    decision = turn.app.decide(tool)
    if decision == "run":
        return None
    if decision == "deny":
        return {"error": DENIED}
    if context.tool_confirmation is None and not turn.has_session(context):
        return {"error": NO_APPROVER}
    if context.tool_confirmation is None:
        context.request_confirmation(hint=f"May {tool.name} run with exactly these arguments?")
        context.actions.skip_summarization = True
        return {"status": AWAITS_APPROVAL}
    return None if context.tool_confirmation.confirmed else {"error": refusal(context.tool_confirmation)}


def refusal(confirmation: ToolConfirmation) -> str:
    """Return what the model reads of a refused call, with the person's reason."""
    reason = refusal_reason(confirmation)
    return f"{REFUSED}. Their reason: {reason}" if reason else REFUSED


def refusal_reason(confirmation: ToolConfirmation | None) -> str:
    """Return why a person refused a call, or "" if the call is not refused, or without a reason."""
    given = confirmation.payload if confirmation and not confirmation.confirmed else None
    reason = as_object(given).get(REFUSAL_REASON)
    return reason if isinstance(reason, str) else ""


async def check_approved_arguments(turn: TurnRun, call_id: str, fingerprint: str) -> dict[str, Any] | None:
    """Return an error if the arguments of an approved call are not those that the user was shown."""
    journaled = await turn.record.newest_entry(call_id)
    return {"error": ARGUMENTS_CHANGED} if journaled is not None and journaled.arguments != fingerprint else None


async def _restore_approval(
    turn: TurnRun, call_id: str, fingerprint: str, context: ToolContext
) -> ApprovalDecision | None:
    """Approve a call again that was approved, requested a credential, and runs now with it.

    The approval holds for exactly the same arguments. Return None if the call was not approved.
    """
    if not turn.brings_credential:
        return None
    journaled = await turn.record.newest_entry(call_id)
    if journaled is None or journaled.approved is not True or journaled.arguments != fingerprint:
        return None
    if journaled.approved_by != DECIDED_BY_POLICY:
        context.tool_confirmation = ToolConfirmation(confirmed=True)
    return ApprovalDecision(True, journaled.approved_by or DECIDED_BY_POLICY)


def approval_decision(turn: TurnRun, tool: BaseTool, context: ToolContext) -> ApprovalDecision | None:
    """Return whether a user or the settings decided about a call, or None if it needs no approval or still waits."""
    if context.tool_confirmation is not None:
        answered_by = turn.input.answer.answered_by if turn.input.answer else ""
        return ApprovalDecision(bool(context.tool_confirmation.confirmed), answered_by)
    decision = turn.app.decide(tool)
    if decision == "ask" or not (decision == "deny" or needs_approval(tool)):
        return None
    return ApprovalDecision(decision == "run", DECIDED_BY_POLICY)
