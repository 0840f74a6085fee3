"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from lango.server.compat.client_view import APPROVAL_NOTE
from lango.server.context import ServerContext
from lango.server.json_body import JsonResponse
from lango.server.streaming.sse import read, status_of
from lango.server.streaming.turn_streams import TurnRef

_ERROR_TYPE_BY_STATUS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FINISH_REASONS = {
    "max_tokens": "length",
    "length": "length",
    "safety": "content_filter",
    "content_filter": "content_filter",
}

# -- errors in OpenAI's shape -------------------------------------------------------------------------------------


def openai_error_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Say what went wrong as OpenAI does."""
    kind = _ERROR_TYPE_BY_STATUS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# -- answering ----------------------------------------------------------------------------------------------------


class Completion:
    """One turn as a completion."""

    def __init__(self, context: ServerContext, turn: TurnRef, client_tools: Collection[str]) -> None:
        self._context = context
        self._turn = turn
        self._tool_calls = _ToolCalls(client_tools)
        self._session_id = turn.session.name.id
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{turn.session.key}-{turn.turn}",
            "created": int(time.time()),
            "model": context.runtime.app_name,
        }

    async def response(self, headers: Mapping[str, str]) -> Response:
        """Wait for the answer."""
        text: list[str] = []
        async with aclosing(read(self._context.turns.follow(self._turn))) as events:
            async for event in events:
                match event:
                    case {"type": "text_delta" | "approval"}:
                        text.append(self._visible_text(event))
                    case {"type": "tool_start" | "tool_end"}:
                        self._tool_calls.add(event)
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
        async with aclosing(read(self._context.turns.follow(self._turn))) as events:
            async for event in events:
                match event:
                    case None | {"type": "queued"}:
                        yield f": queued, place {event['place']}\n\n" if event else None
                    case {"type": "text_delta" | "approval"}:
                        yield self._chunk({"content": self._visible_text(event)}, None, no_usage)
                    case {"type": "tool_start" | "tool_end"}:
                        if executed := self._tool_calls.add(event):
                            yield self._chunk({"executed_tools": executed}, None, no_usage)
                    case {"type": "error", "fatal": True}:
                        yield encode_error(event["error"], event["message"])
                    case {"type": "done"}:
                        if calls := self._tool_calls.client_calls:
                            pieces = [{"index": index} | call for index, call in enumerate(calls)]
                            yield self._chunk({"tool_calls": pieces}, None, no_usage)
                        yield self._chunk({}, self._finish_reason(event), no_usage)
                        if include_usage:
                            kind = {"object": "chat.completion.chunk"}
                            yield _frame(self._head | kind | {"choices": [], "usage": _usage(event)})
                        yield "data: [DONE]\n\n"
                    case _:
                        pass

    def _body(self, text: str, done: Mapping[str, Any]) -> dict[str, Any]:
        calls, executed = self._tool_calls.client_calls, self._tool_calls.executed
        content = text or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        message |= {"executed_tools": executed} if executed else {}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason(done)}
        return self._head | {"object": "chat.completion", "choices": [choice], "usage": _usage(done)}

    def _visible_text(self, event: Mapping[str, Any]) -> str:
        if event["type"] == "text_delta":
            return event["text"]
        where = f"POST /v1/sessions/{self._session_id}/approvals/{event['call_id']}"
        return f"{APPROVAL_NOTE}{event['name']}({json.dumps(event['arguments'])}); answer with {where}]"

    def _finish_reason(self, done: Mapping[str, Any]) -> str:
        return "tool_calls" if self._tool_calls.client_calls else _FINISH_REASONS.get(done["finish_reason"], "stop")

    def _chunk(self, delta: Mapping[str, Any], finish: str | None, more: Mapping[str, Any]) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame(self._head | {"object": "chat.completion.chunk", "choices": [choice], **more})


class _ToolCalls:
    """Calls as a client is told of them: those of the agent's own tools, and those that it is to run itself."""

    def __init__(self, client_tools: Collection[str]) -> None:
        self.executed: list[dict[str, Any]] = []
        self._client_tools = client_tools
        self._index_by_call: dict[str, int] = {}
        self._client_calls: dict[str, Mapping[str, Any]] = {}

    @property
    def client_calls(self) -> list[dict[str, Any]]:
        """The calls that are the client's to run, once the answer is over: one that is wrong got its result here."""
        return [_client_call(event) for event in self._client_calls.values()]

    def add(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Take an event; return what it adds to the executed ones."""
        call_id, starts = event["call_id"], event["type"] == "tool_start"
        if starts and event["name"] in self._client_tools:
            self._client_calls[call_id] = event
            return []
        index = self._index_by_call.setdefault(call_id, len(self._index_by_call))
        piece: dict[str, Any] = {"index": index}
        if index == len(self.executed):  # an approved call goes on without a start
            piece |= {"id": call_id, "type": "function", "name": event["name"]}
            self.executed.append({})
        if start := event if starts else self._client_calls.pop(call_id, None):
            piece["arguments"] = json.dumps(start["arguments"])
        if not starts:
            piece |= {"output": json.dumps(event["result"]), "ok": event["ok"]}
        self.executed[index] |= piece
        return [piece]


def _client_call(start: Mapping[str, Any]) -> dict[str, Any]:
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
