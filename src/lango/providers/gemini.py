"""Encode requests for Google's Gemini API, and convert its stream to deltas.

Gemini 3 signs the first function call of each step and checks, within the current turn, that the signature comes back
in its place. For a call that another model made, a placeholder is sent instead.
"""

import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from lango.errors import ProviderError, ProviderRejected
from lango.messages import Media, Message, Signature
from lango.providers.call_log import note_request, note_response
from lango.providers.protocol import (
    CallDelta,
    Delta,
    EmbeddingRequest,
    Embeddings,
    Finish,
    FinishReason,
    Request,
    TextDelta,
    Thinking,
    ThoughtDelta,
    ToolSpec,
    UsageDelta,
)
from lango.providers.sdk.error_translation import VendorRequest, translate_errors
from lango.providers.sdk.request_encoding import (
    HISTORY_OPENING,
    Json,
    media_text,
    prepare_messages,
    to_json,
    valid_tool_name,
)
from lango.providers.sdk.sdk_client import SdkProvider, checked_embeddings, load_sdk

if TYPE_CHECKING:
    import httpx
    from google.genai import Client
    from google.genai.types import Candidate, GenerateContentResponse, GenerateContentResponseUsageMetadata, Part

PLACEHOLDER_SIGNATURE = b"skip_thought_signature_validator"
"""Google's placeholder for a call without a signature."""

_SUPPORTED_MEDIA = re.compile(r"image/(png|jpeg|webp|heic|heif)|(audio|video)/.+|application/pdf")
_BEFORE_3 = re.compile(r"(models/)?gemini-[12]\b")
_REFUSED_NAME = re.compile(r"(invalid )?model (is required|parameter)\b")
"""The SDK's message for a model name that does not fit into a URL."""
_FINISH: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "safety",
    "RECITATION": "safety",
    "LANGUAGE": "safety",
    "BLOCKLIST": "safety",
    "PROHIBITED_CONTENT": "safety",
    "SPII": "safety",
    "IMAGE_SAFETY": "safety",
    "IMAGE_PROHIBITED_CONTENT": "safety",
    "IMAGE_RECITATION": "safety",
}
_MODES = {"required": "ANY", "none": "NONE"}

# --- encoder


def encode(request: Request, *, provider: str = "gemini", options: Mapping[str, Any] | None = None) -> Json:
    """Return the arguments of `generate_content_stream`; `options` are added to its config."""
    system, history = prepare_messages(request, provider)
    values: Json = {
        "system_instruction": system or None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
        "stop_sequences": list(request.stop) or None,
        "automatic_function_calling": {"disable": True},
    }
    if request.tools:
        values["tools"] = [{"function_declarations": [_declaration(tool) for tool in request.tools]}]
        if request.tool_choice != "auto":
            values["tool_config"] = {"function_calling_config": _calling(request.tool_choice)}
    if request.response_schema is not None:
        values |= {"response_mime_type": "application/json", "response_json_schema": dict(request.response_schema)}
    elif request.json_object:
        values["response_mime_type"] = "application/json"
    if request.thinking is not None:
        values["thinking_config"] = _thinking(request.thinking)
    config = {name: value for name, value in values.items() if value is not None} | dict(options or {})
    return {"model": request.model, "contents": _contents(history, request.model), "config": config}


def checks_signatures(model: str) -> bool:
    """Whether a model checks signatures: Gemini 3 and later do."""
    return not _BEFORE_3.match(model)


def _calling(choice: str) -> Json:
    return {"mode": _MODES[choice]} if choice in _MODES else {"mode": "ANY", "allowed_function_names": [choice]}


def _thinking(thinking: Thinking) -> Json:
    values = {
        "thinking_level": thinking.level and thinking.level.upper(),
        "thinking_budget": thinking.budget_tokens,
        "include_thoughts": thinking.shown,
    }
    return {name: value for name, value in values.items() if value is not None}


def _declaration(tool: ToolSpec) -> Json:
    declaration: Json = {"name": tool.name, "description": tool.description}
    if tool.parameters.get("properties"):  # the API rejects an object without properties
        declaration["parameters_json_schema"] = dict(tool.parameters)
    return declaration


def _contents(history: list[Message], model: str) -> list[Json]:
    contents: list[Json] = []
    for message in history:
        for content in _content(message):
            if contents and _kind(contents[-1]) == _kind(content):
                contents[-1]["parts"] += content["parts"]
            else:  # results and user messages stay separate
                contents.append(content)
    if contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": HISTORY_OPENING}]})
    if checks_signatures(model):
        _sign_current_turn(contents)
    return contents


def _content(message: Message) -> list[Json]:
    media = [_media(item) for item in message.media]
    match message.role:
        case "assistant":
            text = [_signed({"text": message.content}, message.signature)] if message.content else []
            return [{"role": "model", "parts": text + media + _calls(message)}]
        case "tool":
            results = [
                {
                    "function_response": {
                        "id": item.id,
                        "name": valid_tool_name(item.name),
                        "response": dict(item.output or {}),
                    }
                }
                for item in message.tool_calls
            ]
            return [{"role": "user", "parts": results}] + ([{"role": "user", "parts": media}] if media else [])
        case _:
            return [{"role": "user", "parts": ([{"text": message.content}] if message.content else []) + media}]


def _kind(content: Json) -> str:
    return "results" if "function_response" in content["parts"][0] else content["role"]


def _calls(message: Message) -> list[Json]:
    parts: list[Json] = [
        {"function_call": {"id": call.id, "name": valid_tool_name(call.name), "args": dict(call.input or {})}}
        for call in message.tool_calls
    ]
    # only the first of parallel calls is signed
    return [_signed(part, message.tool_calls[0].signature) for part in parts[:1]] + parts[1:]


def _signed(part: Json, signature: Signature | None) -> Json:
    return part | {"thought_signature": signature.value} if signature and signature.value else part


def _sign_current_turn(contents: list[Json]) -> None:
    last_user = max(at for at, content in enumerate(contents) if _kind(content) == "user")
    for content in contents[last_user:]:
        first_call = next((part for part in content["parts"] if "function_call" in part), None)
        if first_call is not None:
            first_call.setdefault("thought_signature", PLACEHOLDER_SIGNATURE)


def _media(media: Media) -> Json:
    if media.data and not _SUPPORTED_MEDIA.fullmatch(media.mime_type):
        return {"text": media_text(media)}
    if media.data:
        return {"inline_data": {"mime_type": media.mime_type, "data": media.data}}
    return {"file_data": {"mime_type": media.mime_type, "file_uri": media.uri}}


# --- stream reader


class GeminiReader:
    """Converts the chunks of one answer to deltas; one of them must have a finish reason."""

    def __init__(self, exchange: VendorRequest) -> None:
        self._exchange = exchange
        self._calls = 0
        self._finish = self._detail = self._model = ""
        self._signature: Signature | None = None

    def deltas(self, chunk: "GenerateContentResponse") -> list[Delta]:
        """Return the deltas of a chunk."""
        self._exchange.streaming = True
        self._model = chunk.model_version or self._model
        deltas: list[Delta] = []
        feedback = chunk.prompt_feedback
        if feedback and feedback.block_reason:
            self._finish = "SAFETY"
            self._detail = feedback.block_reason_message or feedback.block_reason.value
        for candidate in chunk.candidates or ():
            deltas += self._candidate(candidate)
        if chunk.usage_metadata:
            deltas.append(_usage(chunk.usage_metadata))
        return deltas

    def end(self) -> list[Delta]:
        """Return the last delta."""
        if not self._finish:
            raise self._exchange.protocol_error("it ended without a finish reason")
        reason = _FINISH.get(self._finish, "error")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        detail = f"{self._finish}: {self._detail}" if self._detail else self._finish
        return [Finish(reason, detail, self._signature, self._model)]

    def _candidate(self, candidate: "Candidate") -> list[Delta]:
        if candidate.finish_reason:
            self._finish = candidate.finish_reason.value
            self._detail = candidate.finish_message or ""
        parts = (candidate.content.parts if candidate.content else None) or ()
        return [delta for part in parts for delta in self._part(part)]

    def _part(self, part: "Part") -> list[Delta]:
        signature = self._exchange.signature(part.thought_signature) if part.thought_signature else None
        if part.function_call is not None:
            call = part.function_call
            self._calls += 1
            arguments = to_json(call.args or {})
            return [CallDelta(self._calls - 1, call.id or "", call.name or "", arguments, signature)]
        if part.thought:
            return [ThoughtDelta(part.text or "", signature)]
        self._signature = signature or self._signature
        return [TextDelta(part.text)] if part.text else []


def _usage(usage: "GenerateContentResponseUsageMetadata") -> UsageDelta:
    output, thoughts = usage.candidates_token_count, usage.thoughts_token_count
    # Gemini counts thoughts apart from the answer; other vendors count them as part of it
    total = None if output is None and thoughts is None else (output or 0) + (thoughts or 0)
    return UsageDelta(usage.prompt_token_count, total, usage.cached_content_token_count, thoughts)


# --- provider


class GeminiProvider(SdkProvider["tuple[Client, httpx.AsyncClient]"]):
    """Google's models, with an API key. Options go into the request's config, such as `{"thinking_config": {...}}`."""

    vendor = "gemini"

    @staticmethod
    @override
    def constrains_answer(request: Request) -> bool:
        """Whether the API constrains the answer, if it must be JSON: before Gemini 3, not if there are tools."""
        needs_json = request.response_schema is not None or request.json_object
        return not needs_json or checks_signatures(request.model) or not request.tools

    @staticmethod
    @override
    def translate(exc: Exception, exchange: VendorRequest) -> ProviderError | None:
        from google.genai import errors

        match exc:
            case errors.APIError():
                error = cast("Any", exc)  # its fields are typed by packages that may not be installed
                return exchange.status_error(
                    error.code if isinstance(error.code, int) else None,
                    error.message or str(exc),
                    kind=error.status or "",
                    headers=getattr(error.response, "headers", None),
                    retry_after_s=_retry_delay(error.details),
                )
            case errors.UnknownApiResponseError():
                return exchange.protocol_error("a chunk is not JSON")
            case errors.ContinuationInterruptedError():
                return exchange.protocol_error("it was interrupted")
            case (
                errors.UnknownFunctionCallArgumentError()
                | errors.UnsupportedFunctionError()
                | errors.FunctionInvocationError()
            ):
                # of the SDK's automatic function calling, which is off
                return exchange.protocol_error(f"{type(exc).__name__}: {exc}")
            case ValueError() if not exchange.streaming and _REFUSED_NAME.match(str(exc)):
                return exchange.unknown_model(f"The SDK rejects this name: {exc}")
            case _:
                return None

    @override
    def _reader(self, request: Request, exchange: VendorRequest) -> GeminiReader:
        return GeminiReader(exchange)

    @override
    async def _send(self, request: Request, exchange: VendorRequest) -> Any:
        client, _ = await self._clients.get()
        arguments = encode(request, provider=self.name, options=self._options)
        return aclosing(await cast("Any", client.aio.models).generate_content_stream(**arguments))

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return the vectors of texts. The API does not count their tokens."""
        exchange = VendorRequest(self.name, request.model, self._api_key)
        if not all(isinstance(one, str) for one in request.inputs):
            raise ProviderRejected(f"{self.name} embeds texts, not tokens: send texts", provider=self.name)
        config = {} if request.dimensions is None else {"output_dimensionality": request.dimensions}
        with translate_errors(self.translate, exchange):
            client, _ = await self._clients.get()
            models = cast("Any", client.aio.models)
            made = await models.embed_content(model=request.model, contents=[*request.inputs], config=config)
            exchange.streaming = True
            return checked_embeddings(request, exchange, [one.values for one in made.embeddings])

    @override
    def _make_client(self) -> "tuple[Client, httpx.AsyncClient]":
        genai = load_sdk("google.genai", "google-genai")
        connect_s = self._timeouts.connect_s

        async def set_connect_timeout(request: "httpx.Request") -> None:
            request.extensions["timeout"]["connect"] = connect_s  # the SDK has one timeout for connecting and reading

        http = load_sdk("httpx", "httpx").AsyncClient(
            event_hooks={"request": [set_connect_timeout, note_request], "response": [note_response]}
        )
        options: Json = {"timeout": int(self._timeouts.idle_s * 1000), "httpx_async_client": http}
        if self._base_url:
            options["base_url"] = self._base_url
        return genai.Client(api_key=self._api_key or "none", vertexai=False, http_options=options), http

    @override
    async def _close_client(self, client: "tuple[Client, httpx.AsyncClient]") -> None:
        await client[1].aclose()


def _retry_delay(details: Any) -> float | None:
    """Return the seconds of `{"error": {"details": [{"retryDelay": "34s"}]}}`."""
    found = re.search(r"'retryDelay': '(\d+(?:\.\d+)?)s'", str(details))
    return float(found[1]) if found else None
