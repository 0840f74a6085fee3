"""Report the tokens, cost and timing of a session's turns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import Query
from pydantic import BaseModel

from lango.runtime.sessions.session_usage import DEFAULT_TURNS, SessionUsage
from lango.server.context import CurrentUser
from lango.server.schemas import COMMON_ERRORS, MAX_INTEGER, RecordView, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)


class TokenUsage(RecordView):
    """Tokens and cost, as in a turn's `done` event, without its thought tokens; null if the price is not known."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    cost_usd: float | None


class ModelCall(RecordView):
    """One model call, from the request to the end of the response."""

    model: str
    agent: str
    started_at: datetime
    duration_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class ToolRun(RecordView):
    """One tool call: intended, started, finished, failed or unknown."""

    call_id: str
    name: str
    status: str
    started_at: datetime | None
    duration_s: float | None
    approved_by: str | None
    """The user who approved it, or `policy`; null if no approval was needed."""


class Resumption(RecordView):
    """When a turn was resumed, and why: `crash`, `handover` or `failure`."""

    at: datetime
    reason: str


class TurnUsageView(RecordView):
    """Usage of a turn: `tokens` counts its own messages, `usage` what the model read and wrote."""

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
    resumptions: list[Resumption]


class HistoryWindow(RecordView):
    """The messages that the next model request would include, and those that it would omit."""

    first_seq: int | None
    messages: int
    tokens: int
    left_out_messages: int
    left_out_tokens: int
    observed_seq: int
    """The last message that observations cover; 0: none."""
    memory_tokens: int
    """Tokens of memory in the request."""
    limit: Literal["max_messages", "max_turns", "budget"] | None
    """The limit that cuts the window; null if all messages are kept, or quoted as notes."""
    reason: str
    """A clause that says which limit cuts the window, and which setting changes it; empty if none does."""


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
    """Pass it as `before` for earlier turns; null if there are none."""
    total: UsageTotal
    memory: TokenUsage
    """What the observer of the memory used besides; `model_calls` counts its batches of notes."""

    @classmethod
    def from_usage(cls, usage: SessionUsage) -> Self:
        """Convert the usage of a session."""
        return cls(
            budget_tokens=usage.rules.budget_tokens,
            max_messages=usage.rules.most_messages,
            max_turns=usage.rules.max_turns,
            window=HistoryWindow.model_validate(usage.window),
            turns=[TurnUsageView.model_validate(turn) for turn in usage.turns],
            before=usage.before,
            total=UsageTotal(turns=usage.all_turns, usage=TokenUsage.model_validate(usage.total)),
            memory=TokenUsage.model_validate(usage.memory),
        )


@router.get("/{session_id}/usage")
async def read_usage(
    session_id: SessionIdPath,
    user: CurrentUser,
    before: Annotated[int | None, Query(ge=1, le=MAX_INTEGER)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = DEFAULT_TURNS,
) -> UsageReport:
    """Read the usage of the newest turns, or of those before a turn, and the window of the next request."""
    return UsageReport.from_usage(
        await user.runtime.sessions.usage(session_id, user_id=user.id, before=before, limit=limit)
    )
