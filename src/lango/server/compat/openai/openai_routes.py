"""Serve OpenAI's chat completions and model list: `POST /v1/chat/completions`, `GET /v1/models`.

The agent has its own model and instruction. A single agent answers under its own name, whatever model a client names;
of several agents, `model` names one. `chat_options` says what holds for the model calls of the turn, and what is
refused.

The model reads system and developer messages after the agent's own instruction, marked as the client's, in their order
and wherever they stand in the conversation. They hold for this turn, also after a crash or a pause, are no part of the
session's history, and are not compared. With `server.client_instructions = false` they are refused.

Which session a turn belongs to, and what the model reads:

- With `X-Session-Id`, that session: its stored history counts. Of a resent history, only new parts are read: the
  user's messages since the last answer that the session does not hold yet, and results of calls that still wait.
  The same holds with `user` and one of `conversation_id`, `thread_id` and `session_id` in `metadata`: both together
  name one session of the caller.
- Without it, the model reads exactly the history in the request: the user's texts and files, the assistant's texts,
  calls of the client's tools and their results. If a session of the caller holds exactly that history, as a client
  sees it, and has no running or queued turn, the turn is stored there, after the agent's own tool calls. Otherwise, as
  after an edited message, a regenerated answer or a trimmed history, a new session starts with the history of the
  request; its messages are marked as carried (`lango_carried` in the metadata of the event).
- Front ends that send the id of a chat and of its user in headers (`X-OpenWebUI-Chat-Id` with `X-OpenWebUI-User-Id`,
  `X-Conversation-Id` with `X-User-Id`; the user may also be `user` of the body) resend the whole history, too: the
  model reads it, and only sessions of the same chat and user are searched.

Every response names its session in `X-Session-Id`. Two requests with the same history never share a session: a turn
starts in a session that was found only if the session has not changed since.

A message may have images (`image_url`) and files (`file` with `file_data`), as `data:` URLs. The server fetches
nothing: other URLs, a `file_id` and `input_audio` are refused in the last message; in earlier messages, the model reads
a note instead.

A client's `tools` are offered to the model in this turn, beside the agent's own. A call of one is returned in
`tool_calls` and ends the answer, with the finish reason `tool_calls`; the next request carries the results as tool
messages, one for each call. If a user's message comes instead, calls without a result are closed as unanswered. Calls
in a resent history never run here, and none may use a name that is ADK's own (`adk_*`, `transfer_to_agent`).

Calls of the agent's own tools are not `tool_calls`, which a client would run itself. They are in a field that OpenAI's
SDK passes through, `executed_tools` of the message (or, in a stream, of the delta): `index`, `id`, `type`, `name`,
`arguments` as JSON text, and at the end of the call `output` as JSON text, and `ok`. The parts of a stream are merged
by `index`, like those of `tool_calls`.

Where another agent than the root agent speaks, `speakers` of the message or delta has its name, with an `index`, each
time that the speaker changes; in a stream, before its text.
"""

from typing import Annotated, Any

from fastapi import Header, Request
from starlette.responses import Response

from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.completion import Completion, OpenAiErrorBody, encode_error, openai_error_body
from lango.server.compat.openai.session_selection import (
    named_conversation,
    submit_carried_history,
    submit_to_named_session,
)
from lango.server.context import CurrentUser, ServerContext
from lango.server.errors import ApiError
from lango.server.openapi import EVENT_STREAM
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, SESSION_ID, IdempotencyKey, Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter, route_with_error_body
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import TurnRequest

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

SessionIdHeader = Annotated[str | None, Header(alias="X-Session-Id", pattern=SESSION_ID)]


def turn_headers(session_id: str) -> dict[str, str]:
    """Return the headers of the response to an accepted turn.

    The turn is stored: a client that retries the request would send the message twice. Headers are Latin-1; a client
    that sent another id knows it.
    """
    return {"x-should-retry": "false"} | ({"X-Session-Id": session_id} if session_id.isascii() else {})


@router.get("/models")
async def list_models(user: CurrentUser) -> dict[str, Any]:
    """List the models: the agents."""
    return {"object": "list", "data": [_model_card(one) for one in user.context.agents.contexts.values()]}


@router.get("/models/{model}", include_in_schema=False)
async def read_model(model: str, user: CurrentUser) -> dict[str, Any]:
    """Return the agent as a model."""
    if model not in user.context.agents.contexts:
        there = ", ".join(map(repr, user.context.agents.contexts))
        raise ApiError(404, "model_not_found", f"there is no model {model!r}; the models are {there}")
    return _model_card(user.context.agents.contexts[model])


def _model_card(context: ServerContext) -> dict[str, Any]:
    return {"id": context.runtime.app_name, "object": "model", "created": 0, "owned_by": "lango"}


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
    if session_id is not None:
        turn = await submit_to_named_session(user, session_id, request_body, turn_request)
    else:
        conversation = named_conversation(request_body, request.headers)
        if conversation and not conversation.has_several_sessions:
            session_id = conversation.session_id
            turn = await submit_to_named_session(user, session_id, request_body, turn_request)
        else:
            turn = await submit_carried_history(user, request_body, turn_request, conversation)
    headers = turn_headers(turn.session.name.id)
    completion = Completion(user, turn, {tool.name for tool in tools}, only_json=options.shapes_answer)
    if request_body.stream:
        usage = bool(request_body.stream_options and request_body.stream_options.include_usage)
        chunks = completion.chunks(include_usage=usage)
        return EventStreamResponse(chunks, user.settings.server.write_timeout_s, encode_error, headers)
    return await completion.response(headers)
