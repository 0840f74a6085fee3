"""What the callbacks of a turn share, and how a tool of the user's own runs in a turn: bounded in time, contained."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.agent_tool import AgentTool
from msgspec import Struct, field

from lango.adk.agents.adk_tool import AdkTool
from lango.adk.agents.callback_guard import is_adks
from lango.adk.model.direct_text import Say
from lango.adk.run.model_call_stats import ModelCall
from lango.errors import LangoError
from lango.events import TurnEvent
from lango.store import Store, Turn
from lango.store.turns.tool_journal import Effect
from lango.tools import Tool
from lango.tools.approval_policy import Decision
from lango.tools.execution import CANCELLED_INSIDE, contained

_GRACE_S = 2.0


class TurnState(Struct):
    """What the callbacks of one turn share."""

    store: Store
    turn: Turn
    max_model_calls: int
    decide: Callable[[BaseTool], Decision]
    effect_of: Callable[[BaseTool], Effect]
    agent_names: Callable[[str], list[str]]
    """The agents that an agent can hand over to, by its name."""
    tell: Callable[[TurnEvent], None]
    next_id: Callable[[], int]
    tool_timeout_s: float
    asked: set[str] = field(default_factory=set[str])
    """Ids of the calls that the turn's own agents made: what an agent that is a tool does inside is not told."""
    made: set[str] = field(default_factory=set[str])
    """Ids of calls that are taken in this turn."""
    model_calls: int = 0
    bad_transfer: str | None = None
    valid_agents: list[str] = field(default_factory=list[str])
    failure: LangoError | None = None
    lost: LangoError | None = None
    """Why tools that the agent should have could not be had: ADK would go on without them."""
    more_approvals: bool = False
    """Beside the question that this turn answers, others still wait."""
    answered_by: str = ""
    """Who answered that question."""
    started: dict[str, float] = field(default_factory=dict[str, float])
    """Calls under way, and when they began, by a clock that only goes forward."""
    durations_s: dict[str, float] = field(default_factory=dict[str, float])
    limits_s: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """How long a call may take; None: an agent that is a tool takes as long as the turn may."""
    calls: Counter[str] = field(default_factory=Counter[str])
    session_id: str = ""
    say: Callable[[str, str], Say | None] = field(default=lambda agent, branch: None)
    """Who tells the text of an agent in a branch; None: ADK does."""
    log: list[ModelCall] = field(default_factory=list[ModelCall])
    """The calls of the model, in the order of their beginning."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """What the client of this turn runs itself, by name."""
    client_calls: set[str] = field(default_factory=set[str])
    """Ids of the calls of those: the turn ends, and they wait."""

    def offers_client_tools(self, context: CallbackContext | ToolContext) -> bool:
        """Whether an agent may call the client: one that speaks to the user, and not several at the same time."""
        return bool(self.client_tools) and context.session.id == self.session_id and not context.branch


current_turn: ContextVar[TurnState | None] = ContextVar("lango_turn", default=None)


def limit_s(tool: BaseTool, default_s: float) -> float | None:
    """Return how long a tool may take; None: an agent that is a tool takes as long as the turn may."""
    if isinstance(tool, AdkTool):
        return tool.tool.timeout_s or default_s
    return None if isinstance(tool, AgentTool) else default_s


def contain(tool: BaseTool) -> None:
    """Bound a tool of the user's own in time, and keep what it raises inside, in turns of the runtime alone."""
    if isinstance(tool, AdkTool) or "run_async" in vars(tool):
        return
    run = tool.run_async

    async def bounded(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        state = current_turn.get()
        if state is None:
            return await run(args=args, tool_context=tool_context)
        task = asyncio.ensure_future(contained(run(args=args, tool_context=tool_context), is_adks))
        most_s = limit_s(tool, state.tool_timeout_s)
        ended = False
        try:
            ended = bool((await asyncio.wait({task}, timeout=most_s))[0])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=most_s and _GRACE_S)  # one that will not stop is left alone
        if task.done() and not task.cancelled():
            return task.result()
        return {"error": CANCELLED_INSIDE if ended else f"timed out after {most_s:g} s, and its outcome is unknown"}

    vars(tool)["run_async"] = bounded
