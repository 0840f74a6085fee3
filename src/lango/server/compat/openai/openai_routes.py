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

import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from lango.server.compat.client_view import ASKING
from lango.server.compat.openai.chat_request import ChatRequest
from lango.server.compat.openai.conversation_ids import conversation_of
from lango.server.compat.openai.session_selection import submit_carried, submit_named
from lango.server.context import Here, Served
from lango.server.errors import Refused
from lango.server.frames import FrameStream, read, status_of
from lango.server.json_body import JsonResponse
from lango.server.schemas import SESSION_ID
from lango.server.security.auth import User
from lango.server.security.authenticated_route import route_with_errors
from lango.server.streaming.turn_streams import TurnOf

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISH = {"max_tokens": "length", "length": "length", "safety": "content_filter", "content_filter": "content_filter"}
# a turn is stored once it is accepted: a client that repeats the request would send the message twice
_ONCE = {"x-should-retry": "false"}


# -- errors in OpenAI's shape -------------------------------------------------------------------------------------


def _error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Say what went wrong as OpenAI does."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


_OpenAiRoute = route_with_errors(lambda refused: _error_body(refused.status, refused.error, str(refused)))
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
    completion = _Completion(here, turn, {tool.name for tool in tools})
    if asked.stream:
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        chunks = completion.chunks(include_usage=usage)
        return FrameStream(chunks, here.settings.server.write_timeout_s, _failed, headers)
    return await completion.whole(headers)


# -- answering ----------------------------------------------------------------------------------------------------


class _Completion:
    """One turn as a completion."""

    def __init__(self, here: Served, turn: TurnOf, client_tools: Collection[str]) -> None:
        self._here = here
        self._turn = turn
        self._tools = _Tools(client_tools)
        self._session_id = turn.session.name.id
        self._about: dict[str, Any] = {
            "id": f"chatcmpl-{turn.session.key}-{turn.turn}",
            "created": int(time.time()),
            "model": here.runtime.app_name,
        }

    async def whole(self, headers: Mapping[str, str]) -> Response:
        """Wait for the answer."""
        text: list[str] = []
        async with aclosing(read(self._here.turns.follow(self._turn))) as events:
            async for event in events:
                match event:
                    case {"type": "text_delta" | "approval"}:
                        text.append(self._text_of(event))
                    case {"type": "tool_start" | "tool_end"}:
                        self._tools.tell(event)
                    case {"type": "error", "fatal": True}:
                        status = status_of(event["error"])
                        return JsonResponse(_error_body(status, event["error"], event["message"]), status, headers)
                    case {"type": "done"}:
                        return JsonResponse(self._body("".join(text), event), headers=headers)
                    case _:
                        pass
        raise AssertionError("a turn was told without an end")

    async def chunks(self, *, include_usage: bool) -> AsyncGenerator[str | None, None]:
        """Tell the answer as it comes."""
        no_usage = {"usage": None} if include_usage else {}
        yield self._chunk({"role": "assistant", "content": ""}, None, no_usage)
        async with aclosing(read(self._here.turns.follow(self._turn))) as events:
            async for event in events:
                match event:
                    case None | {"type": "queued"}:
                        yield f": queued, place {event['place']}\n\n" if event else None
                    case {"type": "text_delta" | "approval"}:
                        yield self._chunk({"content": self._text_of(event)}, None, no_usage)
                    case {"type": "tool_start" | "tool_end"}:
                        if executed := self._tools.tell(event):
                            yield self._chunk({"executed_tools": executed}, None, no_usage)
                    case {"type": "error", "fatal": True}:
                        yield _failed(event["error"], event["message"])
                    case {"type": "done"}:
                        if calls := self._tools.calls:
                            pieces = [{"index": index} | call for index, call in enumerate(calls)]
                            yield self._chunk({"tool_calls": pieces}, None, no_usage)
                        yield self._chunk({}, self._finish(event), no_usage)
                        if include_usage:
                            kind = {"object": "chat.completion.chunk"}
                            yield _frame(self._about | kind | {"choices": [], "usage": _usage(event)})
                        yield "data: [DONE]\n\n"
                    case _:
                        pass

    def _body(self, text: str, done: Mapping[str, Any]) -> dict[str, Any]:
        calls, executed = self._tools.calls, self._tools.executed
        content = text or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        message |= {"executed_tools": executed} if executed else {}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(done)}
        return self._about | {"object": "chat.completion", "choices": [choice], "usage": _usage(done)}

    def _text_of(self, event: Mapping[str, Any]) -> str:
        if event["type"] == "text_delta":
            return event["text"]
        where = f"POST /v1/sessions/{self._session_id}/approvals/{event['call_id']}"
        return f"{ASKING}{event['name']}({json.dumps(event['arguments'])}); answer with {where}]"

    def _finish(self, done: Mapping[str, Any]) -> str:
        return "tool_calls" if self._tools.calls else _FINISH.get(done["finish_reason"], "stop")

    def _chunk(self, delta: Mapping[str, Any], finish: str | None, more: Mapping[str, Any]) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame(self._about | {"object": "chat.completion.chunk", "choices": [choice], **more})


class _Tools:
    """Calls as a client is told of them: those of the agent's own tools, and those that it is to run itself."""

    def __init__(self, client_tools: Collection[str]) -> None:
        self.executed: list[dict[str, Any]] = []
        self._client_tools = client_tools
        self._places: dict[str, int] = {}
        self._held: dict[str, Mapping[str, Any]] = {}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls that are the client's to run, once the answer is over: one that is wrong got its result here."""
        return [_call(event) for event in self._held.values()]

    def tell(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take an event; return what it adds to the executed ones."""
        call_id, starts = event["call_id"], event["type"] == "tool_start"
        if starts and event["name"] in self._client_tools:
            self._held[call_id] = event
            return []
        index = self._places.setdefault(call_id, len(self._places))
        piece: dict[str, Any] = {"index": index}
        if index == len(self.executed):  # an approved call goes on without a start
            piece |= {"id": call_id, "type": "function", "name": event["name"]}
            self.executed.append({})
        if start := event if starts else self._held.pop(call_id, None):
            piece["arguments"] = json.dumps(start["arguments"])
        if not starts:
            piece |= {"output": json.dumps(event["result"]), "ok": event["ok"]}
        self.executed[index] |= piece
        return [piece]


def _call(start: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": start["name"], "arguments": json.dumps(start["arguments"])}
    return {"id": start["call_id"], "type": "function", "function": function}


def _frame(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _failed(error: str, message: str) -> str:
    return _frame(_error_body(status_of(error), error, message))


def _usage(done: Mapping[str, Any]) -> dict[str, Any]:
    used = done["usage"]
    prompt, completion = used["input_tokens"], used["output_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used.get("cached_tokens", 0)},
    }
