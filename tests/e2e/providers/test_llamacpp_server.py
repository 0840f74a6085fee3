"""The same providers against llama.cpp's own server and a real model: three wire formats of another project."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import pytest

from lango.errors import ProviderAuthError
from lango.messages import Message, ToolCall
from lango.providers import Delta, Finish, Request, TextDelta, ToolSpec, UsageDelta
from lango.providers.anthropic import AnthropicProvider
from lango.providers.local import SMOLLM2, pull
from lango.providers.openai import OpenAIProvider

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
}
WEATHER = ToolSpec("get_weather", "Current weather of a city", CITY)
KEY = "the-right-key"

SERVER = f"""
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.port = 2048, 1, 0
params.cpuparams.n_threads = 1
params.use_jinja, params.warmup, params.fit_params, params.verbosity = True, False, False, -1
params.api_keys = ["{KEY}"]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server in a process of its own: it ends when its input does."""
    command = [sys.executable, "-c", SERVER, str(pull(SMOLLM2))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


Wire = Literal["chat", "responses", "anthropic"]


def made(wire: Wire, url: str, key: str) -> Any:
    if wire == "anthropic":
        return AnthropicProvider(key, base_url=url)
    return OpenAIProvider(key, base_url=f"{url}/v1", api=wire, compatible=True)


every_wire = pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])


@pytest.fixture
async def provider(wire: Wire, url: str) -> AsyncIterator[Any]:
    one = made(wire, url, KEY)
    yield one
    await one.aclose()


async def collect(provider: Any, *messages: Message, **settings: Any) -> list[Delta]:
    request = Request("smollm2", messages, max_tokens=16, temperature=0.0, **settings)
    return [delta async for delta in provider.stream(request)]


@every_wire
async def test_m9_a_real_model_streams(provider: Any) -> None:
    deltas = await collect(provider, Message("user", "Tell me a story."), system="You are a poet.")
    assert sum(isinstance(delta, TextDelta) for delta in deltas) > 5
    assert any(isinstance(delta, UsageDelta) and delta.output_tokens for delta in deltas)
    assert isinstance(deltas[-1], Finish)


@every_wire
async def test_m8_a_real_server_takes_a_broken_history(provider: Any) -> None:
    history = (
        Message("tool", tool_calls=(ToolCall("gone", "x", output={"a": 1}),)),
        Message("user", " "),
        Message("user", "Weather in Paris and Rome?"),
        Message("assistant", "", (ToolCall("", "get_weather", {"city": "Paris"}), ToolCall("", "get_weather", {}))),
        Message("tool", "", (ToolCall("", "get_weather", output={"sky": "clear"}),)),
        Message("assistant", "It is"),
    )
    assert isinstance((await collect(provider, *history, tools=(WEATHER,)))[-1], Finish)


@pytest.mark.parametrize("wire", ["chat"])
async def test_a_real_model_keeps_to_a_schema(provider: Any) -> None:
    request = Request(
        "smollm2", (Message("user", "Name a city."),), response_schema=CITY, max_tokens=80, temperature=0.0
    )
    text = "".join([delta.text async for delta in provider.stream(request) if isinstance(delta, TextDelta)])
    assert set(json.loads(text)) == {"city"}


@every_wire
async def test_a_real_server_refuses_a_wrong_key(wire: Wire, url: str) -> None:
    provider = made(wire, url, "a-wrong-key")
    with pytest.raises(ProviderAuthError, match="401") as caught:
        await collect(provider, Message("user", "hi"))
    assert "a-wrong-key" not in str(caught.value)
    await provider.aclose()


@every_wire
async def test_a_stream_that_is_left_leaves_the_server_free(provider: Any) -> None:
    stream = provider.stream(Request("smollm2", (Message("user", "Count to a million."),), max_tokens=1500))
    async for delta in stream:
        if isinstance(delta, TextDelta):
            break
    await stream.aclose()
    assert isinstance((await collect(provider, Message("user", "hi")))[-1], Finish)  # it has one slot
