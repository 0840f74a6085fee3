"""What went over the wire to each vendor is kept through its SDK, unchanged and without the key."""

from typing import Any

import pytest
from msgspec import json

from lango.errors import ProviderError
from lango.messages import Message
from lango.providers import Request
from lango.providers.anthropic import AnthropicProvider
from lango.providers.call_log import CallLog, body_to_json_text, current_call_log
from lango.providers.gemini import GeminiProvider
from lango.providers.openai import OpenAIProvider
from lango.providers.wrappers.observed_provider import ObservedProvider, record_request
from tests.integration.providers.test_vendor_streams import claude, fails, served, streams

_CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],
}
_GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}


@pytest.mark.parametrize(
    ("kind", "answer", "events"),
    [
        (OpenAIProvider, streams(_CHUNK, done=True), [_CHUNK, "[DONE]"]),
        (AnthropicProvider, streams(*claude(), named=True), claude()),
        (GeminiProvider, streams(_GEMINI), [_GEMINI]),
    ],
)
async def test_the_request_and_the_events_of_the_response_are_kept(kind: Any, answer: Any, events: list[Any]) -> None:
    refusal = fails(429, {"error": {"message": "slow down, key", "type": "rate_limit_error", "code": 429}})
    log = CallLog(exchanges=[])
    current_call_log.set(log)
    async with served(kind, refusal, answer) as (provider, server):
        recorded = ObservedProvider(provider, record_request)
        request = Request("m", (Message("user", "hello there"),))
        with pytest.raises(ProviderError):
            async for _ in recorded.stream(request):
                pass
        async for _ in recorded.stream(request):
            pass
    assert log.exchanges
    refused, answered = log.exchanges
    assert (refused.status, answered.status, answered.error) == (429, 200, "")
    assert "ProviderRateLimited" in refused.error
    assert b"slow down" in refused.response
    assert refused.url.startswith(server.url)
    for exchange in (refused, answered):
        assert json.decode(exchange.request) == server.requests[0].body
        assert exchange.duration_s is not None
    kept = json.decode(body_to_json_text(bytes(answered.response), answered.response_type, 100_000))
    assert [event for event in kept if event != ""] == events


async def test_nothing_is_kept_without_the_setting() -> None:
    log = CallLog()
    current_call_log.set(log)
    async with served(OpenAIProvider, streams(_CHUNK, done=True)) as (provider, _):
        async for _ in ObservedProvider(provider, record_request).stream(Request("m", (Message("user", "hello"),))):
            pass
    assert log.exchanges is None
