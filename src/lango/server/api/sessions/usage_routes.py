"""Report the tokens, cost and timing of a session's turns."""

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query
from msgspec import Struct

from lango.events import Usage
from lango.json_values import convert
from lango.runtime.sessions.session_usage import DEFAULT_TURNS, ModelCall, Resumption, SessionUsage, UsageByDay, Window
from lango.server.context import CurrentUser
from lango.server.schemas import COMMON_ERRORS, MAX_INTEGER, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)
all_sessions_router = AuthenticatedRouter("/v1", tags=["sessions"], responses=COMMON_ERRORS)

_DAY_S = 86_400.0


class ToolRun(Struct, frozen=True):
    """One tool call: waiting, not_run, running, finished, failed or unknown; only one that had started is unknown."""

    call_id: str
    name: str
    status: str
    started_at: float | None
    duration_s: float | None
    approved_by: str | None
    """The user who approved it, or `policy`; null if no approval was needed."""


class ReportedTurn(Struct, frozen=True):
    """Usage of a turn: `tokens` counts its own messages, `usage` what the model read and wrote."""

    turn: int
    status: str
    started_at: float
    ended_at: float | None
    first_seq: int | None
    last_seq: int | None
    tokens: int
    is_rewound: bool
    usage: Usage
    model_calls: list[ModelCall]
    tools: list[ToolRun]
    resumptions: list[Resumption]


class UsageTotal(Struct, frozen=True):
    """The sum of all turns of the session."""

    turns: int
    usage: Usage


class UsageReport(Struct, frozen=True):
    """The newest turns of a session, the window of its next request, and the sum of all turns."""

    budget_tokens: int
    max_messages: int | None
    max_turns: int | None
    window: Window
    turns: Sequence[ReportedTurn]
    before: int | None
    """Pass it as `before` for earlier turns; null if there are none."""
    total: UsageTotal
    memory: Usage
    """What the observer of the memory used besides; `model_calls` counts its batches of notes."""


def to_report(usage: SessionUsage) -> UsageReport:
    """Return the usage of a session as clients read it."""
    rules, total = usage.rules, UsageTotal(usage.all_turns, usage.total)
    turns = convert(usage.turns, list[ReportedTurn], from_attributes=True)
    limits = (rules.budget_tokens, rules.most_messages, rules.max_turns)
    return UsageReport(*limits, usage.window, turns, usage.before, total, usage.memory)


@router.get("/{session_id}/usage")
async def read_usage(
    session_id: SessionIdPath,
    user: CurrentUser,
    before: Annotated[int | None, Query(ge=1, le=MAX_INTEGER)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = DEFAULT_TURNS,
) -> UsageReport:
    """Read the usage of the newest turns, or of those before a turn, and the window of the next request."""
    return to_report(await user.runtime.sessions.usage(session_id, user_id=user.id, before=before, limit=limit))


@all_sessions_router.get("/usage")
async def read_usage_by_day(user: CurrentUser, days: Annotated[int, Query(ge=1, le=366)] = 30) -> UsageByDay:
    """Read cost, tokens, time and errors over all sessions and agents, by agent, model and day.

    Callers in the setting `server.operators` read the sums of all users, others their own.
    """
    since = time.time() - days * _DAY_S
    of = None if user.is_operator else user.id
    every = user.context.agents.contexts.values()
    found = [await context.sessions.usage_by_day(since, user_id=of) for context in every]
    return UsageByDay([row for one in found for row in one.models], [row for one in found for row in one.turns])
