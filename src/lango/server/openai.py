"""OpenAI's chat completions on this agent: `POST /v1/chat/completions`, `GET /v1/models`.

The last message is the turn. The agent has its own model and instruction: whatever model a client names, the agent
answers under its own name, and system messages and sampling settings are read past.

The last message may bring pictures (`image_url`) and files (`file` with `file_data`), as `data:` URLs. Nothing is
fetched from elsewhere: other addresses, a `file_id` and `input_audio` are refused.

Which session a turn belongs to:

- With `X-Session-Id`, that one. Of what the client resends before the last message, only results are read, of calls
  that still wait.
- Without it, the newest session that was told exactly what the client resends: the same messages when it began, the
  same answered messages with their files, and their answers and calls, since, white space and the files' names aside,
  and no answer after them. Looked for among the user's 200 newest sessions, in the store, so that any process on it
  finds the same one.
- Else a new session, which begins with this message alone: what a client says the assistant said is never stored.

Every answer names its session in `X-Session-Id`.

A client's `tools` are offered to the model in this turn, beside the agent's own. A call of one is told in `tool_calls`
and ends the answer, with the finish reason `tool_calls`; the next request brings the results as tool messages, one for
each call. Where a user's message comes instead, calls without a result are closed as unanswered.

Calls of the agent's own tools are not `tool_calls`: a client would run those itself and wait for nobody. They are told
in a field that OpenAI's SDK passes through, `executed_tools` of the message (or, in a stream, of the delta): `index`,
`id`, `type`, `name`, `arguments` as JSON text, and once it is done `output` as JSON text, and `ok`. The pieces of a
stream are merged by `index`, as those of `tool_calls` are.
"""

import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from typing_extensions import override

from lango.server.auth import User
from lango.server.client_results import answered_last, give, results_in
from lango.server.errors import Refused, told
from lango.server.frames import FrameStream, read, status_of
from lango.server.openai_input import ChatRequest
from lango.server.openai_sessions import ASKING, session_of
from lango.server.schemas import SESSION_ID
from lango.server.served import Here, Served
from lango.server.streams import TurnOf

_log = logging.getLogger("lango.server")

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISH = {"max_tokens": "length", "length": "length", "safety": "content_filter", "content_filter": "content_filter"}
# a turn is stored once it is accepted: a client that repeats the request would send the message twice
_ONCE = {"x-should-retry": "false"}


# -- errors in OpenAI's shape -------------------------------------------------------------------------------------


def error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Say what went wrong as OpenAI does."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class OpenAiRoute(APIRoute):
    """A route whose errors are OpenAI's."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - every error has an answer
                refused = told(error)
                if refused.status == 500:
                    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
                body = error_body(refused.status, refused.error, str(refused))
                return JSONResponse(body, refused.status, refused.headers)

        return handle_errors


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAiRoute)

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
    asked: ChatRequest, user: User, here: Here, session_id: SessionHeader = None, key: Key = None
) -> Response:
    """Answer the last message of a conversation. `Idempotency-Key` holds within `X-Session-Id`."""
    asked.check()
    tools = asked.read_tools()
    last = asked.messages[-1]
    files = [] if asked.brings_results else last.read_files(here.settings.server)
    if session_id is not None:
        await here.may_write(user, session_id)
    else:
        await here.door.check_tokens(user)
        session_id = await session_of(here, user, asked)
    said = [one.spoken for one in asked.messages]
    results = results_in(said)
    if asked.brings_results:
        attempt = key or uuid.uuid4().hex
        turn = await give(here, user, session_id, results, answered_last(said), tools, attempt, every=True)
    else:
        turn = await here.turns.submit(user, session_id, last.text, key, files, client_tools=tools, results=results)
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
                        return JSONResponse(error_body(status, event["error"], event["message"]), status, headers)
                    case {"type": "done"}:
                        content = "".join(text) or (None if self._tools.calls else "")
                        message = {"role": "assistant", "content": content, "refusal": None} | self._tools.told()
                        finish = self._finish(event)
                        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
                        kind = {"object": "chat.completion"}
                        body = self._about | kind | {"choices": [choice], "usage": _usage(event)}
                        return JSONResponse(body, headers=headers)
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
                    case None:
                        yield None
                    case {"type": "text_delta" | "approval"}:
                        yield self._chunk({"content": self._text_of(event)}, None, no_usage)
                    case {"type": "tool_start" | "tool_end"}:
                        yield self._chunk(self._tools.tell(event), None, no_usage)
                    case {"type": "error", "fatal": True}:
                        yield _failed(event["error"], event["message"])
                    case {"type": "done"}:
                        yield self._chunk({}, self._finish(event), no_usage)
                        if include_usage:
                            kind = {"object": "chat.completion.chunk"}
                            yield _frame(self._about | kind | {"choices": [], "usage": _usage(event)})
                        yield "data: [DONE]\n\n"
                    case _:
                        pass

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
    """Calls as a client is told of them: those of its own tools, and those of the agent's."""

    def __init__(self, client_tools: Collection[str]) -> None:
        self.calls: list[dict[str, Any]] = []
        self._client_tools = client_tools
        self._executed: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}

    def told(self) -> dict[str, Any]:
        """Return what a whole message says of them."""
        own = {"executed_tools": self._executed} if self._executed else {}
        return own | ({"tool_calls": self.calls} if self.calls else {})

    def tell(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Take an event; return what it adds to the message."""
        if event["type"] == "tool_start" and event["name"] in self._client_tools:
            function = {"name": event["name"], "arguments": json.dumps(event["arguments"])}
            self.calls.append({"id": event["call_id"], "type": "function", "function": function})
            return {"tool_calls": [{"index": len(self.calls) - 1} | self.calls[-1]]}
        index = self._places.setdefault(event["call_id"], len(self._places))
        piece: dict[str, Any] = {"index": index}
        if index == len(self._executed):  # an approved call goes on without a start
            piece |= {"id": event["call_id"], "type": "function", "name": event["name"]}
            self._executed.append({})
        if event["type"] == "tool_start":
            piece["arguments"] = json.dumps(event["arguments"])
        else:
            piece |= {"output": json.dumps(event["result"]), "ok": event["ok"]}
        self._executed[index] |= piece
        return {"executed_tools": [piece]}


def _frame(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _failed(error: str, message: str) -> str:
    return _frame(error_body(status_of(error), error, message))


def _usage(done: Mapping[str, Any]) -> dict[str, Any]:
    used = done["usage"]
    prompt, completion = used["input_tokens"], used["output_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used.get("cached_tokens", 0)},
    }
