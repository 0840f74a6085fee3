"""Serve Anthropic's messages: `POST /v1/messages`, `POST /v1/messages/count_tokens`.

docs/howto/anthropic-client.md says what the model reads, which parameters hold, and what is refused. Every response
names its session in `X-Session-Id`. The models are listed by `GET /v1/models`, as for OpenAI's clients.
"""

from typing import Any

from starlette.responses import Response

from lango.server.compat.anthropic.message_request import MessageRequest, TokenCountRequest
from lango.server.compat.anthropic.message_view import (
    AnthropicErrorBody,
    MessageView,
    anthropic_error_body,
    encode_error,
)
from lango.server.compat.linked_files import load_links
from lango.server.compat.session_header import SessionIdHeader, turn_headers
from lango.server.compat.session_selection import submit_carried_history, submit_to_named_session
from lango.server.compat.turn_answer import TurnAnswer
from lango.server.context import CurrentUser
from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, IdempotencyKey, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter, route_with_error_body
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import TurnRequest
from lango.threads import run_in_thread

_MESSAGE: Responses = {
    200: {
        "description": "A message; with `stream`, its events as server-sent events.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": EVENT_STREAM},
    }
}
_ERRORS = error_responses(
    COMMON_ERROR_DESCRIPTIONS | {413: "The request, or a file in it, is too large."}, AnthropicErrorBody
)
_TURN_ERRORS = error_responses(
    {
        409: "It conflicts with another change.",
        422: "The Idempotency-Key was used before, with another request: use another one.",
        500: "The turn failed; the message says why.",
        504: "The turn took too long.",
    },
    AnthropicErrorBody,
)
router = AuthenticatedRouter(
    "/v1/messages", tags=["anthropic"], responses=_ERRORS, route_class=route_with_error_body(anthropic_error_body)
)


@router.post("", response_model=None, responses=_MESSAGE | _TURN_ERRORS)
async def create_message(
    request_body: MessageRequest,
    user: CurrentUser,
    session_id: SessionIdHeader = None,
    key: IdempotencyKey = None,
) -> Response:
    """Answer the last message of a conversation; a repeated request with its `Idempotency-Key` gets the same answer."""
    user = user.of_model(request_body.model)
    request_body.check_supported()
    tools, options = await request_body.read_turn(user.settings.server)
    turn_request = TurnRequest(key, tools, options)
    await user.check_token_quota()
    linked = await load_links(request_body.file_links(), user.settings.server)
    messages = await run_in_thread(request_body.read_conversation, user.settings.server.limits, linked)
    if session_id is not None:
        turn = await submit_to_named_session(user, session_id, messages, turn_request)
    else:
        turn = await submit_carried_history(user, messages, turn_request)
    headers = turn_headers(turn.session.name.id)
    answer = TurnAnswer(user, turn, {tool.name for tool in tools}, only_json=options.shapes_answer)
    view = MessageView(answer, user.runtime.app_name, shows_thoughts=request_body.shows_thoughts)
    if request_body.stream:
        return EventStreamResponse(view.frames(), user.settings.server.write_timeout_s, encode_error, headers)
    return await view.response(headers)


@router.post("/count_tokens")
async def count_message_tokens(request_body: TokenCountRequest, user: CurrentUser) -> dict[str, Any]:
    """Estimate the tokens of a request, without those of the agent's own instruction and tools."""
    server = user.settings.server
    linked = await load_links(request_body.file_links(), server)
    return {"input_tokens": await run_in_thread(request_body.count_tokens, server.limits, linked)}
