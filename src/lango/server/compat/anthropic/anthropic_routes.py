"""Serve Anthropic's messages: `POST /v1/messages`, `POST /v1/messages/count_tokens`.

docs/howto/anthropic-client.md says what the model reads, which parameters hold, and what is refused. Every response
names its session in `X-Session-Id`. The models are listed by `GET /v1/models`, as for OpenAI's clients.
"""

from typing import Any

from starlette.responses import Response

from lango.server.compat.anthropic.message_request import MessageRequest, TokenCountRequest
from lango.server.compat.anthropic.message_view import AnthropicErrorBody, MessageView
from lango.server.compat.chat_turn import TURN_ERRORS, SessionIdHeader, answer_response, describe_answer, submit_chat
from lango.server.compat.linked_files import load_links
from lango.server.compat.session_selection import NamedConversation
from lango.server.context import CurrentUser
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, IdempotencyKey, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.threads import run_in_thread

_MESSAGE = describe_answer("A message; with `stream`, its events as server-sent events.")
_ERRORS = error_responses(COMMON_ERROR_DESCRIPTIONS | {413: TURN_ERRORS[413]}, AnthropicErrorBody)
_TURN_ERRORS = error_responses(TURN_ERRORS, AnthropicErrorBody)
router = AuthenticatedRouter("/v1/messages", tags=["anthropic"], responses=_ERRORS)


@router.post("", response_model=None, responses=_MESSAGE | _TURN_ERRORS)
async def create_message(
    request_body: MessageRequest,
    user: CurrentUser,
    session_id: SessionIdHeader = None,
    key: IdempotencyKey = None,
) -> Response:
    """Answer the last message of a conversation; a repeated request with its `Idempotency-Key` gets the same answer."""
    user = user.of_model(request_body.model)
    answer = await submit_chat(user, request_body, key, NamedConversation(session_id) if session_id else None)
    view = MessageView(answer, user.runtime.app_name, shows_thoughts=request_body.shows_thoughts)
    return await answer_response(user, answer, view, stream=request_body.stream)


@router.post("/count_tokens")
async def count_message_tokens(request_body: TokenCountRequest, user: CurrentUser) -> dict[str, Any]:
    """Estimate the tokens of a request, without those of the agent's own instruction and tools."""
    server = user.settings.server
    linked = await load_links(request_body.file_links(), server)
    return {"input_tokens": await run_in_thread(request_body.count_tokens, server.limits, linked)}
