"""Encode requests for the engine in OpenAI's format, worded for small models, and decode its chunks."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import ProviderError, ProviderProtocolError, ProviderRejected, ProviderUnavailable
from lango.messages import Media, Message, ToolCall
from lango.providers.local.known_models import PROVIDER, LocalModel
from lango.providers.protocol import (
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    Request,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    UsageDelta,
)

ChatTurn = dict[str, Any]

_CONTROL_TOKEN = re.compile(r"<\|(?=\w+\|>)")
_DEFAULT_SYSTEM = "You are a helpful assistant."
# the default of `agent.instruction`, with the name of the agent that ADK adds
_DEFAULT_PROMPT = re.compile(rf'({re.escape(_DEFAULT_SYSTEM)})?(\s*You are an agent\. Your internal name is "\w+"\.)?')

_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


def encode(request: Request, model: LocalModel) -> dict[str, Any]:
    """Return the body of a chat completion for a request."""
    if model.system and _DEFAULT_PROMPT.fullmatch(request.system):
        request = replace(request, system=model.system)
    body: dict[str, Any] = {
        "messages": encode_messages(request, as_text=model.calls == "pick"),
        "temperature": model.temperature if request.temperature is None else request.temperature,
        "max_tokens": request.max_tokens or model.answer_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
        "return_progress": True,  # chunks while the prompt is processed: only they allow cancelling it
    }
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.stop:
        body["stop"] = list(request.stop)
    if request.response_schema is not None:
        schema = dict(request.response_schema)
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    else:
        body |= model.sampling
    return body


def encode_messages(request: Request, *, as_text: bool) -> list[ChatTurn]:
    """Return the system message and the turns; `as_text` renders calls as text, for a model without tool support."""
    turns: list[ChatTurn] = [{"role": "system", "content": escape_control_tokens(request.system) or _DEFAULT_SYSTEM}]
    for message in request.messages:
        turn = _turn(message, as_text=as_text)
        if turn is None:
            continue
        if turn["role"] == turns[-1]["role"] == "user":
            turns[-1]["content"] += f"\n\n{turn['content']}"
        else:
            turns.append(turn)
    return turns


def encode_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool's declaration."""
    parameters: dict[str, Any] = json.loads(escape_control_tokens(json.dumps(dict(tool.parameters))))
    parameters = parameters or {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": escape_control_tokens(tool.description), "parameters": parameters}
    return {"type": "function", "function": function}


def escape_control_tokens(text: str) -> str:
    """Escape control tokens: the engine takes `<|im_end|>` in a message for the end of its turn."""
    return _CONTROL_TOKEN.sub("<| ", text)


def _turn(message: Message, *, as_text: bool) -> ChatTurn | None:
    match message.role:
        case "event":
            return None
        case "assistant":
            return _assistant(message, as_text=as_text)
        case "tool" if message.tool_calls:
            text = _results(message.tool_calls)
        case _:
            text = "\n".join(part for part in (message.content, *map(_media_note, message.media)) if part)
    return {"role": "user", "content": escape_control_tokens(text)} if text else None


def _assistant(message: Message, *, as_text: bool) -> ChatTurn | None:
    turn: ChatTurn = {"role": "assistant", "content": escape_control_tokens(message.content)}
    if as_text:
        turn["content"] = "\n".join([turn["content"], *map(_call_as_text, message.tool_calls)]).strip()
    elif message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    return turn if message.content or message.tool_calls else None


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = escape_control_tokens(_json(call.input))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _call_as_text(call: ToolCall) -> str:
    return escape_control_tokens(f"I call {call.name} with {_json(call.input)}.")


def _results(results: Iterable[ToolCall]) -> str:
    # as a user's turn: small models call again after a turn of role `tool`
    texts = [f"The function {result.name} returned this:\n{_json(result.output)}" for result in results]
    return "\n\n".join([*texts, "Use it to answer my request in plain words."])


def _json(value: Mapping[str, Any] | None) -> str:
    return json.dumps(dict(value or {}), ensure_ascii=False, default=str)


def _media_note(media: Media) -> str:
    return media.text or f"[{media.name or 'a file'} ({media.mime_type}) was attached; this model cannot read it]"


class TokenUsage(Struct):
    """Tokens of all completions for one request."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add the usage of a completion."""
        self.input_tokens += usage.get("prompt_tokens", 0)
        self.output_tokens += usage.get("completion_tokens", 0)
        details: Mapping[str, Any] = usage.get("prompt_tokens_details", {})
        self.cached_tokens += details.get("cached_tokens", 0)

    def delta(self) -> UsageDelta:
        """Return the counts as a delta."""
        return UsageDelta(self.input_tokens, self.output_tokens, self.cached_tokens)


async def decode(chunks: AsyncIterator[Mapping[str, Any]], used: TokenUsage, model: str) -> AsyncGenerator[Delta]:
    """Convert the chunks of one completion to deltas, `Finish` last; add its usage to `used`.

    While the request is queued or its prompt is processed, which may take minutes, `UsageDelta`s keep the reader from
    timing out.
    """
    finish: Finish | None = None
    async for chunk in chunks:
        if "error" in chunk:
            raise engine_error(chunk["error"])
        if not chunk or "prompt_progress" in chunk:
            progress: Mapping[str, Any] = chunk.get("prompt_progress", {})
            yield UsageDelta(input_tokens=progress.get("total"))
        for choice in chunk.get("choices") or ():
            for delta in _deltas(choice.get("delta") or {}):
                yield delta
            if reason := choice.get("finish_reason"):
                finish = Finish(_REASONS.get(reason, "error"), detail=reason, model=model)
        used.add(chunk.get("usage") or {})
    if finish is None:
        raise ProviderProtocolError("The local model stopped in the middle of its answer", provider=PROVIDER)
    yield finish


def engine_error(error: Mapping[str, Any]) -> ProviderError:
    """Translate an error of the engine."""
    status, message = int(error.get("code", 500)), str(error.get("message", "unknown"))
    kind: type[ProviderError] = ProviderProtocolError
    problem = f"The local model failed: {message}"
    if error.get("type") == "exceed_context_size_error":
        kind = ProviderRejected
        problem = (
            f"The request has {error.get('n_prompt_tokens')} tokens; the context of the local model holds "
            f"{error.get('n_ctx')}: lower history.max_message_token_budget, or use a larger model"
        )
    elif status == 503:
        kind, problem = ProviderUnavailable, f"The local model is not ready: {message}"
    elif 400 <= status < 500:
        kind, problem = ProviderRejected, f"The local model rejected the request: {message}"
    return kind(problem, provider=PROVIDER, status=status)


def _deltas(delta: Mapping[str, Any]) -> list[Delta]:
    found: list[Delta] = []
    if thought := delta.get("reasoning_content"):
        found.append(ThoughtDelta(thought))
    if text := delta.get("content"):
        found.append(TextDelta(text))
    for call in delta.get("tool_calls") or ():
        function: Mapping[str, Any] = call.get("function", {})
        id_, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        found.append(CallDelta(call.get("index", 0), id_ or "", name or "", arguments or ""))
    return found
