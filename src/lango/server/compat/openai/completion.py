"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from lango.server.compat.client_view import ASKING
from lango.server.context import Served
from lango.server.json_body import JsonResponse
from lango.server.streaming.sse import read, status_of
from lango.server.streaming.turn_streams import TurnOf

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISH = {"max_tokens": "length", "length": "length", "safety": "content_filter", "content_filter": "content_filter"}

# -- errors in OpenAI's shape -------------------------------------------------------------------------------------


def openai_error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Say what went wrong as OpenAI does."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# -- answering ----------------------------------------------------------------------------------------------------


class Completion:
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
                        return JsonResponse(
                            openai_error_body(status, event["error"], event["message"]), status, headers
                        )
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
                        yield encode_error(event["error"], event["message"])
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


def encode_error(error: str, message: str) -> str:
    """Encode an error of a turn as a frame of the stream."""
    return _frame(openai_error_body(status_of(error), error, message))


def _usage(done: Mapping[str, Any]) -> dict[str, Any]:
    used = done["usage"]
    prompt, completion = used["input_tokens"], used["output_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used.get("cached_tokens", 0)},
    }
