"""Every vendor's encoder and reader, through the vendor's own SDK, against a third-party server."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from lango.errors import ProviderError, ProviderUnavailable
from lango.messages import Message, ToolCall
from lango.providers import (
    CallDelta,
    Delta,
    Fallback,
    Finish,
    Request,
    ResilientProvider,
    Retries,
    TextDelta,
    ToolSpec,
    UsageDelta,
)
from lango.providers.anthropic import AnthropicProvider
from lango.providers.gemini import GeminiProvider
from lango.providers.openai import OpenAIProvider
from lango.providers.reply_assembly import ReplyAssembler

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

USER = Message("user", "What is the weather in Paris and in Rome?")
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (ToolSpec("weather", "The weather of a city", CITY), ToolSpec("now", "The time"))
WIRES = ["chat", "compatible", "responses", "anthropic", "gemini"]


@pytest.fixture(params=WIRES)
async def provider(request: pytest.FixtureRequest, llmock: "LLMock") -> AsyncIterator[Any]:
    """Each wire format in turn."""
    match request.param:
        case "anthropic":
            made = AnthropicProvider("key", base_url=llmock.base_url("anthropic"))
        case "gemini":
            made = GeminiProvider("key", base_url=llmock.base_url("gemini"))
        case "compatible":
            made = OpenAIProvider(None, name="vllm", base_url=llmock.base_url("openai"), compatible=True)
        case api:
            made = OpenAIProvider("key", base_url=llmock.base_url("openai"), api=api)
    yield made
    await made.aclose()


def ask(*messages: Message, **settings: Any) -> Request:
    return Request("some-model", messages or (USER,), **settings)


async def collect(provider: Any, request: Request) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


async def test_m9_text_streams_in_pieces_with_usage_and_a_finish(provider: Any, llmock: "LLMock") -> None:
    llmock.reply("It is sunny in both of them today.")
    deltas = await collect(provider, ask(system="Be brief.", max_tokens=100))
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(pieces) == "It is sunny in both of them today."
    assert len(pieces) > 3
    usage = [delta for delta in deltas if isinstance(delta, UsageDelta)]
    assert any(delta.input_tokens for delta in usage)
    assert any(delta.output_tokens for delta in usage)
    assert isinstance(deltas[-1], Finish)
    assert deltas[-1].reason == "stop"
    assert sum(isinstance(delta, Finish) for delta in deltas) == 1


async def test_m9_parallel_calls_and_their_results_go_both_ways(provider: Any, llmock: "LLMock") -> None:
    from llmock.scenarios import Reply
    from llmock.scenarios import ToolCall as Scripted

    calls = (Scripted("weather", {"city": "Paris"}), Scripted("weather", {"city": "Rome, the eternal city"}))
    llmock.add(Reply(text="Let me see.", tool_calls=calls)).reply("Sunny and warm.")
    assembler = ReplyAssembler()
    for delta in await collect(provider, ask(tools=TOOLS)):
        assembler.add(delta)
    reply = assembler.reply()
    assert [call.input for call in reply.calls] == [{"city": "Paris"}, {"city": "Rome, the eternal city"}]
    assert reply.finish.reason == "tool_calls"
    # Gemini gives no ids: they are made when the calls are stored (M6)
    made = tuple(
        ToolCall(call.id or f"call_{at}", call.name, call.input, signature=call.signature)
        for at, call in enumerate(reply.calls)
    )
    results = tuple(ToolCall(call.id, call.name, output={"sky": "clear"}) for call in made)
    turn = Message("assistant", reply.text, made, thoughts=reply.thoughts)
    deltas = await collect(provider, ask(USER, turn, Message("tool", tool_calls=results), tools=TOOLS))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Sunny and warm."
    assert not [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert [record.status for record in llmock.requests] == [200, 200]


# Gemini sends arguments as an object
@pytest.mark.parametrize("provider", ["chat", "compatible", "responses", "anthropic"], indirect=True)
async def test_m7_arguments_that_are_not_json_arrive_as_they_are(provider: Any, llmock: "LLMock") -> None:
    llmock.call_tool("weather", {"city": "Paris"}).break_tool_call("malformed_arguments")
    assembler = ReplyAssembler()
    for delta in await collect(provider, ask(tools=TOOLS)):
        assembler.add(delta)
    assert not assembler.reply().calls
    assert len(assembler.reply().malformed) == 1


@pytest.mark.parametrize("provider", ["chat"], indirect=True)  # the tests of resilience have no SDK: one is enough
async def test_server_errors_go_to_the_fallback(provider: Any, llmock: "LLMock") -> None:
    llmock.fail(500, times=2).reply("From the other one.")
    patient = ResilientProvider(
        provider, retries=Retries(attempts=2, base_s=0.01), fallbacks=[Fallback(provider, "other-model")]
    )
    deltas = await collect(patient, ask())
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "From the other one."
    assert [record.model for record in llmock.requests] == ["some-model", "some-model", "other-model"]


@pytest.mark.parametrize("provider", ["anthropic"], indirect=True)
async def test_a_stream_that_breaks_before_its_first_token_is_retried(provider: Any, llmock: "LLMock") -> None:
    llmock.truncate(after_chunks=0).reply("never seen").reply("Second time lucky.")
    deltas = await collect(ResilientProvider(provider, retries=Retries(base_s=0.01)), ask())
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Second time lucky."


@pytest.mark.parametrize("provider", ["responses"], indirect=True)
async def test_no_server_is_unavailable(provider: Any, llmock: "LLMock") -> None:
    gone: Any = type(provider)("key", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ProviderUnavailable, match="cannot connect") as caught:
        await collect(gone, ask())
    assert isinstance(caught.value, ProviderError)
    await gone.aclose()


async def test_structured_output_and_media_are_accepted(provider: Any, llmock: "LLMock") -> None:
    from lango.messages import Media

    llmock.reply('{"city": "Paris"}')
    picture = Message("user", "Which city is it?", media=(Media("image/png", b"\x89PNG"), Media("text/plain", b"hint")))
    deltas = await collect(provider, ask(picture, response_schema=CITY, temperature=0.2, top_p=0.9, stop=("END",)))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == '{"city": "Paris"}'
