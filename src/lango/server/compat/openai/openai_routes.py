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
from lango.server.compat.openai.conversation_ids import conversation_of
from lango.server.compat.openai.session_selection import submit_carried, submit_named
from lango.server.context import Here, Served
from lango.server.errors import Refused
from lango.server.schemas import SESSION_ID
from lango.server.security.auth import User
from lango.server.security.authenticated_route import route_with_errors
from lango.server.streaming.sse import FrameStream

# a turn is stored once it is accepted: a client that repeats the request would send the message twice
_ONCE = {"x-should-retry": "false"}
_OpenAiRoute = route_with_errors(lambda refused: openai_error_body(refused.status, refused.error, str(refused)))
router = APIRouter(prefix="/v1", tags=["openai"], route_class=_OpenAiRoute)

SessionHeader = Annotated[str | None, Header(alias="X-Session-Id", pattern=SESSION_ID)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]


@router.get("/models")
async def list_models(user: User, here: Here) -> dict[str, Any]:
    """List the one model there is: the agent."""
    return {"object": "list", "data": [_model(here)]}


@router.get("/models/{model}", include_in_schema=False)
async def read_model(model: str, user: User, here: Here) -> dict[str, Any]:
    """Show the agent as a model."""
    if model != here.runtime.app_name:
        raise Refused(404, "model_not_found", f"there is no model {model!r}; there is {here.runtime.app_name!r}")
    return _model(here)


def _model(here: Served) -> dict[str, Any]:
    return {"id": here.runtime.app_name, "object": "model", "created": 0, "owned_by": "lango"}


@router.post("/chat/completions", response_model=None)
async def complete(
    asked: ChatRequest, request: Request, user: User, here: Here, session_id: SessionHeader = None, key: Key = None
) -> Response:
    """Answer the last message of a conversation. `Idempotency-Key` holds within `X-Session-Id`."""
    asked.check()
    tools = await asked.read_tools()
    named = None if session_id is not None else conversation_of(asked, request.headers)
    if session_id is not None:
        await here.may_write(user, session_id)
    else:
        await here.door.check_tokens(user)
        session_id = named.session_id if named and not named.several else None
    if session_id is not None:
        turn = await submit_named(here, user, session_id, asked, tools, key)
    else:
        turn = await submit_carried(here, user, asked, tools, key, named)
    session_id = turn.session.name.id
    # a header is Latin-1; an id that is not was sent as raw bytes, and is known to whoever sent it
    headers = {"X-Session-Id": session_id} | _ONCE if session_id.isascii() else _ONCE
    completion = Completion(here, turn, {tool.name for tool in tools})
    if asked.stream:
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        chunks = completion.chunks(include_usage=usage)
        return FrameStream(chunks, here.settings.server.write_timeout_s, encode_error, headers)
    return await completion.whole(headers)
