"""Run turns in the background: list, poll, follow and stop them, by the address of each."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path, Query, Response
from msgspec.structs import asdict
from pydantic import BaseModel

from lango.runtime.turns import FailedTurn, StoredTurn, UnfinishedTurn
from lango.server.api.paging import PageSize
from lango.server.api.turns.turn_routes import STREAM_RESPONSES, CancelResult, LastEventId, parse_last_event_id
from lango.server.context import AgentUser, CurrentUser
from lango.server.errors import ApiError
from lango.server.schemas import COMMON_ERRORS, CONFLICT, SessionIdPath
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.sse import EventStreamResponse
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import Status, as_datetime

router = AuthenticatedRouter("/v1", tags=["turns"], responses=COMMON_ERRORS)

TurnPath = Annotated[int, Path(ge=1, le=2**40, examples=[2])]


class ListedTurn(BaseModel):
    """A turn that has not ended, or that failed for good."""

    session_id: str
    turn: int | None
    """None: the turn of a session that this one was forked from, which waits here."""
    state: Literal["queued", "running", "paused", "failed"]
    since: datetime
    """When its input was stored; of a paused one, when it asked; of a failed one, when it failed."""
    attempts: int
    """How often it was run again after a crash or a failure."""
    error: str | None = None
    message: str | None = None
    can_retry: bool = False
    """Whether `/retry` runs it again: it failed, and no other turn followed it."""
    first_words: str = ""
    """Of the message that began it, if it failed."""


class ListedTurns(BaseModel):
    """Turns of the caller."""

    turns: list[ListedTurn]


class TurnState(BaseModel):
    """How a turn stands."""

    session_id: str
    turn: int
    status: Status | Literal["waiting"]
    """`waiting`: it ended, and what it waits for is listed by `/waits`."""
    created_at: datetime
    ended_at: datetime | None
    attempts: int
    error: str | None
    message: str | None


@router.get("/turns")
async def list_turns(
    user: CurrentUser, state: Literal["open", "failed"] = "open", limit: Annotated[PageSize, Query()] = 50
) -> ListedTurns:
    """List the caller's open turns, the oldest first, or those that failed for good, the newest first."""
    turns = user.runtime.turns
    found = (await turns.unfinished(user.id))[:limit] if state == "open" else await turns.failed(user.id, limit)
    return ListedTurns(turns=[_listed(one) for one in found])


def _listed(one: UnfinishedTurn | FailedTurn) -> ListedTurn:
    state, since = ("failed", one.failed_at) if isinstance(one, FailedTurn) else (one.status, one.since)
    shown = {"session_id": one.session.id, "state": state, "since": as_datetime(since)}
    return ListedTurn.model_validate(asdict(one) | shown)


@router.get("/sessions/{session_id}/turns/{turn}")
async def read_turn(session_id: SessionIdPath, turn: TurnPath, user: CurrentUser) -> TurnState:
    """Read how a turn stands."""
    _, row = await _find(user, session_id, turn)
    failed = row.result.error
    return TurnState(
        session_id=session_id,
        turn=turn,
        status="waiting" if row.status == "done" and row.result.status == "waiting" else row.status,
        created_at=as_datetime(row.created_at),
        ended_at=None if row.ended_at is None else as_datetime(row.ended_at),
        attempts=row.attempts,
        error=failed.type if failed else None,
        message=failed.message if failed else None,
    )


@router.get(
    "/sessions/{session_id}/turns/{turn}/stream", response_class=EventStreamResponse, responses=STREAM_RESPONSES
)
async def follow_turn(
    session_id: SessionIdPath, turn: TurnPath, user: CurrentUser, last_id: LastEventId = None
) -> Response:
    """Follow one turn to its end, whichever process runs it; after Last-Event-ID, or from its start."""
    ref, _ = await _find(user, session_id, turn)
    return user.context.event_response(user.turns.follow(ref, parse_last_event_id(last_id) or 0))


@router.post("/sessions/{session_id}/turns/{turn}/cancel", responses=CONFLICT)
async def cancel_turn(session_id: SessionIdPath, turn: TurnPath, user: CurrentUser) -> CancelResult:
    """Withdraw one turn if it is queued, or stop it if it runs; what is stored stays."""
    _, row = await _find(user, session_id, turn)
    if row.status not in ("queued", "running"):
        return CancelResult(cancelled=False)
    withdrawn = await user.runtime.withdraw(session_id, turn, user_id=user.id)
    return CancelResult(cancelled=withdrawn or await user.runtime.cancel(session_id, user_id=user.id, turn=turn))


async def _find(user: AgentUser, session_id: str, turn: int) -> tuple[TurnRef, StoredTurn]:
    session = await user.get_session(session_id)
    row = await user.runtime.turns.read(session, turn)
    if row is None:
        raise ApiError(404, "TurnNotFound", f"session {session_id!r} has no turn {turn}")
    return TurnRef(session, turn), row
