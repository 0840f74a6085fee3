"""OpenAI's chat completions on this agent: `POST /v1/chat/completions`, `GET /v1/models`.

The agent has its own model and instruction: whatever model a client names, the agent answers under its own name, and
system messages, developer messages and sampling settings are read past: neither stored, nor read, nor compared.

Which session a turn belongs to, and what the model reads:

- With `X-Session-Id`, that session: its stored history counts. Of what the client resends, only what is new is read:
  the user's messages since the last answer that the session does not hold yet, and results of calls that still wait.
  The same holds with `user` and one of `conversation_id`, `thread_id` and `session_id` in `metadata`: both together
  name one session of the caller.
- Without it, the model reads exactly the history that the request carries: the user's texts and files, the assistant's
  texts, calls of the client's tools and their results. Where a session of the caller holds just that to its last
  message, as a client sees it, and no turn of it runs or waits, the turn is stored there, after the agent's own tool
  calls. Else, as after a message was changed, an answer made anew or a history trimmed, a new session begins with the
  carried history; its messages are marked as carried (`lango_carried` in the metadata of the event).
- Front ends that send the id of a chat and of its user in headers (`X-OpenWebUI-Chat-Id` with `X-OpenWebUI-User-Id`,
  `X-Conversation-Id` with `X-User-Id`; the user may also be `user` of the body) resend all of it, too: the model reads
  what they carry, and only sessions of the same chat and user are looked at.

Every answer names its session in `X-Session-Id`. Two requests never share a session by what they carry: a turn begins
in a session that was found only if nothing came to it in between.

A message may bring pictures (`image_url`) and files (`file` with `file_data`), as `data:` URLs. Nothing is fetched from
elsewhere: other addresses, a `file_id` and `input_audio` are refused in the last message; further up, the model reads a
note in their place.

A client's `tools` are offered to the model in this turn, beside the agent's own. A call of one is told in `tool_calls`
and ends the answer, with the finish reason `tool_calls`; the next request brings the results as tool messages, one for
each call. Where a user's message comes instead, calls without a result are closed as unanswered. Calls that a client
carries never run and never wait here, and none can be made in a name that is ADK's own (`adk_*`, `transfer_to_agent`).

Calls of the agent's own tools are not `tool_calls`: a client would run those itself and wait for nobody. They are told
in a field that OpenAI's SDK passes through, `executed_tools` of the message (or, in a stream, of the delta): `index`,
`id`, `type`, `name`, `arguments` as JSON text, and once it is done `output` as JSON text, and `ok`. The pieces of a
stream are merged by `index`, as those of `tool_calls` are.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.completion import Completion, encode_error, openai_error_body
from lango.server.compat.openai.conversation_ids import named_conversation
from lango.server.compat.openai.session_selection import submit_carried_history, submit_to_named_session
from lango.server.context import Context, ServerContext
from lango.server.errors import ApiError
from lango.server.schemas import SESSION_ID, IdempotencyKey
from lango.server.security.auth import CurrentCaller
from lango.server.security.authenticated_route import route_with_error_body
from lango.server.streaming.sse import FrameStreamResponse

# a turn is stored once it is accepted: a client that repeats the request would send the message twice
_NO_RETRY = {"x-should-retry": "false"}
_OpenAiRoute = route_with_error_body(openai_error_body)
router = APIRouter(prefix="/v1", tags=["openai"], route_class=_OpenAiRoute)

SessionIdHeader = Annotated[str | None, Header(alias="X-Session-Id", pattern=SESSION_ID)]


@router.get("/models")
async def list_models(caller: CurrentCaller, context: Context) -> dict[str, Any]:
    """List the one model there is: the agent."""
    return {"object": "list", "data": [_model_card(context)]}


@router.get("/models/{model}", include_in_schema=False)
async def read_model(model: str, caller: CurrentCaller, context: Context) -> dict[str, Any]:
    """Show the agent as a model."""
    if model != context.runtime.app_name:
        raise ApiError(404, "model_not_found", f"there is no model {model!r}; there is {context.runtime.app_name!r}")
    return _model_card(context)


def _model_card(context: ServerContext) -> dict[str, Any]:
    return {"id": context.runtime.app_name, "object": "model", "created": 0, "owned_by": "lango"}


@router.post("/chat/completions", response_model=None)
async def create_completion(
    request_body: ChatRequest,
    request: Request,
    caller: CurrentCaller,
    context: Context,
    session_id: SessionIdHeader = None,
    key: IdempotencyKey = None,
) -> Response:
    """Answer the last message of a conversation. `Idempotency-Key` holds within `X-Session-Id`."""
    request_body.check_supported()
    tools = await request_body.read_tools()
    conversation = None if session_id is not None else named_conversation(request_body, request.headers)
    if session_id is not None:
        await context.check_may_write(caller, session_id)
    else:
        await context.principal.check_token_quota(caller)
        session_id = conversation.session_id if conversation and not conversation.has_several_sessions else None
    if session_id is not None:
        turn = await submit_to_named_session(context, caller, session_id, request_body, tools, key)
    else:
        turn = await submit_carried_history(context, caller, request_body, tools, key, conversation)
    session_id = turn.session.name.id
    # a header is Latin-1; an id that is not was sent as raw bytes, and is known to whoever sent it
    headers = {"X-Session-Id": session_id} | _NO_RETRY if session_id.isascii() else _NO_RETRY
    completion = Completion(context, turn, {tool.name for tool in tools})
    if request_body.stream:
        usage = bool(request_body.stream_options and request_body.stream_options.include_usage)
        chunks = completion.chunks(include_usage=usage)
        return FrameStreamResponse(chunks, context.settings.server.write_timeout_s, encode_error, headers)
    return await completion.response(headers)
