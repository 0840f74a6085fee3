"""Serve OpenAI's chat completions and model list: `POST /v1/chat/completions`, `GET /v1/models`.

docs/howto/openai-client.md says what the model reads, which parameters hold, and what is refused. Every response names
its session in `X-Session-Id`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from fastapi import Request
from starlette.responses import Response

from lango.server.compat.chat_turn import TURN_ERRORS, SessionIdHeader, answer_response, describe_answer, submit_chat
from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.completion import Completion, OpenAiErrorBody
from lango.server.compat.openai.files.uploaded_files import UploadedFiles
from lango.server.compat.session_selection import SESSION_PREFIX, NamedConversation
from lango.server.context import CurrentUser, ServerContext
from lango.server.errors import ApiError, bad_request
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, IdempotencyKey, error_responses
from lango.server.security.auth import AuthenticatedRouter

T = TypeVar("T")
Order = Literal["asc", "desc"]

CONVERSATION_HEADERS = {
    "X-OpenWebUI-Chat-Id": "X-OpenWebUI-User-Id",
    "X-Conversation-Id": "X-User-Id",
}
"""Headers with a conversation id, each with the header of the user, unless the body has `user`.

Open WebUI sends the first (`ENABLE_FORWARD_USER_INFO_HEADERS`); LibreChat's documentation configures the second.
"""
METADATA_KEYS = ("conversation_id", "thread_id", "session_id")
"""Keys in `metadata` for a conversation id, as in LangChain and other applications."""


def named_conversation(request: ChatRequest, headers: Mapping[str, str]) -> NamedConversation | None:
    """Return the conversation that a request names together with a user, or None."""
    for header, user_header in CONVERSATION_HEADERS.items():
        user = _text_or_empty(request.user) or headers.get(user_header, "")
        if (conversation_id := headers.get(header)) and user:
            return NamedConversation(f"{_session_id(user, conversation_id)}-", has_several_sessions=True)
    metadata = request.metadata or {}
    user = _text_or_empty(request.user)
    for member in METADATA_KEYS:
        if (conversation_id := _text_or_empty(metadata.get(member))) and user:
            return NamedConversation(_session_id(user, conversation_id))
    return None


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _session_id(user: str, conversation_id: str) -> str:
    digest = hashlib.sha256(json.dumps([user, conversation_id]).encode()).hexdigest()
    return f"{SESSION_PREFIX}{digest[:32]}"


_NEVER = "1970-01-01T00:00:00Z"
_ERRORS = error_responses(COMMON_ERROR_DESCRIPTIONS, OpenAiErrorBody)
OPENAI_TURN_ERRORS = error_responses(TURN_ERRORS, OpenAiErrorBody)
_COMPLETION = describe_answer("A completion; with `stream`, its chunks as server-sent events.")
router = AuthenticatedRouter("/v1", tags=["openai"], responses=_ERRORS)


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


@router.post("/chat/completions", response_model=None, responses=_COMPLETION | OPENAI_TURN_ERRORS)
async def create_completion(
    request_body: ChatRequest,
    request: Request,
    user: CurrentUser,
    session_id: SessionIdHeader = None,
    key: IdempotencyKey = None,
) -> Response:
    """Answer the last message of a conversation; a repeated request with its `Idempotency-Key` gets the same answer."""
    user = user.of_model(request_body.model)
    named = named_conversation(request_body, request.headers) if session_id is None else NamedConversation(session_id)
    answer = await submit_chat(user, request_body, key, named, UploadedFiles(user).load)
    usage = bool(request_body.stream_options and request_body.stream_options.include_usage)
    completion = Completion(answer, user.runtime.app_name, include_usage=usage)
    return await answer_response(user, answer, completion, stream=request_body.stream)


def item_page(items: Sequence[dict[str, Any]], after: str | None, limit: int, order: Order) -> dict[str, Any]:
    """Return the page of a list, the oldest item first, that follows the item `after` in the wanted order."""
    following = following_items(items, after, order, lambda item: item["id"])
    return list_body(following[:limit], has_more=limit < len(following))


def following_items(items: Sequence[T], after: str | None, order: Order, id_of: Callable[[T], str]) -> Sequence[T]:
    """Return what follows an item in the wanted order. An unknown item is refused: its client would read all again."""
    ordered = items if order == "asc" else items[::-1]
    if not after:
        return ordered
    ids = [id_of(item) for item in ordered]
    if after not in ids:
        raise bad_request(f"after: the list has no item {after!r}, or no longer; leave it out to begin anew")
    return ordered[ids.index(after) + 1 :]


def list_body(page: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page as OpenAI's lists are."""
    first_id, last_id = (page[0]["id"], page[-1]["id"]) if page else ("", "")
    return {"object": "list", "data": page, "first_id": first_id, "last_id": last_id, "has_more": has_more}
