"""M8: a signature is only sent to the provider and model that made it, whatever wrote the history."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from lango import open_runtime
from lango.adk.model.content import signature_to_bytes, unwrap_signatures
from lango.adk.model.provider_llm import ProviderLlm
from lango.messages import Signature
from lango.providers import anthropic, gemini, openai_responses
from lango.providers.protocol import Finish, TextDelta, ThoughtDelta
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for
from tests.support import wire_rules

MODEL = "gemini-3-pro"
MADE_BY = [("gemini", MODEL), ("gemini", "gemini-2.5-flash"), ("anthropic", MODEL), ("openai", "gpt-5"), ("", "")]
"""Makers of signatures; the last is unknown: an import, a foreign event, one of ADK's own models."""
VALUES = [
    b"\x01\xffsigned",
    b"c2lnbmVk",
    b"redacted:c2VjcmV0",
    b'{"id":"rs_1","summary":[],"encrypted_content":"gAAAA"}',
    b'[{"type":"thinking","thinking":"wait","signature":"bGF0ZQ=="}]',
]


def tagged(maker: tuple[str, str], value: bytes) -> bytes:
    return signature_to_bytes(Signature(*maker, value)) if maker[0] else value


signatures = st.one_of(st.none(), st.builds(tagged, st.sampled_from(MADE_BY), st.sampled_from(VALUES)))
texts = st.sampled_from(["", " ", "hm", "a longer text"])


@st.composite
def model_contents(draw: st.DrawFn, number: int) -> list[types.Content]:
    """Return an answer with every possible signature, and the results of its calls."""
    parts = [
        types.Part(text=draw(texts), thought=draw(st.booleans()) or None, thought_signature=draw(signatures))
        for _ in range(draw(st.integers(0, 3)))
    ]
    parts += [types.Part(thought_signature=draw(signatures)) for _ in range(draw(st.integers(0, 1)))]
    ids = [f"c{number}_{at}" for at in range(draw(st.integers(0, 2)))]
    for call_id in ids:
        call = types.FunctionCall(id=call_id, name="look", args={})
        parts.append(types.Part(function_call=call, thought_signature=draw(signatures)))
    results = [
        types.Part(function_response=types.FunctionResponse(id=call_id, name="look", response={})) for call_id in ids
    ]
    answer = types.Content(role="model", parts=parts)
    return [answer, types.Content(role="user", parts=results)] if ids else [answer]


@st.composite
def histories(draw: st.DrawFn) -> list[types.Content]:
    contents: list[types.Content] = []
    for number in range(draw(st.integers(1, 4))):
        contents.append(types.Content(role="user", parts=[types.Part(text=f"question {number}")]))
        for step in range(draw(st.integers(0, 3))):
            contents += draw(model_contents(number * 10 + step))
    return contents


async def sent_by(name: str, contents: list[types.Content]) -> Any:
    provider = ScriptedProvider(["ok"], name=name)
    llm = ProviderLlm(provider, MODEL)
    async for _ in llm.generate_content_async(LlmRequest(contents=contents)):
        pass
    return provider.requests[0]


def made_by(maker: tuple[str, str], contents: list[types.Content]) -> frozenset[bytes]:
    found = {part.thought_signature for content in contents for part in content.parts or []}
    return frozenset(value for value in VALUES if tagged(maker, value) in found)


@given(histories())
async def test_m8_gemini_gets_no_signature_of_another_model_and_no_empty_part(contents: list[types.Content]) -> None:
    body = gemini.encode(await sent_by("gemini", contents))
    assert wire_rules.gemini(body, made_by(("gemini", MODEL), contents)) == []


@given(histories())
async def test_m8_anthropic_gets_no_thinking_of_another_model(contents: list[types.Content]) -> None:
    body = anthropic.encode(await sent_by("anthropic", contents))
    assert wire_rules.anthropic(body, made_by(("anthropic", MODEL), contents)) == []


@given(histories())
async def test_m8_openai_gets_no_reasoning_of_another_model(contents: list[types.Content]) -> None:
    body = openai_responses.encode(await sent_by("openai", contents), provider="openai")
    assert wire_rules.openai_responses(body, made_by(("openai", MODEL), contents)) == []


def called(signature: bytes | None) -> list[types.Content]:
    call, result = types.FunctionCall(id="c1", name="look"), types.FunctionResponse(id="c1", name="look", response={})
    return [
        types.Content(role="user", parts=[types.Part(text="look")]),
        types.Content(role="model", parts=[types.Part(function_call=call, thought_signature=signature)]),
        types.Content(role="user", parts=[types.Part(function_response=result)]),
    ]


@pytest.mark.parametrize(
    ("signature", "sent"),
    [
        (tagged(("gemini", MODEL), b"mine"), b"mine"),
        (tagged(("gemini", "gemini-3-flash"), b"theirs"), gemini.PLACEHOLDER_SIGNATURE),
        (tagged(("anthropic", MODEL), b"theirs"), gemini.PLACEHOLDER_SIGNATURE),
        (b"untagged, of ADK's own Gemini", gemini.PLACEHOLDER_SIGNATURE),
        (None, gemini.PLACEHOLDER_SIGNATURE),
    ],
)
async def test_m8_calls_of_the_current_turn_are_sent_to_gemini_3_with_their_signature_or_a_placeholder(
    signature: bytes | None, sent: bytes
) -> None:
    body = gemini.encode(await sent_by("gemini", called(signature)))
    [part] = body["contents"][1]["parts"]
    assert part["thought_signature"] == sent


# ADK's own models, in a session that Lango models have written to.


@given(histories(), st.booleans())
def test_m8_adks_own_models_get_no_envelope_and_no_part_that_was_only_a_signature(
    contents: list[types.Content], is_gemini: bool
) -> None:
    untouched = [content.model_copy(deep=True) for content in contents]
    opened = unwrap_signatures(contents, MODEL, gemini=is_gemini)
    assert contents == untouched, "what is stored stays as it is"
    before = [part for content in contents for part in content.parts or []]
    for part in (part for content in opened for part in content.parts or []):
        assert not (part.thought_signature or b"").startswith(b"lango-signature")
        assert part in before or part.text or part.function_call or part.thought_signature, "an empty part"
    calls = [part.function_call for content in contents for part in content.parts or [] if part.function_call]
    kept = [part.function_call for content in opened for part in content.parts or [] if part.function_call]
    assert kept == calls


@pytest.mark.parametrize(
    ("maker", "model", "is_gemini", "sent"),
    [
        (("gemini", MODEL), MODEL, True, b"s"),
        (("gemini", MODEL), MODEL, False, None),
        (("gemini", "other"), MODEL, True, gemini.PLACEHOLDER_SIGNATURE),
        (("openai", MODEL), MODEL, True, gemini.PLACEHOLDER_SIGNATURE),
        (("openai", MODEL), "gemini-2.5-flash", True, None),
        (("", ""), MODEL, True, b"s"),
    ],
)
def test_m8_calls_are_sent_to_adks_own_models_with_signatures_they_can_read(
    maker: tuple[str, str], model: str, is_gemini: bool, sent: bytes | None
) -> None:
    opened = unwrap_signatures(called(tagged(maker, b"s")), model, gemini=is_gemini)
    assert (opened[1].parts or [])[0].thought_signature == sent


class Recording(Gemini):
    """ADK's own Gemini, which answers without a network."""

    requested: list[list[types.Content]] = Field(default_factory=list[list[types.Content]])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requested.append([content.model_copy(deep=True) for content in llm_request.contents])
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="ok")]))


async def test_m8_adks_own_gemini_continues_a_session_of_another_model(sqlite_url: str) -> None:
    foreign = Signature("scripted", "x", b"theirs")
    answer = [ThoughtDelta("", foreign), TextDelta("hello"), Finish("stop", signature=foreign)]
    first = LlmAgent(name="mine", model="openai/x")
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([answer]), root_agent=first) as runtime:
        await runtime.run("s", "hi")
    model = Recording(model=MODEL)
    async with open_runtime(settings_for(sqlite_url), root_agent=LlmAgent(name="mine", model=model)) as runtime:
        assert await runtime.run("s", "and?") == "ok"
    [contents] = model.requested
    assert [[part.model_dump(exclude_none=True) for part in content.parts or []] for content in contents] == [
        [{"text": "hi"}],
        [{"text": "hello"}],
        [{"text": "and?"}],
    ]
