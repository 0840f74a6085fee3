"""Ask for approval through ADK before a tool runs."""

from typing import Any

from google.adk.tools import BaseTool, ToolContext

from lango.adk.agents.adk_tool import needs_approval
from lango.adk.run.turn_state import TurnState
from lango.store.turns.tool_journal import DECIDED_BY_POLICY, ApprovalDecision

AWAITS_APPROVAL = "not run: it waits for a person's approval, which lapses when the conversation goes on without it"
REFUSED = "not run: a person refused this call"
DENIED = "not run: this tool is not allowed here"
NO_APPROVER = (
    "not run: this needs a person's approval, and an agent that is called as a tool has nobody to ask. Say so in your "
    "answer: whoever called you may call this tool directly"
)
ARGUMENTS_CHANGED = "not run: these are not the arguments that were approved"


def require_approval(state: TurnState, tool: BaseTool, context: ToolContext) -> dict[str, Any] | None:
    """Return why a tool does not run now: it is denied, or waits for approval. None: it may run."""
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
    # ADK and the journal have compared the arguments with those that were shown; only a yes is a yes
    return None if context.tool_confirmation.confirmed else {"error": REFUSED}


def approval_record(state: TurnState, tool: BaseTool, context: ToolContext) -> ApprovalDecision | None:
    """Return who decided about a call: whoever was asked, or the settings in their place; None: nobody had to."""
    if context.tool_confirmation is not None:
        return ApprovalDecision(bool(context.tool_confirmation.confirmed), state.answered_by)
    decision = state.decide(tool)
    if decision == "ask" or not (decision == "deny" or needs_approval(tool)):
        return None
    return ApprovalDecision(decision == "run", DECIDED_BY_POLICY)
