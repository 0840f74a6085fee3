"""`/v1/sessions/{id}/usage`: the picture of a session."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel

from lango.runtime.session_usage import DEFAULT_TURNS, SessionUsage
from lango.server.api.parameters import COMMON_ERRORS, SessionIdPath
from lango.server.context import Context
from lango.server.schemas import RecordView
from lango.server.security.auth import CurrentCaller
from lango.server.security.authenticated_route import AuthenticatedRoute

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS, route_class=AuthenticatedRoute)


class TokenUsage(RecordView):
    """Tokens and cost, as the end of a turn tells them; null: no price is known."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    cost_usd: float | None


class ModelCall(RecordView):
    """One call of the model, from the request to the end of its answer."""

    model: str
    agent: str
    started_at: datetime
    duration_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class ToolRun(RecordView):
    """One call of a tool: intended, started, finished, failed or unknown."""

    call_id: str
    name: str
    status: str
    started_at: datetime | None
    duration_s: float | None
    approved_by: str | None
    """Who said yes, where somebody was asked."""


class TurnUsageView(RecordView):
    """What a turn took: `tokens` are those of its own messages, `usage` what the model read and wrote for it."""

    turn: int
    status: str
    started_at: datetime
    ended_at: datetime | None
    first_seq: int | None
    last_seq: int | None
    tokens: int
    taken_back: bool
    usage: TokenUsage
    model_calls: list[ModelCall]
    tools: list[ToolRun]


class HistoryWindow(RecordView):
    """What the next request would keep of the conversation, and what it would leave out."""

    first_seq: int | None
    messages: int
    tokens: int
    left_out_messages: int
    left_out_tokens: int
    observed_seq: int
    """The last message that is remembered in notes; 0: none."""
    memory_tokens: int
    """What the request quotes of the memory."""


class UsageTotal(BaseModel):
    """The sum of all turns of the session."""

    turns: int
    usage: TokenUsage


class UsageReport(BaseModel):
    """The newest turns of a session, the window of its next request, and the sum of all turns."""

    budget_tokens: int
    max_messages: int | None
    max_turns: int | None
    window: HistoryWindow
    turns: Sequence[TurnUsageView]
    before: int | None
    """Ask for the turns before with this; null: there are none."""
    total: UsageTotal

    @classmethod
    def from_usage(cls, usage: SessionUsage) -> Self:
        """Show the picture of a session."""
        return cls(
            budget_tokens=usage.rules.budget_tokens,
            max_messages=usage.rules.max_messages,
            max_turns=usage.rules.max_turns,
            window=HistoryWindow.model_validate(usage.window),
            turns=[TurnUsageView.model_validate(turn) for turn in usage.turns],
            before=usage.before,
            total=UsageTotal(turns=usage.all_turns, usage=TokenUsage.model_validate(usage.total)),
        )


@router.get("/{session_id}/usage")
async def read_usage(
    session_id: SessionIdPath,
    caller: CurrentCaller,
    context: Context,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = DEFAULT_TURNS,
) -> UsageReport:
    """Read what the newest turns took, or those before a turn, and what the next request would keep."""
    return UsageReport.from_usage(
        await context.runtime.sessions.usage(session_id, user_id=caller.user_id, before=before, limit=limit)
    )
