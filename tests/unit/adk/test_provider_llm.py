"""`ProviderLlm`: the requests that the provider gets, and the responses that ADK gets."""

import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from lango.adk.model import provider_llm
from lango.adk.model.content import signature_to_bytes
from lango.adk.model.provider_llm import MAX_CORRECTIONS, ProviderLlm
from lango.errors import BudgetTooSmall, ProviderProtocolError, ProviderUnavailable
from lango.history import CONTEXT_AUTHOR, TokenCounter
from lango.messages import Message, Signature, ToolCall
from lango.providers.protocol import (
    CallDelta,
    Delta,
    Finish,
    Request,
    TextDelta,
    Thinking,
    ThoughtDelta,
    ToolSpec,
    UsageDelta,
)
from lango.testing import ScriptedProvider
from tests.support.provider_rules import broken_rules


def request(*contents: types.Content | str, **config: Any) -> LlmRequest:
    given = [types.Content(role="user", parts=[types.Part(text=c)]) if isinstance(c, str) else c for c in contents]
    return LlmRequest(contents=given, config=types.GenerateContentConfig(**config))


async def answers(llm: ProviderLlm, llm_request: LlmRequest, *, stream: bool = False) -> list[LlmResponse]:
    return [response async for response in llm.generate_content_async(llm_request, stream=stream)]


def texts(response: LlmResponse) -> list[str]:
    assert response.content is not None
    return [part.text or "" for part in response.content.parts or []]


def scripted(*script: Any) -> tuple[ScriptedProvider, ProviderLlm]:
    provider = ScriptedProvider(script)
    return provider, ProviderLlm(provider, "m")


HELLO: list[Delta] = [TextDelta("Hello "), TextDelta("world"), Finish("stop", model="m-2026")]


# M1


async def test_m1_the_parts_of_the_system_instruction_are_joined_by_newlines() -> None:
    provider, llm = scripted("a", "b", "c", "d", "e")
    parts = types.Content(parts=[types.Part(text="one"), types.Part(), types.Part(text="two")])
    for instruction in (parts, "plain", ["one", types.Part(text="two")], types.Part(text="part"), None):
        await answers(llm, request("hi", system_instruction=instruction))
    assert [r.system for r in provider.requests] == ["one\ntwo", "plain", "one\ntwo", "part", ""]
    assert all(r.messages == (Message("user", "hi"),) for r in provider.requests)


# M2, M3


async def test_m2_without_streaming_one_response_holds_everything() -> None:
    _, llm = scripted(HELLO)
    [response] = await answers(llm, request("hi"))
    assert texts(response) == ["Hello world"]
    assert (response.partial, response.turn_complete) == (False, True)
    assert response.finish_reason == types.FinishReason.STOP
    assert response.model_version == "m-2026"


async def test_m2_without_streaming_calls_are_in_the_one_response() -> None:
    _, llm = scripted(["Let me see.", ToolCall("c1", "exec", {"cmd": "ls"}), ToolCall("c2", "exec", {})])
    [response] = await answers(llm, request("hi"))
    assert texts(response)[0] == "Let me see."
    assert [(call.id, call.name, call.args) for call in response.get_function_calls()] == [
        ("c1", "exec", {"cmd": "ls"}),
        ("c2", "exec", {}),
    ]
    assert response.turn_complete


async def test_m3_streaming_gives_a_partial_per_delta_and_one_final() -> None:
    _, llm = scripted([ThoughtDelta("hm"), TextDelta(""), *HELLO])
    responses = await answers(llm, request("hi"), stream=True)
    assert [(r.partial, texts(r)) for r in responses] == [
        (True, ["hm"]),
        (True, ["Hello "]),
        (True, ["world"]),
        (False, ["hm", "Hello world"]),
    ]
    assert [r.turn_complete for r in responses] == [None, None, None, True]
    thought = responses[0].content
    assert thought is not None
    assert thought.parts is not None
    assert thought.parts[0].thought


# M4


@pytest.mark.parametrize("stream", [False, True])
async def test_m4_a_providers_error_is_raised_and_nothing_follows(stream: bool) -> None:
    class Failing:
        name = "failing"
        closed = False

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                yield TextDelta("half")
                raise ProviderUnavailable("busy")
            finally:
                self.closed = True

    provider = Failing()
    responses: list[LlmResponse] = []

    async def read() -> None:
        async for response in ProviderLlm(provider, "m").generate_content_async(request("hi"), stream=stream):
            responses.append(response)

    with pytest.raises(ProviderUnavailable, match="busy"):
        await read()
    assert all(response.partial for response in responses)
    assert len(responses) == stream
    assert provider.closed


async def test_m4_a_reader_that_leaves_closes_the_stream() -> None:
    class Endless:
        name = "endless"
        closed = False

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            try:
                while True:
                    yield TextDelta("more ")
            finally:
                self.closed = True

    provider = Endless()
    responses = ProviderLlm(provider, "m").generate_content_async(request("hi"), stream=True)
    await anext(responses)
    await responses.aclose()
    assert provider.closed


async def test_m4_a_stream_without_an_end_is_an_error_not_an_answer() -> None:
    class Plain:
        """An iterator without `aclose`: it is no generator."""

        name = "plain"

        def stream(self, request: Request) -> AsyncIterator[Delta]:
            return self

        def __aiter__(self) -> AsyncIterator[Delta]:
            return self

        async def __anext__(self) -> Delta:
            raise StopAsyncIteration

    with pytest.raises(ProviderProtocolError, match="finished"):
        await answers(ProviderLlm(Plain(), "m"), request("hi"))


# M6


@pytest.mark.parametrize("given", ["", "adk-123", "used"])
async def test_m6_a_call_without_an_id_of_its_own_gets_a_fresh_one(given: str) -> None:
    _, llm = scripted([CallDelta(0, given, "exec", "{}"), CallDelta(1, given, "exec", "{}"), Finish("stop")])
    used = types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(id="used", name="exec"))])
    [response] = await answers(llm, request("hi", used, "and?"))
    ids = [call.id or "" for call in response.get_function_calls()]
    assert len({*ids, "used"}) == 3
    assert all(i and not i.startswith("adk-") and len(i) <= 40 for i in ids)


# M7


async def test_m7_the_model_is_asked_to_correct_a_malformed_call() -> None:
    bad: list[Delta] = [
        TextDelta("Trying. "),
        ThoughtDelta("hm", Signature("scripted", "m", b"s")),
        CallDelta(0, "c1", "exec", '{"cmd": '),
        CallDelta(1, "c2", "search", "{}"),
        UsageDelta(10, 5),
        Finish("tool_calls"),
    ]
    good: list[Delta] = [
        TextDelta("Again."),
        CallDelta(0, "c1", "exec", '{"cmd": "ls"}'),
        UsageDelta(20, 6, thought_tokens=2),
        Finish("tool_calls"),
    ]
    provider, llm = scripted(bad, good)
    responses = await answers(llm, request("hi"), stream=True)
    final = responses[-1]
    assert "".join(t for r in responses[:-1] for t in texts(r)) == "Trying. hmAgain."
    assert texts(final)[:2] == ["hm", "Trying. Again."]
    [call] = final.get_function_calls()
    assert (call.name, call.args) == ("exec", {"cmd": "ls"})
    assert final.usage_metadata is not None
    assert (final.usage_metadata.prompt_token_count, final.usage_metadata.total_token_count) == (30, 41)

    sent = provider.requests[1].messages
    assert broken_rules(sent) == []
    outputs = {c.name: c.output for c in sent[-1].tool_calls}
    assert "not run" in str(outputs["exec"])
    assert '{"cmd": ' in str(outputs["exec"]) or '{\\"cmd\\":' in json.dumps(outputs["exec"])
    assert "not run" in str(outputs["search"])


async def test_m7_the_model_is_asked_to_correct_a_malformed_call_that_gemini_reports() -> None:
    provider, llm = scripted([Finish("error", "MALFORMED_FUNCTION_CALL: print(")], HELLO)
    [response] = await answers(llm, request("hi"))
    assert texts(response) == ["Hello world"]
    assert provider.requests[1].messages[-1].author == CONTEXT_AUTHOR
    assert "print(" in provider.requests[1].messages[-1].content


async def test_m7_repeated_malformed_calls_are_an_error() -> None:
    provider, llm = scripted(*[[CallDelta(0, "c1", "", "[]"), Finish("stop")]] * 10)
    with pytest.raises(ProviderProtocolError, match="malformed"):
        await answers(llm, request("hi"))
    assert len(provider.requests) == MAX_CORRECTIONS + 1


# M8


def _called(call_id: str | None, name: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args={"a": 1}))


def _answered(call_id: str | None, name: str) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response={"b": 2}))


_ids = st.sampled_from([None, "", "c1", "c2", "x" * 60, "bad id"])
_names = st.sampled_from(["exec", "search"])
_parts = st.one_of(
    st.builds(types.Part, text=st.sampled_from(["", " ", "hello", "\ud800"])),
    st.builds(
        types.Part,
        text=st.just("thought"),
        thought=st.just(True),
        thought_signature=st.sampled_from([None, b"raw", signature_to_bytes(Signature("other", "x", b"s"))]),
    ),
    st.builds(_called, _ids, _names),
    st.builds(_answered, _ids, _names),
    st.just(types.Part(inline_data=types.Blob(mime_type="image/png", data=b"png"))),
)
_contents = st.builds(
    types.Content, role=st.sampled_from(["user", "model", "function"]), parts=st.lists(_parts, max_size=4)
)


@given(st.lists(_contents, max_size=8), st.integers(20, 4_000))
@settings(deadline=None)
async def test_m8_any_contents_and_any_budget_give_a_valid_request(contents: list[types.Content], budget: int) -> None:
    provider = ScriptedProvider(["ok"])
    try:
        await answers(ProviderLlm(provider, "m", budget_tokens=budget), request(*contents))
    except BudgetTooSmall:
        return
    [sent] = provider.requests
    assert sent.messages
    assert broken_rules(sent.messages) == []
    assert not any(part for message in sent.messages for part in message.thoughts if part.signature)


async def test_m8_a_model_gets_its_own_signatures_back_and_no_others() -> None:
    signed = Signature("scripted", "m", b"s")
    provider, llm = scripted([ThoughtDelta("hm", signed), TextDelta("a"), Finish("stop", signature=signed)], "b", "c")
    [response] = await answers(llm, request("hi"))
    assert response.content is not None
    history = request("hi", response.content, "and?")
    await answers(llm, history)
    assert provider.requests[1].messages[1].thoughts[0].signature == signed
    assert provider.requests[1].messages[1].signature == signed
    await answers(ProviderLlm(provider, "other"), history)
    assert provider.requests[2].messages[1].thoughts[0].signature is None
    assert provider.requests[2].messages[1].signature is None


async def test_m8_a_request_without_contents_gets_a_message() -> None:
    provider, llm = scripted("ok")
    await answers(llm, request(system_instruction="greet"))
    assert [m.role for m in provider.requests[0].messages] == ["user"]


# Budgets


def long_history() -> list[types.Content | str]:
    return [f"question {n} " + "word " * 90 for n in range(60)]


async def test_h1_the_budget_holds_and_the_request_is_marked_as_cut() -> None:
    provider = ScriptedProvider(["a", "b"])
    await answers(ProviderLlm(provider, "m", budget_tokens=1_000), request(*long_history()))
    await answers(ProviderLlm(provider, "m"), request("hi"))
    assert [(len(r.messages), r.cut) for r in provider.requests] == [(10, True), (1, False)]


async def test_h1_a_small_context_window_also_holds_prompt_tools_and_answer() -> None:
    provider = ScriptedProvider(["a"])
    llm = ProviderLlm(provider, "m", context_tokens=1_500)
    await answers(llm, request(*long_history(), system_instruction="rule " * 300, max_output_tokens=500))
    assert len(provider.requests[0].messages) == 7


async def test_h1_a_context_window_that_grows_is_used_at_once() -> None:
    """A larger model may answer to the same name, once it is downloaded."""
    sizes = [1_500]
    provider = ScriptedProvider(["a", "b"])
    llm = ProviderLlm(provider, "m", context_tokens=lambda: sizes[-1])
    small = llm.window_rules.budget_tokens
    await answers(llm, request(*long_history()))
    sizes.append(3_000)
    assert llm.window_rules.budget_tokens == small + 1_500
    await answers(llm, request(*long_history()))
    first, second = (len(sent.messages) for sent in provider.requests)
    assert second > first + 10


async def test_h2_at_most_100_messages_unless_memory_is_on() -> None:
    provider = ScriptedProvider(["a", "b"])
    many = request(*[str(n) for n in range(150)])
    await answers(ProviderLlm(provider, "m"), many)
    await answers(ProviderLlm(provider, "m", max_messages=None), many)
    assert [len(r.messages) for r in provider.requests] == [100, 150]


async def test_h1_the_count_learns_from_the_providers_usage() -> None:
    counter = TokenCounter()
    provider = ScriptedProvider([[TextDelta("a"), UsageDelta(2_000), Finish("stop")], "b"])
    llm = ProviderLlm(provider, "m", budget_tokens=1_000, counter=counter)
    await answers(llm, request(*long_history()))
    assert counter.factor("scripted/m") == 2.0
    await answers(llm, request(*long_history()))
    assert [len(r.messages) for r in provider.requests] == [10, 5]


async def test_h1_estimates_of_pictures_teach_nothing() -> None:
    counter = TokenCounter()
    provider = ScriptedProvider([[TextDelta("a"), UsageDelta(90), Finish("stop")]])
    picture = types.Content(role="user", parts=[types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x"))])
    await answers(ProviderLlm(provider, "m", counter=counter), request(picture))
    assert counter.factor("scripted/m") == 1.0


# Settings of the request


async def test_settings_of_the_request_go_to_the_provider() -> None:
    class Answer(BaseModel):
        text: str

    old = types.Schema(type=types.Type.OBJECT, properties={"q": types.Schema(type=types.Type.STRING)}, required=["q"])
    declared = [
        types.FunctionDeclaration(name="new", description="d", parameters_json_schema={"type": "object"}),
        types.FunctionDeclaration(name="old", parameters=old),
        types.FunctionDeclaration(name="bare"),
    ]
    mode = types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
    )
    provider, llm = scripted("a")
    await answers(
        llm,
        request(
            "hi",
            temperature=0.1,
            top_p=0.2,
            max_output_tokens=9,
            stop_sequences=["x"],
            tools=[types.Tool(function_declarations=declared), types.Tool(google_search=types.GoogleSearch())],
            tool_config=mode,
            response_schema=Answer,
            thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True),
        ),
    )
    [sent] = provider.requests
    assert sent.thinking == Thinking("low", shown=True)
    assert (sent.temperature, sent.top_p, sent.max_tokens, sent.stop) == (0.1, 0.2, 9, ("x",))
    assert sent.tool_choice == "required"
    assert sent.tools == (
        ToolSpec("new", "d", {"type": "object"}),
        ToolSpec("old", "", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}),
        ToolSpec("bare", "", {"type": "object", "properties": {}}),
    )
    assert sent.response_schema == Answer.model_json_schema()


async def test_a_request_may_forbid_calls() -> None:
    mode = types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.NONE)
    )
    provider, llm = scripted("a")
    await answers(llm, request("hi", tool_config=mode))
    assert provider.requests[0].tool_choice == "none"
    assert provider.requests[0].thinking is None


@pytest.mark.parametrize(
    ("finish", "reason", "code"),
    [
        (Finish("length"), "MAX_TOKENS", None),
        (Finish("safety", "blocked"), "SAFETY", "SAFETY"),
        (Finish("error", "RECITATION"), "OTHER", "OTHER"),
        (Finish("error"), "OTHER", "OTHER"),
    ],
)
async def test_finish_reasons_reach_adk(finish: Finish, reason: str, code: str | None) -> None:
    _, llm = scripted([finish])
    [response] = await answers(llm, request("hi"))
    assert response.finish_reason == types.FinishReason[reason]
    assert response.error_code == code
    assert bool(response.error_message) == bool(code)


async def test_adk_reads_the_capabilities_of_the_model() -> None:
    provider, llm = scripted()
    assert llm.capabilities.output_schema_and_tools is False
    assert llm.provider is provider
    assert llm.model_copy().provider is provider


LARGE_CALL = types.Part(function_call=types.FunctionCall(id="c", name="f", args={"a": [{"b": [1, 2]}] * 20_000}))
LARGE_RESULT = types.Part(function_response=types.FunctionResponse(id="c", name="f", response={"a": "b" * 300_000}))


@pytest.mark.parametrize(
    ("parts", "on_loop"),
    [
        ([types.Part(text="hi")], True),
        ([types.Part(text="ภาษาไทย" * 50_000)], False),
        ([LARGE_CALL], False),
        ([LARGE_RESULT], False),
        ([types.Part(inline_data=types.Blob(mime_type="text/plain", data=b"word " * 100_000))], False),
    ],
    ids=["small", "text", "call", "result", "file"],
)
async def test_attack_16_a_large_request_is_built_outside_the_event_loop(
    parts: list[types.Part], on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting its tokens takes up to a millisecond for 2,000 characters."""
    threads: set[int] = set()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.get_ident())
            return function(*args, **kwargs)

        return run

    for name in ("repair", "fit_window", "count_tokens", "reserved_tokens"):
        monkeypatch.setattr(provider_llm, name, noted(vars(provider_llm)[name]))
    _, llm = scripted([TextDelta("yes"), UsageDelta(1_000, 1), Finish("stop")])
    [response] = await answers(llm, request("hi", types.Content(role="user", parts=parts), "and now?"))
    assert texts(response) == ["yes"]
    assert (threads == {threading.get_ident()}) == on_loop
    assert (threading.get_ident() in threads) == on_loop
