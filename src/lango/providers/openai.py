"""Encode requests for OpenAI's Chat Completions API and compatible servers, and convert their streams to deltas.

Compatible servers are Ollama, vLLM, LM Studio, OpenRouter and others. The wire format of the Responses API is in
`openai_responses`; `uses_responses_api` decides which of the two APIs a model gets.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack, cast

from typing_extensions import override

from lango.config.sections import OpenAIApi
from lango.errors import ProviderError
from lango.json_values import as_object
from lango.messages import Media, Message
from lango.providers.openai_responses import ResponsesReader
from lango.providers.openai_responses import encode as encode_responses
from lango.providers.protocol import (
    CallDelta,
    Delta,
    EmbeddingRequest,
    Embeddings,
    Finish,
    FinishReason,
    Request,
    TextDelta,
    ThoughtDelta,
    UsageDelta,
)
from lango.providers.sdk.error_translation import VendorRequest, translate_errors
from lango.providers.sdk.json_answers import with_json_instruction
from lango.providers.sdk.request_encoding import (
    IMAGE_TYPES,
    Json,
    arguments_text,
    base64_of,
    data_url,
    is_strict,
    media_text,
    output_text,
    prepare_messages,
    valid_tool_name,
)
from lango.providers.sdk.sdk_client import CommonOptions, SdkProvider, StreamReader, checked_embeddings

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

_REASONING_MODEL = re.compile(r"(o\d|gpt-(?:[5-9]|\d\d)|codex)(?!.*-chat)")
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "safety",
    "error": "error",
}
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def uses_responses_api(model: str) -> bool:
    """Whether a model of OpenAI is used through the Responses API.

    The reasoning models are (o1 and later, gpt-5 and later, codex; not their `-chat` variants): only this API returns
    reasoning that can be sent back. They reject `temperature`, `top_p` and `stop`; stop sequences are applied here.
    """
    return _REASONING_MODEL.match(model) is not None


# --- encoder


def encode(request: Request, *, compatible: bool = False) -> Json:
    """Return the body of a Chat Completions request; `compatible` selects the dialect of other vendors' servers."""
    body: Json = {
        "model": request.model,
        # the API rejects a JSON object that no message speaks of
        "messages": _messages(with_json_instruction(request) if request.json_object else request),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        if request.tool_choice in ("required", "none"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    if request.max_tokens is not None:
        body["max_tokens" if compatible else "max_completion_tokens"] = request.max_tokens
    if compatible or not uses_responses_api(request.model):
        body |= _sampling(request)
    elif request.thinking and request.thinking.level:
        body["reasoning_effort"] = request.thinking.level
    if request.response_schema is not None:
        schema = dict(request.response_schema)
        form = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif request.json_object:
        body["response_format"] = {"type": "json_object"}
    return body


def _sampling(request: Request) -> Json:
    values = {"temperature": request.temperature, "top_p": request.top_p, "stop": list(request.stop) or None}
    return {name: value for name, value in values.items() if value is not None}


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> Json:
    schema: Json = {"type": "object", "properties": {}, **parameters}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _messages(request: Request) -> list[Json]:
    system, history = prepare_messages(request, "")  # the API has no signatures
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    for message in history:
        match message.role:
            case "assistant":
                messages += _assistant(message)
            case "tool":
                messages += _results(message)
            case _:
                messages += _user(message)
    return messages


def _user(message: Message) -> list[Json]:
    if not message.media:
        return [{"role": "user", "content": message.content}] if message.content else []
    parts: list[Json] = [{"type": "text", "text": message.content}] if message.content else []
    return [{"role": "user", "content": parts + [_media(media) for media in message.media]}]


def _assistant(message: Message) -> list[Json]:
    texts = [message.content, *(media_text(media) for media in message.media)]
    content = "\n".join(text for text in texts if text)
    if not message.tool_calls:
        return [{"role": "assistant", "content": content}] if content else []
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": valid_tool_name(call.name), "arguments": arguments_text(call)},
        }
        for call in message.tool_calls
    ]
    return [{"role": "assistant", "content": content or None, "tool_calls": calls}]


def _results(message: Message) -> list[Json]:
    results: list[Json] = [
        {"role": "tool", "tool_call_id": result.id, "content": output_text(result)} for result in message.tool_calls
    ]
    # a tool message holds text only, so an image that a tool made is sent as the user's, after all results
    return results + _user(Message("user", media=message.media))


def _media(media: Media) -> Json:
    if media.mime_type in IMAGE_TYPES and (media.data or media.uri):
        return {"type": "image_url", "image_url": {"url": data_url(media)}}
    if media.data and media.mime_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": base64_of(media), "format": _AUDIO[media.mime_type]}}
    if media.data and media.mime_type == "application/pdf":
        return {"type": "file", "file": {"filename": media.name or "file.pdf", "file_data": data_url(media)}}
    return {"type": "text", "text": media_text(media)}


# --- stream reader


class ChatReader:
    """Converts the chunks of one answer to deltas; `Finish` waits for the usage, which follows the finish reason."""

    def __init__(self, exchange: VendorRequest) -> None:
        self._exchange = exchange
        self._calls = _CallNumbers()
        self._finish = self._model = self._stop_sequence = ""
        self._refused = False

    def deltas(self, chunk: "ChatCompletionChunk") -> list[Delta]:
        """Return the deltas of a chunk."""
        self._model = chunk.model or self._model
        deltas: list[Delta] = [_usage(chunk.usage)] if chunk.usage else []
        for choice in chunk.choices or ():
            self._finish = choice.finish_reason or self._finish
            stop: Any = (choice.model_extra or {}).get(
                "stop_reason"
            )  # not OpenAI's: vLLM names it, or a token's number
            self._stop_sequence = stop if isinstance(stop, str) else self._stop_sequence
            if choice.delta is not None:  # pyright: ignore[reportUnnecessaryComparison]  # some servers leave it out
                deltas += self._choice(choice.delta)
        return deltas

    def end(self) -> list[Delta]:
        """Return the last delta."""
        if not self._finish:
            raise self._exchange.protocol_error("it ended without a finish reason")
        reason = "safety" if self._refused else _FINISH.get(self._finish, "stop")
        if reason == "stop" and self._calls.count:
            reason = "tool_calls"  # some servers send stop
        detail = "refusal" if self._refused else self._finish
        return [Finish(reason, detail, model=self._model, stop_sequence=self._stop_sequence)]

    def _choice(self, delta: "ChoiceDelta") -> list[Delta]:
        deltas: list[Delta] = []
        if thought := _thought(delta):
            deltas.append(ThoughtDelta(thought))
        if delta.content:
            deltas.append(TextDelta(delta.content))
        if delta.refusal:
            self._refused = True
            deltas.append(TextDelta(delta.refusal))
        return deltas + [self._calls.delta(piece) for piece in delta.tool_calls or ()]


class _CallNumbers:
    """Numbers the calls of one answer. Some servers give every parallel call the index 0, or no index."""

    def __init__(self) -> None:
        self.count = 0
        self._at: dict[int, tuple[int, str]] = {}

    def delta(self, piece: "ChoiceDeltaToolCall") -> CallDelta:
        call_id, given_index = piece.id or "", piece.index or 0
        ours, known_id = self._at.get(given_index, (-1, ""))
        if ours < 0 or (call_id and known_id and call_id != known_id):
            ours, known_id = self.count, call_id
            self.count += 1
        self._at[given_index] = (ours, call_id or known_id)
        function = piece.function
        if function is None:
            return CallDelta(ours, call_id)
        return CallDelta(ours, call_id, function.name or "", function.arguments or "")


def _thought(delta: "ChoiceDelta") -> str:
    extra = delta.model_extra or {}  # not OpenAI's: DeepSeek, vLLM, Ollama and OpenRouter send thoughts, too
    thought = extra.get("reasoning_content") or extra.get("reasoning")
    return thought if isinstance(thought, str) else ""


def _usage(usage: "CompletionUsage") -> UsageDelta:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return UsageDelta(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=prompt.cached_tokens if prompt else None,
        cache_write_tokens=getattr(prompt, "cache_write_tokens", None),
        thought_tokens=completion.reasoning_tokens if completion else None,
    )


# --- provider


class OpenAIProvider(SdkProvider["AsyncOpenAI"]):
    """Models of OpenAI, or of a compatible server at `base_url`."""

    vendor = "openai"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        api: OpenAIApi = "auto",
        compatible: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        """`compatible` selects the dialect of other servers."""
        super().__init__(api_key, **common)
        self._api = api
        self._compatible = compatible

    @staticmethod
    @override
    def translate(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
        import openai

        if error := exchange.generated_sdk_error(openai, exc):
            return error
        match exc:
            case openai.APIStatusError():
                kind, headers = str(exc.code or ""), exc.response.headers
                return exchange.status_error(exc.status_code, _error_message(exc), kind=kind, headers=headers)
            case openai.APIError():  # an error object inside a stream
                code = str(exc.code or "")  # a number from some servers
                kind = code or exc.type or "server_error"
                return exchange.status_error(int(code) if code.isdigit() else None, exc.message, kind=kind)
            case openai.OpenAIError():
                return exchange.protocol_error(f"{type(exc).__name__}: {exc}")
            case _:
                return None

    @override
    def _stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        deltas = super()._stream(request)
        stops = [stop for stop in request.stop if stop]
        sent = not self._uses_responses(request) and (self._compatible or not uses_responses_api(request.model))
        return stop_at_sequences(deltas, stops) if stops and not sent else deltas

    @override
    def _reader(self, request: Request, exchange: VendorRequest) -> StreamReader:
        return ResponsesReader(exchange) if self._uses_responses(request) else ChatReader(exchange)

    @override
    async def _send(self, request: Request, exchange: VendorRequest) -> Any:
        client = await self._clients.get()
        if self._uses_responses(request):
            create, body, messages = client.responses.create, encode_responses(request, provider=self.name), "input"
        else:
            create, messages = client.chat.completions.create, "messages"
            body = encode(request, compatible=self._compatible)
        # extra_body skips the SDK's conversion of every message, which takes longer than the rest of the call, and
        # allows fields that this release of the SDK does not know
        required: Json = {"model": request.model, messages: [], "stream": True}
        chunks = await cast("Any", create)(**required, extra_body=body | self._options)
        exchange.streaming = True
        return chunks

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return the vectors of texts or tokens."""
        exchange = VendorRequest(self.name, request.model, self._api_key)
        body: Json = {"model": request.model, "input": request.inputs, "encoding_format": "float"}
        with translate_errors(self.translate, exchange):
            client = await self._clients.get()
            chosen = {} if request.dimensions is None else {"dimensions": request.dimensions}
            made = await cast("Any", client.embeddings.create)(**body, **chosen)
            exchange.streaming = True
            vectors = [one.embedding for one in sorted(made.data, key=lambda one: one.index)]
            return checked_embeddings(request, exchange, vectors, made.usage.prompt_tokens if made.usage else None)

    def _uses_responses(self, request: Request) -> bool:
        if self._api == "auto":
            return not self._compatible and uses_responses_api(request.model)
        return self._api == "responses"

    @override
    def _make_client(self) -> "AsyncOpenAI":
        return self._generated_client("openai", "AsyncOpenAI")


def _error_message(exc: "APIStatusError") -> str:
    message = as_object(exc.body).get("message")
    return message if isinstance(message, str) else exc.message


# --- stop sequences


async def stop_at_sequences(deltas: AsyncGenerator[Delta, None], stops: Sequence[str]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas before the first stop sequence, then `Finish`, and close the stream, for an API that has none.

    Text that may be the beginning of a stop sequence is held back until more text decides.
    """
    held = ""
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                held += delta.text
                found = min(((at, stop) for stop in stops if (at := held.find(stop)) >= 0), default=None)
                ready = found[0] if found else len(held) - _partial_match_length(held, stops)
                if ready:
                    yield TextDelta(held[:ready])
                if found:
                    yield Finish("stop", "stop_sequence", stop_sequence=found[1])
                    return
                held = held[ready:]
                continue
            if held and not isinstance(delta, UsageDelta):
                yield TextDelta(held)
                held = ""
            yield delta


def _partial_match_length(text: str, stops: Sequence[str]) -> int:
    """Count the characters at the end of the text that could begin a stop sequence."""
    longest = max(len(stop) for stop in stops) - 1
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stops)), 0)
