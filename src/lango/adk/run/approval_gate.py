"""Ask for approval through ADK before a tool runs.

Which tools need approval is decided by `lango.tools.approval_policy`; open requests and answers are stored by
`lango.store.turns.approvals`.
"""

from typing import Any

from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_tool import needs_approval
from lango.adk.run.turn_state import TurnState
from lango.store.turns.tool_journal import DECIDED_BY_POLICY, ApprovalDecision, read_journal_entry

AWAITS_APPROVAL = "not run: it waits for a person's approval, which lapses when the conversation goes on without it"
REFUSED = "not run: a person refused this call"
DENIED = "not run: this tool is not allowed here"
NO_APPROVER = (
    "not run: this needs a person's approval, and an agent that is called as a tool cannot ask for it. Say so in your "
    "answer: the agent that called you may call this tool directly"
)
ARGUMENTS_CHANGED = "not run: these are not the arguments that were approved"


def require_approval(state: TurnState, tool: BaseTool, context: ToolContext) -> dict[str, Any] | None:
    """Return the result of a call that is denied, refused or waits for approval; None: the call may run."""
    decision = state.decide(tool)
    if decision == "run":
        return None
    if decision == "deny":
        return {"error": DENIED}
    if context.tool_confirmation is None and context.session.id != state.session_id:
        return {"error": NO_APPROVER}
    if context.tool_confirmation is None:
        context.request_confirmation(hint=f"May {tool.name} run with exactly these arguments?")
        context.actions.skip_summarization = True
        return {"status": AWAITS_APPROVAL}
    return None if context.tool_confirmation.confirmed else {"error": REFUSED}


async def check_approved_arguments(state: TurnState, call_id: str, fingerprint: str) -> dict[str, Any] | None:
    """Return an error if the arguments of an approved call are not those that the user was shown."""
    journaled = await state.store.read(read_journal_entry, state.turn.session_key, call_id)
    return {"error": ARGUMENTS_CHANGED} if journaled is not None and journaled.arguments != fingerprint else None


def approval_decision(state: TurnState, tool: BaseTool, context: ToolContext) -> ApprovalDecision | None:
    """Return whether a user or the settings decided about a call; None: it needs no approval, or still waits."""
    if context.tool_confirmation is not None:
        return ApprovalDecision(bool(context.tool_confirmation.confirmed), state.answered_by)
    decision = state.decide(tool)
    if decision == "ask" or not (decision == "deny" or needs_approval(tool)):
        return None
    return ApprovalDecision(decision == "run", DECIDED_BY_POLICY)
