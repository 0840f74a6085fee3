"""Serve OpenAI's chat completions and model list: `POST /v1/chat/completions`, `GET /v1/models`.

docs/howto/openai-client.md says what the model reads, which parameters hold, and what is refused. Every response names
its session in `X-Session-Id`.
"""

from typing import Any

from fastapi import Request
from starlette.responses import Response

from lango.server.compat.linked_files import load_links
from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.completion import Completion, OpenAiErrorBody, encode_error, openai_error_body
from lango.server.compat.openai.files.uploaded_files import UploadedFiles
from lango.server.compat.openai.named_conversation import named_conversation
from lango.server.compat.session_header import SessionIdHeader, turn_headers
from lango.server.compat.session_selection import submit_carried_history, submit_to_named_session
from lango.server.compat.turn_answer import TurnAnswer
from lango.server.context import CurrentUser, ServerContext
from lango.server.errors import ApiError
from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, IdempotencyKey, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter, route_with_error_body
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import TurnRequest
from lango.threads import run_in_thread

_NEVER = "1970-01-01T00:00:00Z"
_OpenAiRoute = route_with_error_body(openai_error_body)
_ERRORS = error_responses(COMMON_ERROR_DESCRIPTIONS, OpenAiErrorBody)
TURN_ERRORS = error_responses(
    {
        409: "It conflicts with another change.",
        413: "The request, or a file in it, is too large.",
        422: "The Idempotency-Key was used before, with another request: use another one.",
        500: "The turn failed; the message says why.",
        504: "The turn took too long.",
    },
    OpenAiErrorBody,
)
_COMPLETION: Responses = {
    200: {
        "description": "A completion; with `stream`, its chunks as server-sent events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": EVENT_STREAM,
        },
    }
}
router = AuthenticatedRouter("/v1", tags=["openai"], responses=_ERRORS, route_class=_OpenAiRoute)


@router.get("/models")
async def list_models(user: CurrentUser) -> dict[str, Any]:
    """List the models: the agents."""
    names = list(user.context.agents.contexts)
    page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}  # for Anthropic's clients
    return {"object": "list", "data": [_model_card(one) for one in user.context.agents.contexts.values()], **page}


@router.get("/models/{model}", include_in_schema=False)
async def read_model(model: str, user: CurrentUser) -> dict[str, Any]:
    """Return the agent as a model."""
    if model not in user.context.agents.contexts:
        there = ", ".join(map(repr, user.context.agents.contexts))
        raise ApiError(404, "model_not_found", f"there is no model {model!r}; the models are {there}")
    return _model_card(user.context.agents.contexts[model])


def _model_card(context: ServerContext) -> dict[str, Any]:
    """Return an agent as a model, for OpenAI's clients and for Anthropic's."""
    name = context.runtime.app_name
    card: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "lango"}
    return card | {"type": "model", "display_name": name, "created_at": _NEVER, "lifecycle": "active"}


@router.post("/chat/completions", response_model=None, responses=_COMPLETION | TURN_ERRORS)
async def create_completion(
    request_body: ChatRequest,
    request: Request,
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
    linked = await load_links(request_body.file_links(), user.settings.server, UploadedFiles(user).load)
    messages = await run_in_thread(request_body.read_conversation, user.settings.server.limits, linked)
    if session_id is not None:
        turn = await submit_to_named_session(user, session_id, messages, turn_request)
    else:
        conversation = named_conversation(request_body, request.headers)
        if conversation and not conversation.has_several_sessions:
            session_id = conversation.session_id
            turn = await submit_to_named_session(user, session_id, messages, turn_request)
        else:
            turn = await submit_carried_history(user, messages, turn_request, conversation)
    headers = turn_headers(turn.session.name.id)
    answer = TurnAnswer(user, turn, {tool.name for tool in tools}, only_json=options.shapes_answer)
    completion = Completion(answer, user.runtime.app_name)
    if request_body.stream:
        usage = bool(request_body.stream_options and request_body.stream_options.include_usage)
        chunks = completion.chunks(include_usage=usage)
        return EventStreamResponse(chunks, user.settings.server.write_timeout_s, encode_error, headers)
    return await completion.response(headers)
