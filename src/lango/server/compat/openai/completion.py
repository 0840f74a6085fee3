"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import re
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from lango import events
from lango.errors import LangoError
from lango.event_text import FinalText, LastText, remove_withdrawn
from lango.server.compat.client_view import pause_note
from lango.server.context import AgentUser
from lango.server.errors import ApiError, to_api_error, turn_api_error
from lango.server.json_body import JsonResponse, tool_value_text
from lango.server.streaming.turn_streams import TurnRef
from lango.text_order import TextOrder

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

    def __init__(
        self, user: AgentUser, turn: TurnRef, client_tools: Collection[str], *, only_json: bool = False
    ) -> None:
        """`only_json`: the answer must be JSON, so text that the model writes before it calls a tool is left out."""
        self._turns = user.turns
        self._turn = turn
        self._tool_calls = _ToolCalls(client_tools)
        # text before a tool call cannot be taken back from a stream
        holds_text = only_json and user.runtime.may_call_tools
        self._final_text = LastText() if holds_text else FinalText()
        self._order = TextOrder()
        self._speakers = Speakers(user.runtime.root_name)
        self._no_usage: dict[str, Any] = {}
        """Part of every chunk but the last of a stream that ends with the usage."""
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{turn.session.key}-{turn.turn}",
            "created": int(time.time()),
            "model": user.runtime.app_name,
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
        async with aclosing(self._turns.follow_answer(self._turn)) as items:
            followed = [item.event async for item in items if item]
        done = followed[-1]
        if isinstance(done, events.TurnError):
            raise turn_api_error(done)
        assert isinstance(done, events.TurnDone), "the events of a turn end with a final one"
        deltas = [delta for event in remove_withdrawn(followed) for delta in self._ordered_deltas(event)]
        text = "".join(delta.get("content", "") for delta in deltas)
        thoughts = "".join(delta.get("reasoning_content", "") for delta in deltas)
        calls, executed, speakers = self._tool_calls.client_calls, self._tool_calls.executed, self._speakers.named
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
        async with aclosing(self._turns.follow_answer(self._turn)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                for frame in self._frames(item.event):
                    yield frame

    def _frames(self, event: events.TurnEvent) -> Iterator[str]:
        for delta in self._ordered_deltas(event):
            yield self._chunk(delta)
        if isinstance(event, events.Queued):
            yield f": queued, place {event.place}\n\n"
        elif isinstance(event, events.TurnError) and event.fatal:
            yield encode_error(turn_api_error(event))
        elif isinstance(event, events.TurnDone):
            yield from self._last_frames(event)

    def _ordered_deltas(self, event: events.TurnEvent) -> Iterator[dict[str, Any]]:
        for ready in self._order.add(event):
            yield from self._deltas(ready)

    def _deltas(self, event: events.TurnEvent) -> Iterator[dict[str, Any]]:
        """Yield what an event adds to the message, except the calls that the client is to run."""
        if isinstance(event, events.TextDelta) and (named := self._speakers.add(event)):
            yield {"speakers": named}
        if text := self._final_text.add(event):
            yield {"content": text}
        match event:
            case events.WaitOpened():
                if note := pause_note(event.wait):
                    yield {"content": note}
            case events.ToolStart() | events.ToolEnd():
                if executed := self._tool_calls.add(event):
                    yield {"executed_tools": executed}
            case events.ThoughtDelta():
                yield {"reasoning_content": event.text}
            case _:
                pass

    def _last_frames(self, done: events.TurnDone) -> Iterator[str]:
        if calls := self._tool_calls.client_calls:
            yield self._chunk({"tool_calls": [{"index": index} | call for index, call in enumerate(calls)]})
        yield self._chunk({}, self._finish_reason(done))
        if self._no_usage:
            kind = {"object": "chat.completion.chunk"}
            yield _frame(self._head | kind | {"choices": [], "usage": _usage(done.usage)})
        yield "data: [DONE]\n\n"

    def _finish_reason(self, done: events.TurnDone) -> str:
        return "tool_calls" if self._tool_calls.client_calls else finish_reason(done)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _frame(self._head | {"object": "chat.completion.chunk", "choices": [choice], **self._no_usage})


def finish_reason(done: events.TurnDone) -> str:
    """Return why the model ended its answer, in OpenAI's words."""
    return _FINISH_REASONS.get(done.finish_reason, "stop")


class Speakers:
    """The agents that speak in an answer, each time that another one begins; none while only the root agent speaks."""

    def __init__(self, root: str) -> None:
        self._last = root
        self.named: list[dict[str, Any]] = []

    def add(self, event: events.TextDelta) -> list[dict[str, Any]]:
        """Add a piece of text; return its change to `named`, which a client merges by `index`."""
        if not event.author or event.author == self._last:
            return []
        self._last = event.author
        self.named.append({"index": len(self.named), "name": event.author})
        return self.named[-1:]


class _ToolCalls:
    """The tool calls of a turn: those of the agent's own tools, and those that the client is to run."""

    def __init__(self, client_tools: Collection[str]) -> None:
        self.executed: list[dict[str, Any]] = []
        self._client_tools = client_tools
        self._index_by_call: dict[str, int] = {}
        self._client_calls: dict[str, events.ToolStart] = {}

    @property
    def client_calls(self) -> list[dict[str, Any]]:
        """The calls that the client is to run, complete once the turn ended: an invalid one got its result here."""
        return [_client_call(start) for start in self._client_calls.values()]

    def add(self, event: events.ToolStart | events.ToolEnd) -> list[dict[str, Any]]:
        """Add an event; return its changes to `executed`."""
        call_id = event.call_id
        if isinstance(event, events.ToolStart) and event.name in self._client_tools:
            self._client_calls[call_id] = event
            return []
        index = self._index_by_call.setdefault(call_id, len(self._index_by_call))
        piece: dict[str, Any] = {"index": index}
        if index == len(self.executed):  # an approved call continues without a start
            piece |= {"id": call_id, "type": "function", "name": event.name}
            self.executed.append({})
        if start := event if isinstance(event, events.ToolStart) else self._client_calls.pop(call_id, None):
            piece["arguments"] = tool_value_text(start.arguments)
        if isinstance(event, events.ToolEnd):
            piece |= {"output": tool_value_text(event.result), "ok": event.ok}
        self.executed[index] |= piece
        return [piece]


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
