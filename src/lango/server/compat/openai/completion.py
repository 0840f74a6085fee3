"""Turn the events of a turn into a chat completion, streamed or whole."""

import json
import re
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from typing import Any, assert_never

from pydantic import BaseModel
from starlette.responses import Response

from lango import events
from lango.errors import LangoError
from lango.server.compat.client_view import pause_note
from lango.server.context import ServerContext
from lango.server.errors import ApiError, to_api_error, turn_api_error
from lango.server.json_body import JsonResponse, tool_value_text
from lango.server.streaming.turn_streams import TurnRef
from lango.turns.streamed_text import FinalText, LastText, join_texts, without_withdrawn

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


_Visible = events.TextDelta | events.ApprovalNeeded | events.InputNeeded | events.CredentialNeeded


class Completion:
    """The answer of one turn as a completion."""

    def __init__(
        self, context: ServerContext, turn: TurnRef, client_tools: Collection[str], *, only_json: bool = False
    ) -> None:
        """`only_json`: the answer must be JSON, so text that the model writes before it calls a tool is left out."""
        self._context = context
        self._only_json = only_json
        self._turn = turn
        self._tool_calls = _ToolCalls(client_tools)
        # text before a tool call cannot be taken back from a stream
        holds_text = only_json and context.runtime.app.may_call_tools
        self._final_text = LastText() if holds_text else FinalText()
        self._session_id = turn.session.name.id
        self._root_name: str = context.runtime.app.agents()["name"]
        self._speakers = Speakers(self._root_name)
        self._no_usage: dict[str, Any] = {}
        """Part of every chunk but the last of a stream that ends with the usage."""
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{turn.session.key}-{turn.turn}",
            "created": int(time.time()),
            "model": context.runtime.app_name,
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
        visible: list[_Visible | events.ThoughtDelta] = []
        async with aclosing(self._context.turns.follow(self._turn)) as items:
            async for item in items:
                match item and item.event:
                    case (
                        events.TextDelta()
                        | events.ThoughtDelta()
                        | events.ApprovalNeeded()
                        | events.InputNeeded()
                        | events.CredentialNeeded() as event
                    ):
                        visible.append(event)
                    case events.TextWithdrawn() as event:
                        visible = without_withdrawn(visible, event)
                    case events.ToolStart() | events.ToolEnd() as event:
                        self._tool_calls.add(event)
                        if self._only_json and isinstance(event, events.ToolStart):
                            visible = [shown for shown in visible if not isinstance(shown, events.TextDelta)]
                    case events.TurnError(fatal=True) as event:
                        raise turn_api_error(event)
                    case events.TurnDone() as event:
                        return self._body(visible, event)
                    case (
                        None
                        | events.Accepted()
                        | events.Queued()
                        | events.TurnError()
                        | events.Resumed()
                        | events.NodeProgress()
                    ):
                        pass
                    case events.ToolProgress():
                        pass
                    case _ as unexpected:
                        assert_never(unexpected)
        raise AssertionError("the events of a turn ended without a final one")

    async def chunks(self, *, include_usage: bool) -> AsyncGenerator[str | None, None]:
        """Yield the answer as it is generated, as frames of a stream; None whenever no event came for a heartbeat."""
        self._no_usage = {"usage": None} if include_usage else {}
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(self._context.turns.follow(self._turn)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                for frame in self._frames(item.event):
                    yield frame

    def _frames(self, event: events.TurnEvent) -> Iterator[str]:
        yield from self._text_frames(event)
        match event:
            case events.Queued(place=place):
                yield f": queued, place {place}\n\n"
            case events.ApprovalNeeded() | events.InputNeeded() | events.CredentialNeeded():
                yield self._chunk({"content": self._visible_text(event)})
            case events.ToolStart() | events.ToolEnd():
                if executed := self._tool_calls.add(event):
                    yield self._chunk({"executed_tools": executed})
            case events.ThoughtDelta():
                yield self._chunk({"reasoning_content": event.text})
            case events.TurnError(fatal=True):
                yield encode_error(turn_api_error(event))
            case events.TurnDone():
                yield from self._last_frames(event)
            case (
                events.Accepted()
                | events.TextDelta()
                | events.TurnError()
                | events.Resumed()
                | events.TextWithdrawn()
                | events.NodeProgress()
            ):
                pass
            case events.ToolProgress():
                pass
            case _ as unexpected:
                assert_never(unexpected)

    def _text_frames(self, event: events.TurnEvent) -> Iterator[str]:
        if isinstance(event, events.TextDelta) and (named := self._speakers.add(event)):
            yield self._chunk({"speakers": named})
        if text := self._final_text.add(event):
            yield self._chunk({"content": text})

    def _last_frames(self, done: events.TurnDone) -> Iterator[str]:
        if calls := self._tool_calls.client_calls:
            yield self._chunk({"tool_calls": [{"index": index} | call for index, call in enumerate(calls)]})
        yield self._chunk({}, self._finish_reason(done))
        if self._no_usage:
            kind = {"object": "chat.completion.chunk"}
            yield _frame(self._head | kind | {"choices": [], "usage": _usage(done.usage)})
        yield "data: [DONE]\n\n"

    def _body(self, visible: list[_Visible | events.ThoughtDelta], done: events.TurnDone) -> dict[str, Any]:
        thoughts = [shown.text for shown in visible if isinstance(shown, events.ThoughtDelta)]
        speakers = Speakers(self._root_name)
        for shown in visible:
            if not isinstance(shown, events.ThoughtDelta):
                speakers.add(shown)
        text = join_texts((speaker, self._visible_text(shown)) for speaker, shown in speakers.spoken)
        calls, executed = self._tool_calls.client_calls, self._tool_calls.executed
        content = text or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
        message |= {"executed_tools": executed} if executed else {}
        message |= {"speakers": speakers.named} if speakers.named else {}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason(done)}
        return self._head | {"object": "chat.completion", "choices": [choice], "usage": _usage(done.usage)}

    def _visible_text(self, event: _Visible) -> str:
        return event.text if isinstance(event, events.TextDelta) else pause_note(event, self._session_id)

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
        self.spoken: list[tuple[str, _Visible]] = []
        """What was said, each with the agent that said it; a note on a pause belongs to the agent before it."""

    def add(self, event: _Visible) -> list[dict[str, Any]]:
        """Add what is shown; return its change to `named`, which a client merges by `index`."""
        author = event.author if isinstance(event, events.TextDelta) else ""
        changed = bool(author) and author != self._last
        self._last = author or self._last
        self.spoken.append((self._last, event))
        if changed:
            self.named.append({"index": len(self.named), "name": author})
        return self.named[-1:] if changed else []


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
