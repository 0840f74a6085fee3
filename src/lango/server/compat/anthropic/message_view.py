"""Turn the events of a turn into a message of Anthropic's API, streamed or whole."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import to_builtins
from pydantic import BaseModel

from lango import events
from lango.server.compat.anthropic.message_request import NO_THREADS
from lango.server.compat.turn_answer import AnswerPart, Speaker, Text, Thought, TurnAnswer
from lango.server.errors import ApiError, current_request_id
from lango.server.json_body import tool_value_text

_ERROR_TYPE_BY_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_STOP_REASONS = {"max_tokens": "max_tokens", "length": "max_tokens", "safety": "refusal", "content_filter": "refusal"}


class AnthropicError(BaseModel):
    """The type of an error, as Anthropic's SDKs read it, its message, and its name in this server's own API."""

    type: str
    message: str
    code: str


class AnthropicErrorBody(BaseModel):
    """The body of every error response of Anthropic's API."""

    type: str
    error: AnthropicError
    request_id: str


def anthropic_error_body(error: ApiError) -> dict[str, Any]:
    """Return the body of an error response of Anthropic's API."""
    kind = _ERROR_TYPE_BY_STATUS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    described: dict[str, Any] = {"type": kind, "message": str(error), "code": error.type}
    described |= {"details": {"error_code": NO_THREADS, "unsupported": ["thread"]}} if error.type == NO_THREADS else {}
    return {"type": "error", "error": described, "request_id": current_request_id.get()}


class MessageView:
    """The answer of one turn as a message."""

    def __init__(self, answer: TurnAnswer, model: str, *, shows_thoughts: bool) -> None:
        """Without `shows_thoughts`, the model's thoughts are left out: the client did not ask for them."""
        self.heartbeat: str | None = _frame({"type": "ping"})
        self._answer = answer
        self._shows_thoughts = shows_thoughts
        self._speakers: list[Speaker] = []
        self._blocks = _OpenBlocks()
        self._head: dict[str, Any] = {
            "id": f"msg_{answer.turn.session.key}_{answer.turn.turn}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def body(self, parts: Sequence[AnswerPart], done: events.TurnDone) -> dict[str, Any]:
        """Return the whole message."""
        content = [*_joined(self._pieces(parts)), *map(_call_block, self._answer.client_calls)]
        return self._head | {"content": content} | self._end(done)

    def begin(self) -> str:
        """Return the first event: the message without its content."""
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        return _frame({"type": "message_start", "message": message | {"usage": _usage(events.Usage())}})

    def add(self, part: AnswerPart) -> Iterator[str]:
        """Yield the events of the next part."""
        for kind, text in self._pieces([part]):
            yield from self._blocks.add(kind, text)

    def encode_error(self, error: ApiError) -> str:
        """Encode an error as the event that ends a stream."""
        return _frame(anthropic_error_body(error))

    def end(self, done: events.TurnDone) -> Iterator[str]:
        """Yield the calls that the client is to run, and the last events."""
        yield from self._blocks.close()
        yield from map(self._blocks.whole_call, self._answer.client_calls)
        end = self._end(done)
        yield _frame({"type": "message_delta", "usage": end.pop("usage"), "delta": end})
        yield _frame({"type": "message_stop"})

    def _pieces(self, parts: Iterable[AnswerPart]) -> Iterator[tuple[str, str]]:
        """Yield the type of the block and the text of each part that is shown."""
        for part in parts:
            match part:
                case Text(text=text):
                    yield "text", text
                case Thought(text=text) if self._shows_thoughts:
                    yield "thinking", text
                case Speaker():
                    self._speakers.append(part)
                case _:
                    pass

    def _end(self, done: events.TurnDone) -> dict[str, Any]:
        """Return why the message ended, its usage, and what the agent did itself, for which Anthropic has no field."""
        stop = None if self._answer.client_calls else done.stop_sequence or None
        reason = "stop_sequence" if stop else _STOP_REASONS.get(done.finish_reason, "end_turn")
        reason = "tool_use" if self._answer.client_calls else reason
        end: dict[str, Any] = {"stop_reason": reason, "stop_sequence": stop, "usage": _usage(done.usage)}
        end |= {"executed_tools": self._answer.executed} if self._answer.executed else {}
        return end | ({"speakers": [to_builtins(one) for one in self._speakers]} if self._speakers else {})


class _OpenBlocks:
    """Numbers the blocks of a stream, and closes each before the next one."""

    def __init__(self) -> None:
        self._count = 0
        self._open = ""

    def add(self, kind: str, text: str) -> Iterator[str]:
        """Yield the events of a piece of text."""
        if kind != self._open:
            yield from self.close()
            self._open = kind
            yield self._event("start", content_block=_text_block(kind, ""))
        yield self._event("delta", delta={"type": f"{kind}_delta", kind: text})

    def close(self) -> Iterator[str]:
        """Yield the end of the open block, if there is one."""
        if self._open:
            yield self._event("stop")
            self._count, self._open = self._count + 1, ""

    def whole_call(self, start: events.ToolStart) -> str:
        """Return the events of a call, whose arguments are known."""
        delta = {"type": "input_json_delta", "partial_json": tool_value_text(start.arguments)}
        begun = self._event("start", content_block=_call_block(start) | {"input": {}})
        ended = self._event("delta", delta=delta) + self._event("stop")
        self._count += 1
        return begun + ended

    def _event(self, kind: str, **fields: Any) -> str:
        return _frame({"type": f"content_block_{kind}", "index": self._count, **fields})


def _joined(pieces: Iterator[tuple[str, str]]) -> list[dict[str, Any]]:
    blocks = groupby(pieces, key=lambda piece: piece[0])
    return [_text_block(kind, "".join(text for _, text in same)) for kind, same in blocks]


def _text_block(kind: str, text: str) -> dict[str, Any]:
    """Return a block; that of thoughts is signed with nothing, since the server keeps them itself."""
    return {"type": kind, kind: text} | ({"signature": ""} if kind == "thinking" else {})


def _call_block(start: events.ToolStart) -> dict[str, Any]:
    return {"type": "tool_use", "id": start.call_id, "name": start.name, "input": dict(start.arguments)}


def _usage(used: events.Usage) -> dict[str, Any]:
    """Return the tokens; in Anthropic's API, those of the cache are no part of the input."""
    return {
        "input_tokens": max(used.input_tokens - used.cached_tokens - used.cache_write_tokens, 0),
        "cache_read_input_tokens": used.cached_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.thought_tokens},
    }


def _frame(data: Mapping[str, Any]) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"
