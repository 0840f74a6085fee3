"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import to_builtins
from pydantic import BaseModel
from starlette.responses import Response

from lango import events
from lango.errors import LangoError
from lango.server.compat.turn_answer import AnswerPart, ExecutedTool, Speaker, Text, Thought, TurnAnswer
from lango.server.errors import ApiError, to_api_error, turn_api_error
from lango.server.json_body import JsonResponse, tool_value_text

_ERROR_TYPE_BY_STATUS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_PARAMETER = re.compile(r"([a-z_]+)(?:\.[\w.]+)?: ")
_FINISH_REASONS = {
    "max_tokens": "length",
    "length": "length",
    "safety": "content_filter",
    "content_filter": "content_filter",
}


class OpenAiError(BaseModel):
    """The message and type of an error, as OpenAI's SDKs read them."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiErrorBody(BaseModel):
    """The body of every error response of OpenAI's API."""

    error: OpenAiError


def openai_error_body(error: ApiError) -> dict[str, Any]:
    """Return the body of an error response of OpenAI's API."""
    kind = _ERROR_TYPE_BY_STATUS.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    named = _PARAMETER.match(str(error)) if error.status == 400 else None
    return {"error": {"message": str(error), "type": kind, "param": named and named[1], "code": error.type}}


class Completion:
    """The answer of one turn as a completion."""

    def __init__(self, answer: TurnAnswer, model: str) -> None:
        self._answer = answer
        self._no_usage: dict[str, Any] = {}
        """Part of every chunk but the last of a stream that ends with the usage."""
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{answer.turn.session.key}-{answer.turn.turn}",
            "created": int(time.time()),
            "model": model,
        }

    async def response(self, headers: Mapping[str, str]) -> Response:
        """Wait for the end of the turn and return its whole answer.

        Errors become responses here, not in the route: every response to an accepted turn carries `headers`.
        """
        try:
            return JsonResponse(await self._whole_body(), headers=headers)
        except (LangoError, ApiError) as error:
            api_error = to_api_error(error)
            return JsonResponse(openai_error_body(api_error), api_error.status, {**api_error.headers, **headers})

    async def _whole_body(self) -> dict[str, Any]:
        parts, done = await self._answer.collect()
        text = "".join(part.text for part in parts if isinstance(part, Text))
        thoughts = "".join(part.text for part in parts if isinstance(part, Thought))
        speakers = [to_builtins(part) for part in parts if isinstance(part, Speaker)]
        calls, executed = self._client_calls, self._answer.executed
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        message |= {"reasoning_content": thoughts} if thoughts else {}
        message |= {"executed_tools": executed} if executed else {}
        message |= {"speakers": speakers} if speakers else {}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason(done)}
        return self._head | {"object": "chat.completion", "choices": [choice], "usage": _usage(done.usage)}

    async def chunks(self, *, include_usage: bool) -> AsyncGenerator[str | None, None]:
        """Yield the answer as it is generated, as frames of a stream; None whenever no event came for a heartbeat."""
        self._no_usage = {"usage": None} if include_usage else {}
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(self._answer.follow()) as items:
            async for item in items:
                match item:
                    case None:
                        yield None
                    case events.Queued(place=place):
                        yield f": queued, place {place}\n\n"
                    case events.TurnError():
                        yield encode_error(turn_api_error(item))
                    case events.TurnDone():
                        for frame in self._last_frames(item):
                            yield frame
                    case _:
                        yield self._chunk(_delta(item))

    def _last_frames(self, done: events.TurnDone) -> Iterator[str]:
        if calls := self._client_calls:
            yield self._chunk({"tool_calls": [{"index": index} | call for index, call in enumerate(calls)]})
        yield self._chunk({}, self._finish_reason(done))
        if self._no_usage:
            kind = {"object": "chat.completion.chunk"}
            yield _frame(self._head | kind | {"choices": [], "usage": _usage(done.usage)})
        yield "data: [DONE]\n\n"

    @property
    def _client_calls(self) -> list[dict[str, Any]]:
        return [_client_call(start) for start in self._answer.client_calls]

    def _finish_reason(self, done: events.TurnDone) -> str:
        return "tool_calls" if self._answer.client_calls else finish_reason(done)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame(self._head | {"object": "chat.completion.chunk", "choices": [choice], **self._no_usage})


def _delta(part: AnswerPart) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"content": text}
        case Thought(text=text):
            return {"reasoning_content": text}
        case Speaker():
            return {"speakers": [to_builtins(part)]}
        case ExecutedTool(change=change):
            return {"executed_tools": [change]}


def finish_reason(done: events.TurnDone) -> str:
    """Return why the model ended its answer, in OpenAI's words."""
    return _FINISH_REASONS.get(done.finish_reason, "stop")


def _client_call(start: events.ToolStart) -> dict[str, Any]:
    function = {"name": start.name, "arguments": tool_value_text(start.arguments)}
    return {"id": start.call_id, "type": "function", "function": function}


def _frame(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def encode_error(error: ApiError) -> str:
    """Encode an error as a frame of the stream."""
    return _frame(openai_error_body(error))


def _usage(used: events.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": used.thought_tokens},
    }
