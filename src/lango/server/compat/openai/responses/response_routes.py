"""Serve OpenAI's responses: `POST /v1/responses`, and reading, cancelling and deleting them.

A response is a turn of a session. Its id names both, holds in every process, and survives restarts.
docs/howto/openai-responses.md says what the model reads, and how pauses, background and compaction work.
"""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Path, Query
from starlette.responses import Response

from lango.server.compat.chat_turn import SessionIdHeader, describe_answer, errors_with_headers, turn_headers
from lango.server.compat.openai.completion import OpenAiErrorBody
from lango.server.compat.openai.openai_routes import OPENAI_TURN_ERRORS, Order, item_page
from lango.server.compat.openai.responses.compaction import CompactRequest, compact
from lango.server.compat.openai.responses.response_ids import get_response, session_key_of_response
from lango.server.compat.openai.responses.response_request import ResponseRequest
from lango.server.compat.openai.responses.response_view import ResponseView
from lango.server.compat.openai.responses.stored_input import read_input_items
from lango.server.compat.openai.responses.submission import submit_response
from lango.server.context import AgentUser, CurrentUser
from lango.server.errors import ApiError, bad_request
from lango.server.json_body import JsonResponse, large_response
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, IdempotencyKey, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.sse import EventStreamResponse

_ERRORS = error_responses(
    COMMON_ERROR_DESCRIPTIONS | {404: "There is no such response, session or item."}, OpenAiErrorBody
)
_RESPONSE = describe_answer("A response; with `stream`, its events as server-sent events.")
_COMPACTED: Responses = {
    200: {
        "description": "The messages that are kept, and the notes on the rest.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    **{status: OPENAI_TURN_ERRORS[status] for status in (413, 500)},
}
ResponseIdPath = Annotated[str, Path(examples=["resp_1_1"])]


async def _user_of_response(response_id: ResponseIdPath, user: CurrentUser) -> AgentUser:
    """Return the user of the agent whose response the path names."""
    key = session_key_of_response(response_id) if user.context.agents.are_several else None
    session = None if key is None else await user.sessions.find_by_key(key)
    if session is None:
        return user
    context = user.context.agents.contexts.get(session.name.app_name, user.context)
    return AgentUser(context, user.caller, when_busy=user.when_busy)


ResponseUser = Annotated[AgentUser, Depends(_user_of_response)]
router = AuthenticatedRouter("/v1", tags=["responses"], responses=_ERRORS)


@router.post("/responses", response_model=None, responses=_RESPONSE | OPENAI_TURN_ERRORS)
async def create_response(
    request_body: ResponseRequest, user: CurrentUser, session_id: SessionIdHeader = None, key: IdempotencyKey = None
) -> Response:
    """Answer the input. A repeated request with the same `Idempotency-Key` gets the same response."""
    if not request_body.model and request_body.conversation_id is not None:
        user = await user.of_session(request_body.conversation_id)
    user = user.of_model(request_body.model)
    response = await submit_response(user, request_body, session_id, key)
    view = ResponseView(user, response)
    headers = turn_headers(response.session.name.id)
    if request_body.stream:
        return EventStreamResponse(view.frames(), user.settings.server.write_timeout_s, view.error_frame, headers)
    with errors_with_headers(headers):
        await (view.read() if request_body.background else view.wait())
    return JsonResponse(view.body, headers=headers)


@router.post("/responses/compact", response_model=None, responses=_COMPACTED)
async def compact_response(request_body: CompactRequest, user: CurrentUser) -> Response:
    """Write notes on a conversation to continue from: the next input is the output, and what is new."""
    user = user.of_model(request_body.model)
    compacted = await compact(user, request_body)
    return await large_response(lambda: compacted)


@router.get("/responses/{response_id}", response_model=None, responses=_RESPONSE)
async def read_response(
    response_id: ResponseIdPath,
    user: ResponseUser,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1)] = -1,
) -> Response:
    """Read a response as it is now; with `stream`, its events after a sequence number, to its end."""
    view = ResponseView(user, await get_response(user, response_id))
    if stream:
        frames = view.frames(starting_after)
        return EventStreamResponse(frames, user.settings.server.write_timeout_s, view.error_frame)
    await view.read()
    return JsonResponse(view.body)


@router.post("/responses/{response_id}/cancel", response_model=None)
async def cancel_response(response_id: ResponseIdPath, user: ResponseUser) -> Response:
    """Stop a response that was created with `background`; one that ended stays as it is."""
    response = await get_response(user, response_id)
    if not response.parameters.get("background"):
        raise bad_request("only a response with background: true can be cancelled")
    if response.is_open:
        await user.stop(response.turn_ref)
    view = ResponseView(user, response)
    with suppress(ApiError):  # the body says that it was cancelled, or why it failed
        await view.wait()
    return JsonResponse(view.body)


@router.delete("/responses/{response_id}", response_model=None)
async def delete_response(response_id: ResponseIdPath, user: ResponseUser) -> Response:
    """Delete a response: with the last one of its session, the session, too."""
    response = await get_response(user, response_id)
    if response.is_open:
        raise bad_request("the response is still in progress: wait for it, or cancel it")
    if await user.runtime.turns.mark_deleted(response.session, response.turn):
        await user.sessions.delete(response.session.name.id, user_id=user.id)
    return JsonResponse({"id": response_id, "object": "response", "deleted": True})


@router.get("/responses/{response_id}/input_items", response_model=None)
async def list_input_items(
    response_id: ResponseIdPath,
    user: ResponseUser,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Order = "desc",
) -> Response:
    """List what the client sent for a response, the newest first; `after` is the id of the last item of a page."""
    items = await read_input_items(user.context, await get_response(user, response_id))
    return await large_response(lambda: item_page(items, after, limit, order))
