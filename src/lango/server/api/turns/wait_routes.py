"""List what turns of the caller wait for and answer it; list and revoke the grants that answers made."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Body, Path
from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.runtime.access import Grant
from lango.server.api.paging import Cursor, PageSize, decode_cursor, encode_cursor
from lango.server.api.turns.turn_routes import STREAM_RESPONSES
from lango.server.api.turns.wait_schemas import (
    AnswerBody,
    InboxEntry,
    InboxPage,
    SessionWaits,
    shown_json,
    with_diff,
)
from lango.server.context import AgentUser, CurrentUser
from lango.server.json_body import JsonResponse
from lango.server.openapi import reference_to
from lango.server.schemas import (
    COMMON_ERRORS,
    CONFLICT,
    MAX_INTEGER,
    AllAgents,
    IdempotencyKey,
    SessionIdPath,
    error_responses,
)
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.sse import EventStreamResponse
from lango.server.streaming.turn_streams import TurnRef
from lango.submissions import SubmittedAnswer, TurnRequest
from lango.waits import Answer, ApprovalWait

_REFUSED = error_responses(
    {422: "The answer does not fit, or the Idempotency-Key was used for another; nothing is stored."}
)

router = AuthenticatedRouter("/v1", tags=["waits"], responses=COMMON_ERRORS)

GrantIdPath = Annotated[int, Path(ge=1, le=MAX_INTEGER, examples=[1])]
WaitIdPath = Annotated[str, Path(max_length=512, examples=["call_1"])]


class GrantList(Struct, frozen=True):
    """The grants of a session, the newest first."""

    grants: Sequence[Grant]


@router.get("/inbox", responses=reference_to(InboxPage))
async def list_inbox(
    user: CurrentUser, cursor: Cursor = None, limit: PageSize = 50, all_agents: AllAgents = False
) -> JsonResponse:
    """List what waits for the caller in all sessions, the newest first."""
    after = decode_cursor(cursor)
    found = [
        (item, runtime.app_name)
        for runtime in user.runtimes(all_agents)
        for item in await runtime.inbox.list(user_id=user.id, after=after, limit=limit + 1)
    ]
    found.sort(key=lambda one: one[0].place, reverse=True)
    more = encode_cursor(*found[limit - 1][0].place) if len(found) > limit else None
    entries = [InboxEntry(item.wait, item.title, agent) for item, agent in found[:limit]]
    return JsonResponse(shown_json(InboxPage(entries, more)))


@router.get("/sessions/{session_id}/waits", responses=reference_to(SessionWaits))
async def list_waits(session_id: SessionIdPath, user: CurrentUser) -> JsonResponse:
    """List what the turns of a session wait for, with what each call to approve would change in a file."""
    await user.get_session(session_id)
    waits = await user.waits(session_id)
    diff_of = user.runtime.diff_of_call
    shown = [
        with_diff(wait, await diff_of(wait.tool, wait.arguments)) if isinstance(wait, ApprovalWait) else wait
        for wait in waits
    ]
    return JsonResponse(shown_json(SessionWaits(shown)))


@router.post(
    "/sessions/{session_id}/waits/{wait_id}",
    response_class=EventStreamResponse,
    responses=STREAM_RESPONSES | CONFLICT | _REFUSED,
)
async def answer_wait(
    session_id: SessionIdPath,
    wait_id: WaitIdPath,
    answer: Annotated[AnswerBody, Body()],
    user: CurrentUser,
    key: IdempotencyKey = None,
) -> EventStreamResponse:
    """Answer what a turn waits for, and follow the turn that continues with it. An answer is accepted once, in time.

    `approve` applies to the arguments that were shown; with a `grant`, later calls of the tool in this session that fit
    it run without asking. The model reads the `reason` of `refuse`. A credential is stored encrypted, and never shown.
    """
    turn = await submit_answer(user, session_id, wait_id, answer, key)
    return user.context.event_response(user.turns.follow(turn))


@router.delete("/sessions/{session_id}/waits/{wait_id}", status_code=204, responses=CONFLICT)
async def cancel_wait(session_id: SessionIdPath, wait_id: WaitIdPath, user: CurrentUser) -> None:
    """End a timer or a wait for an event without an answer: nothing runs, and its call has an error."""
    await user.get_session(session_id)
    if not await user.runtime.cancel_wait(session_id, wait_id, user_id=user.id):
        raise WaitNotOpen(f"the wait {wait_id!r} is no timer or event that is open, or a turn of the session runs")


async def submit_answer(
    user: AgentUser, session_id: str, wait_id: str, answer: Answer, key: str | None = None
) -> TurnRef:
    """Submit an answer to a wait in a session of the caller."""
    await user.check_token_quota()
    await user.get_session(session_id)
    return await user.submit(session_id, SubmittedAnswer(wait_id, answer, TurnRequest(key)))


@router.get("/sessions/{session_id}/grants")
async def list_grants(session_id: SessionIdPath, user: CurrentUser) -> GrantList:
    """List the grants of a session, the newest first, with those that have ended."""
    return GrantList(await user.runtime.grants.list(session_id, user_id=user.id))


@router.delete("/sessions/{session_id}/grants/{grant_id}", status_code=204)
async def revoke_grant(session_id: SessionIdPath, grant_id: GrantIdPath, user: CurrentUser) -> None:
    """Revoke a grant: later calls of its tool ask again."""
    await user.runtime.grants.revoke(session_id, grant_id, user_id=user.id)
