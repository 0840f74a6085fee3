"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins
from pydantic import BaseModel

from lango import events
from lango.server.compat.turn_answer import AnswerPart, ExecutedTool, Speaker, Text, Thought, TurnAnswer
from lango.server.errors import ApiError
from lango.server.json_body import tool_value_text

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

    def __init__(self, answer: TurnAnswer, model: str, *, include_usage: bool) -> None:
        """`include_usage`: a stream ends with the usage."""
        self.heartbeat: str | None = None
        self._answer = answer
        self._no_usage: dict[str, Any] = {"usage": None} if include_usage else {}
        """Part of every chunk but the last of a stream that ends with the usage."""
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{answer.turn.session.key}-{answer.turn.turn}",
            "created": int(time.time()),
            "model": model,
        }

    def body(self, parts: Sequence[AnswerPart], done: events.TurnDone) -> dict[str, Any]:
        """Return the whole completion."""
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

    def begin(self) -> str:
        """Return the first chunk."""
        return self._chunk({"role": "assistant", "content": ""})

    def add(self, part: AnswerPart) -> Iterator[str]:
        """Yield the chunk of the next part."""
        yield self._chunk(_delta(part))

    def encode_error(self, error: ApiError) -> str:
        """Encode an error as a frame of the stream."""
        return _frame(openai_error_body(error))

    def end(self, done: events.TurnDone) -> Iterator[str]:
        """Yield the calls that the client is to run, and the last chunks."""
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
