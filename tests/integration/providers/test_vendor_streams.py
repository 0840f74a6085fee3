"""Thoughts, signatures, refusals and errors in the streams of vendors, through their SDKs."""

import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lango.config import ProviderSettings
from lango.errors import ProviderAuthError, ProviderProtocolError, ProviderRejected, ProviderUnavailable, UnknownModel
from lango.messages import Message, Signature, Thought, ToolCall
from lango.providers import (
    CallDelta,
    Delta,
    Finish,
    Request,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    UsageDelta,
    resolve,
)
from lango.providers.anthropic import AnthropicProvider
from lango.providers.gemini import PLACEHOLDER_SIGNATURE, GeminiProvider
from lango.providers.openai import OpenAIProvider
from lango.providers.protocol import Closable
from lango.providers.reply_assembly import Reply, ReplyAssembler
from tests.support.servers.wire_server import Answer, Exchange, WireServer, wire_server

USER = Message("user", "hi")


def streams(*events: Any, named: bool = False, done: bool = False) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.events(*events, *(["[DONE]"] if done else []), named=named)
        await exchange.end()

    return answer


def fails(status: int, body: Any, **headers: str) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.status(status, body, headers)

    return answer


@asynccontextmanager
async def served(kind: Any, *answers: Answer, **settings: Any) -> AsyncGenerator[tuple[Any, WireServer], None]:
    async with wire_server(*answers) as server:
        path = "/v1" if kind is OpenAIProvider else ""
        provider = kind("key", base_url=server.url + path, **settings)
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def collect(provider: Any, model: str, *messages: Message) -> list[Delta]:
    return [delta async for delta in provider.stream(Request(model, messages or (USER,)))]


def assembled(deltas: list[Delta]) -> Reply:
    assembler = ReplyAssembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler.reply()


def turn(reply: Reply) -> tuple[Message, Message]:
    results = tuple(ToolCall(call.id, call.name, output={"ok": True}) for call in reply.calls)
    answer = Message("assistant", reply.text, reply.calls, thoughts=reply.thoughts, signature=reply.finish.signature)
    return answer, Message("tool", tool_calls=results)


# --- Anthropic

CLAUDE = "claude-opus-4-6"


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def claude(*blocks: dict[str, Any], reason: str = "end_turn", **more: Any) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": CLAUDE,
        "usage": usage,
    }
    ends = {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": {"output_tokens": 9}}
    return [{"type": "message_start", "message": message}, {"type": "ping"}, *blocks, ends, {"type": "message_stop"}]


async def test_anthropic_thinking_comes_and_goes_back_unchanged() -> None:
    blocks = [
        *(start(0, type="thinking", thinking="", signature=""), piece(0, type="thinking_delta", thinking="I should ")),
        *(piece(0, type="thinking_delta", thinking="look.\n"), piece(0, type="signature_delta", signature="c2ln")),
        *(stop(0), start(1, type="redacted_thinking", data="ZGF0YQ=="), stop(1)),
        *(start(2, type="text", text=""), piece(2, type="text_delta", text="So."), stop(2)),
        *(start(3, type="thinking", thinking="", signature=""), piece(3, type="thinking_delta", thinking="And.")),
        *(piece(3, type="signature_delta", signature="bGF0ZQ=="), stop(3)),
        start(4, type="tool_use", id="toolu_1", name="exec", input={}),
        *(piece(4, type="input_json_delta", partial_json='{"cmd":'),),
        *(piece(4, type="input_json_delta", partial_json=' "ls"}'), stop(4)),
        *(start(5, type="tool_use", id="toolu_2", name="now", input={}), stop(5)),
    ]
    first = streams(*claude(*blocks, reason="tool_use"), named=True)
    async with served(AnthropicProvider, first, streams(*claude(), named=True)) as (provider, server):
        reply = assembled(await collect(provider, CLAUDE))
        assert reply.thoughts[0] == Thought("I should look.\n", Signature("anthropic", CLAUDE, b"c2ln"))
        assert reply.thoughts[1] == Thought("", Signature("anthropic", CLAUDE, b"redacted:ZGF0YQ=="))
        assert [(call.id, call.input) for call in reply.calls] == [("toolu_1", {"cmd": "ls"}), ("toolu_2", {})]
        assert reply.usage == UsageDelta(17, 9, 5, cache_write_tokens=2)
        assert reply.finish == Finish("tool_calls", "tool_use", model=CLAUDE)

        await collect(provider, CLAUDE, USER, *turn(reply))
        assert server.requests[1].body["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "I should look.\n", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "text", "text": "So."},
            {"type": "thinking", "thinking": "And.", "signature": "bGF0ZQ=="},
            {"type": "tool_use", "id": "toolu_1", "name": "exec", "input": {"cmd": "ls"}},
            {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
        ]
        await collect(provider, "claude-sonnet-5", USER, *turn(reply))
        other = server.requests[2].body["messages"][1]["content"]
        assert [block["type"] for block in other] == ["text", "tool_use", "tool_use"]


async def test_anthropic_unknown_blocks_are_ignored() -> None:
    blocks = [
        *({"type": "something_new"}, start(0, type="server_tool_use", id="s", name="web_search", input={})),
        *(piece(0, type="something_new"), stop(0), start(1, type="text", text="Hi.")),
        *(piece(1, type="citations_delta", citation={"type": "x"}), stop(1)),
    ]
    async with served(AnthropicProvider, streams(*claude(*blocks), named=True)) as (provider, _):
        assert assembled(await collect(provider, CLAUDE)).text == "Hi."


async def test_anthropic_an_end_without_a_reason_is_broken() -> None:
    events = [event for event in claude() if event["type"] != "message_delta"]
    async with served(AnthropicProvider, streams(*events, named=True)) as (provider, _):
        with pytest.raises(ProviderProtocolError, match="without a stop reason"):
            await collect(provider, CLAUDE)


async def test_anthropic_a_refusal_is_a_finish_with_its_reason() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    answer = streams(*claude(reason="refusal", stop_details=details), named=True)
    async with served(AnthropicProvider, answer) as (provider, _):
        assert (await collect(provider, CLAUDE))[-1] == Finish("safety", "refusal: Not this.", model=CLAUDE)


@pytest.mark.parametrize(
    ("kind", "expected"), [("overloaded_error", ProviderUnavailable), ("invalid_request_error", ProviderRejected)]
)
async def test_anthropic_an_error_inside_the_stream(kind: str, expected: type[Exception]) -> None:
    answer = streams(claude()[0], {"type": "error", "error": {"type": kind, "message": "No."}}, named=True)
    async with served(AnthropicProvider, answer) as (provider, _):
        with pytest.raises(expected, match=r"No\."):
            await collect(provider, CLAUDE)


# --- OpenAI, Responses

GPT = "gpt-5.2"


def response(status: str = "completed", **fields: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 30,
    }
    made: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "model": GPT,
        "status": status,
        "output": [],
        "usage": usage,
    }
    return made | fields


def reasoning(place: int, name: str, *texts: str) -> list[dict[str, Any]]:
    item: dict[str, Any] = {"type": "reasoning", "id": name, "summary": []}
    where = {"output_index": place, "item_id": name}
    done = item | {
        "summary": [{"type": "summary_text", "text": text} for text in texts],
        "encrypted_content": f"secret-{name}",
    }
    return [
        {"type": "response.output_item.added", "output_index": place, "item": item},
        *(
            {"type": "response.reasoning_summary_text.delta", "summary_index": at, "delta": text, **where}
            for at, text in enumerate(texts)
        ),
        {"type": "response.output_item.done", "output_index": place, "item": done},
    ]


def message(place: int, text: str, kind: str = "output_text") -> list[dict[str, Any]]:
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    where = {"output_index": place, "item_id": "msg_1", "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": place, "item": item},
        {"type": f"response.{kind}.delta", "delta": text, **where},
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def call(place: int, call_id: str, arguments: str, *, pieces: bool = True) -> list[dict[str, Any]]:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "exec", "arguments": ""}
    where = {"output_index": place, "item_id": item["id"]}
    events = [{"type": "response.output_item.added", "output_index": place, "item": item}]
    if pieces:
        events += [
            {"type": "response.function_call_arguments.delta", "delta": arguments[:4], **where},
            {"type": "response.function_call_arguments.delta", "delta": arguments[4:], **where},
        ]
    done = {"type": "response.output_item.done", "output_index": place, "item": item | {"arguments": arguments}}
    return [*events, done]


async def test_responses_reasoning_comes_and_goes_back_to_its_place() -> None:
    events = [
        {"type": "response.created", "response": response("in_progress")},
        *reasoning(0, "rs_1", "First.", "Second."),
        *message(1, "Let me see."),
        *reasoning(2, "rs_2"),
        *call(3, "call_1", '{"cmd": "ls"}'),
        *call(4, "call_2", "{}", pieces=False),
        {"type": "response.completed", "response": response()},
    ]
    answer = streams(*events, named=True)
    async with served(OpenAIProvider, answer) as (provider, server):
        reply = assembled(await collect(provider, GPT))
        assert reply.thoughts[0].text == "First.\n\nSecond."
        assert [one.input for one in reply.calls] == [{"cmd": "ls"}, {}]
        assert reply.usage == UsageDelta(10, 20, 4, 12)
        assert reply.finish.reason == "tool_calls"

        await collect(provider, GPT, USER, *turn(reply))
        body = server.requests[1].body
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]
        assert [item.get("id") or item.get("call_id") or item["role"] for item in body["input"]] == [
            *("user", "rs_1", "assistant", "rs_2", "call_1", "call_2", "call_1", "call_2")
        ]
        assert body["input"][1] == {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
            "encrypted_content": "secret-rs_1",
        }


async def test_responses_reasoning_right_before_a_call_belongs_to_the_thought() -> None:
    events = [
        *reasoning(0, "rs_1", "Hm."),
        *call(1, "call_1", "{}"),
        {"type": "response.completed", "response": response()},
    ]
    async with served(OpenAIProvider, streams(*events, named=True)) as (provider, _):
        reply = assembled(await collect(provider, GPT))
    assert reply.thoughts[0].signature is not None
    assert json.loads(reply.thoughts[0].signature.value)["id"] == "rs_1"
    assert reply.calls[0].signature is None


async def test_responses_of_open_models_show_their_reasoning_and_sign_nothing() -> None:
    thought = {"type": "response.reasoning_text.delta", "output_index": 0, "item_id": "rs_1", "content_index": 0}
    [added, done] = reasoning(0, "rs_1")
    del done["item"]["encrypted_content"]
    end = {"type": "response.completed", "response": response(usage=None)}
    events = [added, thought | {"delta": "Hm."}, done, *message(1, "Yes."), end]
    async with served(OpenAIProvider, streams(*events, named=True)) as (provider, _):
        reply = assembled(await collect(provider, GPT))
    assert reply.thoughts == (Thought("Hm."),)
    assert reply.usage == UsageDelta()


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        (response("incomplete", incomplete_details={"reason": "max_output_tokens"}), ("length", "max_output_tokens")),
        (response("incomplete", incomplete_details={"reason": "content_filter"}), ("safety", "content_filter")),
    ],
)
async def test_responses_an_incomplete_answer_says_why(end: dict[str, Any], finish: tuple[str, str]) -> None:
    events = [*message(0, "half"), {"type": "response.incomplete", "response": end}]
    async with served(OpenAIProvider, streams(*events, named=True)) as (provider, _):
        last = (await collect(provider, GPT))[-1]
    assert isinstance(last, Finish)
    assert (last.reason, last.detail) == finish


async def test_responses_answers_are_cut_at_stop_sequences() -> None:
    events = [*message(0, "one two END three"), {"type": "response.completed", "response": response()}]
    async with served(OpenAIProvider, streams(*events, named=True)) as (provider, server):
        request = Request(GPT, (USER,), stop=("END",))
        deltas = [delta async for delta in provider.stream(request)]
    assert deltas == [TextDelta("one two "), Finish("stop", "stop_sequence", stop_sequence="END")]
    assert "stop" not in server.requests[0].body


async def test_responses_a_refusal_is_a_finish() -> None:
    events = [*message(0, "I cannot.", "refusal"), {"type": "response.completed", "response": response()}]
    async with served(OpenAIProvider, streams(*events, named=True)) as (provider, _):
        deltas = await collect(provider, GPT)
    assert TextDelta("I cannot.") in deltas
    assert deltas[-1] == Finish("safety", "refusal", model=GPT)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {
                "type": "response.failed",
                "response": response("failed", error={"code": "server_error", "message": "Oops."}),
            },
            ProviderUnavailable,
        ),
        (
            {
                "type": "response.failed",
                "response": response("failed", error={"code": "invalid_prompt", "message": "Oops."}),
            },
            ProviderRejected,
        ),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Oops.", "param": None}, ProviderUnavailable),
    ],
)
async def test_responses_a_failure_inside_the_stream(event: dict[str, Any], expected: type[Exception]) -> None:
    async with served(OpenAIProvider, streams(event, named=True)) as (provider, _):
        with pytest.raises(expected, match=r"Oops\."):
            await collect(provider, GPT)


# --- OpenAI, Chat Completions


def chunk(finish: str | None = None, *, stop_reason: str | int | None = None, **delta: Any) -> dict[str, Any]:
    """`stop_reason` is vLLM's: the stop sequence, or the number of a token."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "stop_reason": stop_reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "llama", "choices": [choice]}


async def test_compatible_servers_send_thoughts_beside_the_text() -> None:
    answer = streams(
        chunk(reasoning_content="Hm. "), chunk(reasoning="So."), chunk(content="Yes."), chunk("stop"), done=True
    )
    async with served(OpenAIProvider, answer, compatible=True) as (provider, _):
        deltas = await collect(provider, "llama")
    assert deltas == [
        ThoughtDelta("Hm. "),
        ThoughtDelta("So."),
        TextDelta("Yes."),
        Finish("stop", "stop", model="llama"),
    ]


async def test_parallel_calls_of_servers_that_give_them_all_one_index() -> None:
    def called(call_id: str, arguments: str, index: int | None = 0) -> dict[str, Any]:
        function = {"name": "exec", "arguments": arguments}
        return chunk(tool_calls=[{"index": index, "id": call_id, "type": "function", "function": function}])

    answer = streams(called("a", "{}"), called("b", '{"x": 1}'), called("c", "{}", None), chunk("stop"), done=True)
    async with served(OpenAIProvider, answer, compatible=True) as (provider, _):
        deltas = await collect(provider, "llama")
    assert [(delta.index, delta.id) for delta in deltas if isinstance(delta, CallDelta)] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]
    assert deltas[-1] == Finish("tool_calls", "stop", model="llama")


@pytest.mark.parametrize(
    ("last", "finish"),
    [
        (chunk("content_filter"), Finish("safety", "content_filter", model="llama")),
        (chunk("length"), Finish("length", "length", model="llama")),
        (chunk("stop", stop_reason="END"), Finish("stop", "stop", model="llama", stop_sequence="END")),
        (chunk("stop", stop_reason=2), Finish("stop", "stop", model="llama")),
        (chunk("stop", refusal="No."), Finish("safety", "refusal", model="llama")),
    ],
)
async def test_chat_finish_reasons(last: dict[str, Any], finish: Finish) -> None:
    async with served(OpenAIProvider, streams(last, done=True), compatible=True) as (provider, _):
        assert (await collect(provider, "llama"))[-1] == finish


async def test_chat_an_error_inside_the_stream() -> None:
    answer = streams(chunk(content="a"), {"error": {"message": "Overloaded", "code": 502}})
    async with served(OpenAIProvider, answer, compatible=True) as (provider, _):
        with pytest.raises(ProviderUnavailable, match="Overloaded"):
            await collect(provider, "llama")


# --- Gemini

GEMINI = "gemini-3.5-flash"


def candidate(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "index": 0, "finishReason": finish}], "modelVersion": GEMINI} | more


async def test_gemini_signatures_come_and_go_back_to_their_place() -> None:
    usage = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 3,
        "totalTokenCount": 22,
    }
    called = {"functionCall": {"name": "exec", "args": {"cmd": "ls"}, "id": "g1"}, "thoughtSignature": "AQID"}
    sibling: dict[str, Any] = {"functionCall": {"name": "exec", "args": {}, "id": "g2"}}
    answer = streams(
        candidate({"text": "Hm.", "thought": True}),
        candidate({"text": "Let me see."}),
        candidate({"text": "", "thoughtSignature": "BAUG"}),
        candidate(called, sibling, finish="STOP", usageMetadata=usage),
    )
    async with served(GeminiProvider, answer) as (provider, server):
        reply = assembled(await collect(provider, GEMINI))
        assert reply.thoughts == (Thought("Hm."),)
        assert reply.calls[0].signature == Signature("gemini", GEMINI, b"\x01\x02\x03")
        assert reply.finish == Finish("tool_calls", "STOP", Signature("gemini", GEMINI, b"\x04\x05\x06"), GEMINI)
        assert reply.usage == UsageDelta(10, 12, 3, 7)

        await collect(provider, GEMINI, USER, *turn(reply))
        contents = server.requests[1].body["contents"]
        assert [content["role"] for content in contents] == ["user", "model", "user"]
        assert contents[1]["parts"] == [
            {"text": "Let me see.", "thoughtSignature": "BAUG"},
            {"functionCall": {"name": "exec", "args": {"cmd": "ls"}, "id": "g1"}, "thoughtSignature": "AQID"},
            {"functionCall": {"name": "exec", "args": {}, "id": "g2"}},
        ]
        assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["g1", "g2"]


async def test_gemini_gets_a_placeholder_for_calls_of_other_models() -> None:
    call = Message("assistant", tool_calls=(ToolCall("toolu_1", "exec", {}),))
    result = Message("tool", tool_calls=(ToolCall("toolu_1", "exec", output={"ok": 1}),))
    async with served(GeminiProvider, streams(candidate({"text": "x"}, finish="STOP"))) as (provider, server):
        await collect(provider, GEMINI, USER, call, result)
        [part] = server.requests[0].body["contents"][1]["parts"]
    assert base64.urlsafe_b64decode(part["thoughtSignature"]) == PLACEHOLDER_SIGNATURE


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, ("safety", "SAFETY: PROHIBITED_CONTENT")),
        (candidate(finish="SAFETY"), ("safety", "SAFETY")),
        (candidate({"text": "half"}, finish="MAX_TOKENS"), ("length", "MAX_TOKENS")),
        (candidate(finish="MALFORMED_FUNCTION_CALL"), ("error", "MALFORMED_FUNCTION_CALL")),
        (candidate(finish="STOP"), ("stop", "STOP")),
    ],
)
async def test_gemini_finish_reasons(answer: dict[str, Any], finish: tuple[str, str]) -> None:
    async with served(GeminiProvider, streams(answer)) as (provider, _):
        last = (await collect(provider, GEMINI))[-1]
    assert isinstance(last, Finish)
    assert (last.reason, last.detail) == finish


async def test_gemini_an_error_inside_the_stream() -> None:
    body = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    async with served(GeminiProvider, streams(candidate({"text": "a"}), body)) as (provider, _):
        with pytest.raises(ProviderUnavailable, match="overloaded"):
            await collect(provider, GEMINI)


# --- what the vendors answer to a key or a model that they do not know


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        (OpenAIProvider, 404, {"error": {"message": "The model `nope` does not exist", "code": "model_not_found"}}),
        (AnthropicProvider, 404, {"type": "error", "error": {"type": "not_found_error", "message": "model: nope"}}),
        (GeminiProvider, 404, {"error": {"code": 404, "message": "models/nope is not found", "status": "NOT_FOUND"}}),
        (OpenAIProvider, 400, {"error": {"message": "invalid model ID", "type": "invalid_request_error"}}),
        (
            AnthropicProvider,
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "model: String should have at most 256 characters",
                },
            },
        ),
        (
            GeminiProvider,
            400,
            {
                "error": {
                    "code": 400,
                    "message": "* GenerateContentRequest.model: unexpected model name format\n",
                    "status": "INVALID_ARGUMENT",
                }
            },
        ),
    ],
)
async def test_a3_an_unknown_model_is_named(kind: Any, status: int, body: Any) -> None:
    async with served(kind, fails(status, body)) as (provider, _):
        with pytest.raises(UnknownModel, match="'nope'"):
            await collect(provider, "nope")


@pytest.mark.parametrize("name", ["no?pe", "a..b", "a&b", ""])
async def test_a3_a_model_name_that_geminis_sdk_rejects_is_named(name: str) -> None:
    async with served(GeminiProvider, fails(400, {})) as (provider, server):
        with pytest.raises(UnknownModel, match=re.escape(repr(name))):
            await collect(provider, name)
        assert server.requests == []


CANARY = "sk-canary-0123456789"


@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider, GeminiProvider])
async def test_a_key_is_in_no_error_and_no_log(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    body = {"error": {"type": "x", "code": 401, "message": f"Incorrect API key provided: {CANARY}", "status": "X"}}
    async with wire_server(fails(401, body)) as server:
        provider = kind(CANARY, base_url=server.url)
        with pytest.raises(ProviderAuthError) as caught:
            await collect(provider, "m")
        await provider.aclose()
    assert CANARY in server.requests[0].head  # it was really sent
    chain, error = "", caught.value
    while error is not None:
        chain += f"{error!r} {error}"
        error = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
    assert CANARY not in chain
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("lango"))
    assert CANARY not in ours
    assert CANARY not in "\n".join(record.getMessage() for record in caplog.records if record.levelname != "DEBUG")


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "gemini"])
async def test_without_a_key_nothing_of_a_message_is_redacted(vendor: str) -> None:
    body = {"error": {"type": "x", "code": 400, "message": "none of the fields is known", "status": "X"}}
    async with wire_server(fails(400, body)) as server:
        provider, model = resolve(f"{vendor}/m", {vendor: ProviderSettings(base_url=server.url)})
        with pytest.raises(ProviderRejected, match="none of the fields is known"):
            await collect(provider, model)
        assert isinstance(provider, Closable)
        await provider.aclose()


# --- JSON from a model that its API cannot hold to a schema


CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
ROME = '{"city": "Rome"}'
HELD = {"response_schema": CITY, "tools": (ToolSpec("weather", "What is the weather?", CITY),)}


async def ask(provider: Any, model: str, **settings: Any) -> Reply:
    return assembled([delta async for delta in provider.stream(Request(model, (USER,), **settings))])


async def test_json_claude_gives_an_answer_with_limits_by_a_tool() -> None:
    limited = HELD | {"response_schema": {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}}}
    blocks = start(0, type="tool_use", id="t1", name="final_answer", input={})
    pieces = [piece(0, type="input_json_delta", partial_json=part) for part in (ROME[:5], ROME[5:])]
    events = claude(blocks, *pieces, stop(0), reason="tool_use")
    async with served(AnthropicProvider, streams(*events, named=True)) as (provider, server):
        reply = await ask(provider, CLAUDE, **limited)
    assert (reply.text, reply.calls, reply.finish.reason) == (ROME, (), "stop")
    body = server.requests[0].body
    assert [tool["name"] for tool in body["tools"]] == ["weather", "final_answer"]
    assert (body["tool_choice"], "output_config" in body) == ({"type": "any"}, False)


async def test_json_claude_writes_an_object_of_any_shape_without_its_fence() -> None:
    text = [start(0, type="text", text=""), piece(0, type="text_delta", text=f"```json\n{ROME}\n```"), stop(0)]
    async with served(AnthropicProvider, streams(*claude(*text), named=True)) as (provider, server):
        reply = await ask(provider, CLAUDE, json_object=True)
    assert reply.text == ROME
    assert "JSON" in server.requests[0].body["system"]


async def test_json_an_early_gemini_with_tools_gives_its_answer_by_a_tool() -> None:
    called = {"functionCall": {"name": "final_answer", "args": {"city": "Rome"}}}
    async with served(GeminiProvider, streams(candidate(called, finish="STOP"))) as (provider, server):
        reply = await ask(provider, "gemini-2.5-flash", **HELD)
    assert (json.loads(reply.text), reply.calls, reply.finish.reason) == ({"city": "Rome"}, (), "stop")
    body = server.requests[0].body
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert "responseMimeType" not in body.get("generationConfig", {})
