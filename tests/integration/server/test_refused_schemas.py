"""A schema that the model's vendor refuses: its sentence reaches OpenAI's client as a bad request of its own kind."""

from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from lango import Settings, open_runtime
from lango.config import StoreSettings
from lango.providers import Provider
from lango.providers.anthropic import AnthropicProvider
from lango.providers.gemini import GeminiProvider
from lango.providers.openai import OpenAIProvider
from lango.server.app import create_app
from tests.support.servers.wire_server import Exchange, wire_server

REASON = "schema: 'allOf' is not permitted"
ADDRESS: dict[str, Any] = {"type": "object", "properties": {"street": {"type": "string"}}, "required": ["street"]}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "address", "schema": ADDRESS}}
_OPENAI = {"error": {"message": REASON, "type": "invalid_request_error", "param": "response_format", "code": None}}
_ANTHROPIC = {"type": "error", "error": {"type": "invalid_request_error", "message": REASON}}
_GEMINI = {"error": {"code": 400, "message": REASON, "status": "INVALID_ARGUMENT"}}


def _provider(vendor: str, url: str) -> Provider:
    match vendor:
        case "anthropic":
            return AnthropicProvider("key", base_url=url)
        case "gemini":
            return GeminiProvider("key", base_url=url)
        case "responses":
            return OpenAIProvider("key", base_url=url, api="responses")
        case _:
            return OpenAIProvider("key", base_url=url, api="chat")


def _client(app: Any) -> AsyncOpenAI:
    http: Any = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
    return AsyncOpenAI(base_url="http://127.0.0.1:8787/v1", api_key="none", http_client=http)


@pytest.mark.parametrize(
    ("vendor", "body", "path_to_schema"),
    [
        ("chat", _OPENAI, ("response_format", "json_schema", "schema")),
        ("responses", _OPENAI, ("text", "format", "schema")),
        ("anthropic", _ANTHROPIC, ("output_config", "format", "schema")),
        ("gemini", _GEMINI, ("generationConfig", "responseJsonSchema")),
    ],
)
async def test_the_vendors_sentence_is_a_bad_request_and_is_not_sent_again(
    sqlite_url: str, vendor: str, body: dict[str, Any], path_to_schema: tuple[str, ...]
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.status(400, body)

    settings = Settings(store=StoreSettings(url=sqlite_url))
    async with (
        wire_server(refuse) as wire,
        open_runtime(settings, provider=_provider(vendor, wire.url)) as runtime,
        _client(create_app(settings, runtime)) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="'allOf' is not permitted"):
            await client.chat.completions.create(
                model="lango", messages=[{"role": "user", "content": "Where?"}], response_format=FORMAT
            )
        with pytest.raises(openai.BadRequestError, match="'allOf' is not permitted"):
            await client.responses.create(
                model="lango",
                input="Where?",
                text={"format": {"type": "json_schema", "name": "address", "schema": ADDRESS}},
            )
    assert len(wire.requests) == 2
    for request in wire.requests:
        sent: Any = request.body
        for name in path_to_schema:
            sent = sent[name]
        assert sent["required"] == ["street"]
