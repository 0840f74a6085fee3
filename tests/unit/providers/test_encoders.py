"""Encoded requests by example: M1, M5, media, settings, signatures, a change of provider."""

import base64
import json
from typing import Any

import pytest
from google.genai import types

from lango.messages import Media, Message, Signature, Thought, ToolCall
from lango.providers import Request, ToolSpec, anthropic, gemini, openai, openai_responses
from lango.providers.protocol import Thinking
from tests.support import wire_rules

PNG = Media("image/png", b"\x89PNG", name="dot.png")
PDF = Media("application/pdf", b"%PDF-1.7", name="a.pdf")
NOTE = Media("text/plain", b"read me", name="note.txt")
ZIP = Media("application/zip", b"PK", name="a.zip")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("weather", "What is the weather?", SCHEMA)
USER = Message("user", "Weather in Paris and Rome?")


def request(*messages: Message, model: str = "m", **settings: Any) -> Request:
    return Request(model, messages or (USER,), **settings)


# --- M1, M5


def test_m1_the_system_instruction_is_one_message_before_all_others() -> None:
    sent = request(Message("system", "Be kind."), USER, system="Be brief.")
    both = "Be brief.\nBe kind."
    assert openai.encode(sent)["messages"][0] == {"role": "system", "content": both}
    assert openai_responses.encode(sent)["instructions"] == both
    assert anthropic.encode(sent)["system"] == both
    assert gemini.encode(sent)["config"]["system_instruction"] == both


def test_m1_without_a_system_instruction_none_is_sent() -> None:
    assert openai.encode(request())["messages"][0]["role"] == "user"
    assert "instructions" not in openai_responses.encode(request())
    assert "system" not in anthropic.encode(request())
    assert "system_instruction" not in gemini.encode(request())["config"]


def test_m5_call_ids_are_kept_and_missing_ones_are_made() -> None:
    turn = Message("assistant", tool_calls=(ToolCall("toolu_1", "a", {}), ToolCall("", "b", {}), ToolCall("", "b", {})))
    results = Message("tool", tool_calls=tuple(ToolCall(c.id, c.name, output={"ok": 1}) for c in turn.tool_calls))
    messages = openai.encode(request(USER, turn, results))["messages"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["toolu_1", "call_b", "call_b_2"]
    assert [message["tool_call_id"] for message in messages[2:]] == ["toolu_1", "call_b", "call_b_2"]


# --- settings


def test_settings_have_each_vendors_names() -> None:
    full = request(temperature=0.5, top_p=0.9, max_tokens=100, stop=("END",), tools=(WEATHER,), tool_choice="required")
    chat = openai.encode(full)
    assert (chat["temperature"], chat["top_p"], chat["stop"]) == (0.5, 0.9, ["END"])
    assert (chat["max_completion_tokens"], chat["tool_choice"]) == (100, "required")
    config = gemini.encode(full)["config"]
    assert (config["temperature"], config["top_p"], config["max_output_tokens"]) == (0.5, 0.9, 100)
    assert config["stop_sequences"] == ["END"]
    assert config["tool_config"] == {"function_calling_config": {"mode": "ANY"}}
    body = anthropic.encode(full)
    assert (body["max_tokens"], body["stop_sequences"], body["tool_choice"]) == (100, ["END"], {"type": "any"})
    responses = openai_responses.encode(full)
    assert (responses["max_output_tokens"], responses["tool_choice"]) == (100, "required")


def test_thinking_settings_are_sent_to_vendors_that_accept_them() -> None:
    full = request(model="gpt-5", thinking=Thinking("low", 512, shown=True))
    config = gemini.encode(full)["config"]
    assert config["thinking_config"] == {"thinking_level": "LOW", "thinking_budget": 512, "include_thoughts": True}
    types.GenerateContentConfig.model_validate(config)
    assert openai_responses.encode(full)["reasoning"] == {"effort": "low"}
    assert openai.encode(full)["reasoning_effort"] == "low"
    assert "reasoning_effort" not in openai.encode(full, compatible=True)
    assert "thinking" not in anthropic.encode(full), "the name does not say which form a model takes"
    plain = request(model="gpt-5", thinking=Thinking(budget_tokens=0))
    assert gemini.encode(plain)["config"]["thinking_config"] == {"thinking_budget": 0}
    assert "reasoning" not in openai_responses.encode(plain)
    assert "thinking_config" not in gemini.encode(request())["config"]


def test_compatible_servers_get_plain_max_tokens() -> None:
    body = openai.encode(request(max_tokens=100, model="gpt-5-clone", temperature=0.1), compatible=True)
    assert body["max_tokens"] == 100
    assert body["temperature"] == 0.1
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize("model", ["o1", "o3-mini", "gpt-5", "gpt-5.2-pro", "gpt-6", "gpt-10-mini", "codex-mini"])
def test_reasoning_models_get_no_sampling_settings(model: str) -> None:
    assert openai.uses_responses_api(model)
    body = openai.encode(request(model=model, temperature=0.5, top_p=0.5, stop=("x",), max_tokens=9))
    assert not {"temperature", "top_p", "stop", "max_tokens"} & set(body)
    assert body["max_completion_tokens"] == 9


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "gpt-5-chat-latest", "ft:gpt-4o:me"])
def test_other_models_are_used_through_chat_completions(model: str) -> None:
    assert not openai.uses_responses_api(model)


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-3-5-haiku-20241022", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-opus-4-6", True),
        ("claude-opus-4-7", False),
        ("claude-sonnet-5", False),
    ],
)
def test_newer_claude_models_get_no_sampling_settings(model: str, takes: bool) -> None:
    body = anthropic.encode(request(model=model, temperature=0.5, top_p=0.9))
    assert ("temperature" in body) is takes
    assert "top_p" not in body  # both at once are refused


def test_anthropic_always_has_a_limit() -> None:
    assert anthropic.encode(request(model="claude-opus-4-6"))["max_tokens"] == 32_000
    assert anthropic.encode(request(model="claude-3-haiku-20240307"))["max_tokens"] == 4096


def test_tools_are_declared_in_each_vendors_form() -> None:
    bare = ToolSpec("now", "What time is it?")
    sent = request(tools=(WEATHER, bare))
    functions = [tool["function"] for tool in openai.encode(sent)["tools"]]
    assert functions[0] == {"name": "weather", "description": "What is the weather?", "parameters": SCHEMA}
    assert functions[1]["parameters"] == {"type": "object", "properties": {}}
    assert [tool["name"] for tool in openai_responses.encode(sent)["tools"]] == ["weather", "now"]
    assert anthropic.encode(sent)["tools"][1]["input_schema"] == {"type": "object", "properties": {}}
    [declarations] = gemini.encode(sent)["config"]["tools"]
    assert declarations["function_declarations"][0]["parameters_json_schema"] == SCHEMA
    assert "parameters_json_schema" not in declarations["function_declarations"][1]


def test_structured_output_in_each_vendors_form() -> None:
    sent = request(response_schema=SCHEMA)
    assert openai.encode(sent)["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": SCHEMA,
        "strict": False,
    }
    closed = SCHEMA | {"additionalProperties": False}
    assert openai.encode(request(response_schema=closed))["response_format"]["json_schema"]["strict"] is True
    assert openai_responses.encode(sent)["text"]["format"]["schema"] == SCHEMA
    assert anthropic.encode(sent)["output_config"]["format"] == {"type": "json_schema", "schema": closed}
    assert gemini.encode(sent)["config"]["response_json_schema"] == SCHEMA
    assert gemini.encode(sent)["config"]["response_mime_type"] == "application/json"


def test_a_json_object_of_any_shape_in_each_vendors_form() -> None:
    sent = request(json_object=True, system="Be kind.")
    chat = openai.encode(sent)
    assert chat["response_format"] == {"type": "json_object"}
    assert "JSON" in chat["messages"][0]["content"], "the API rejects a request that does not speak of JSON"
    responses = openai_responses.encode(sent)
    assert responses["text"]["format"] == {"type": "json_object"}
    assert "JSON" in responses["input"][0]["content"][0]["text"]
    config = gemini.encode(sent)["config"]
    assert (config["response_mime_type"], "response_json_schema" in config) == ("application/json", False)


def test_a_tool_is_forced_by_its_name_in_each_vendors_form() -> None:
    sent = request(tools=(WEATHER,), tool_choice="weather")
    assert openai.encode(sent)["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert openai_responses.encode(sent)["tool_choice"] == {"type": "function", "name": "weather"}
    assert anthropic.encode(sent)["tool_choice"] == {"type": "tool", "name": "weather"}
    forced = {"mode": "ANY", "allowed_function_names": ["weather"]}
    assert gemini.encode(sent)["config"]["tool_config"]["function_calling_config"] == forced


PERSON: dict[str, Any] = {"type": "object", "properties": {"friend": {"$ref": "#/$defs/person"}}}


@pytest.mark.parametrize(
    ("model", "schema", "native"),
    [
        ("claude-sonnet-4-5", SCHEMA, True),
        ("claude-opus-4-1-20250805", SCHEMA, True),
        ("claude-sonnet-4-20250514", SCHEMA, False),
        ("claude-3-7-sonnet-latest", SCHEMA, False),
        ("claude-sonnet-4-5", {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}, False),
        ("claude-sonnet-4-5", {"type": "object", "additionalProperties": {"type": "string"}}, False),
        ("claude-sonnet-4-5", {"type": "object", "properties": {"any": {"type": "object"}}}, False),
        ("claude-sonnet-4-5", {"type": "object", "properties": {"self": {"$ref": "#"}}}, False),
        ("claude-sonnet-4-5", PERSON | {"$defs": {"person": SCHEMA}}, True),
        ("claude-sonnet-4-5", PERSON | {"$defs": {"person": PERSON}}, False),
    ],
)
def test_claude_is_held_to_plain_schemas_only(model: str, schema: dict[str, Any], native: bool) -> None:
    assert anthropic.AnthropicProvider.constrains_answer(request(model=model, response_schema=schema)) is native


def test_no_claude_can_be_held_to_any_json() -> None:
    assert not anthropic.AnthropicProvider.constrains_answer(request(model="claude-sonnet-4-5", json_object=True))
    assert anthropic.AnthropicProvider.constrains_answer(request(model="claude-3-7-sonnet-latest"))


@pytest.mark.parametrize("settings", [{"response_schema": SCHEMA}, {"json_object": True}])
def test_gemini_before_3_is_held_to_json_without_tools_only(settings: dict[str, Any]) -> None:
    assert gemini.GeminiProvider.constrains_answer(request(model="gemini-2.5-flash", **settings))
    assert not gemini.GeminiProvider.constrains_answer(request(model="gemini-2.5-flash", tools=(WEATHER,), **settings))
    assert gemini.GeminiProvider.constrains_answer(request(model="gemini-3.5-flash", tools=(WEATHER,), **settings))
    assert gemini.GeminiProvider.constrains_answer(request(model="gemini-2.5-flash", tools=(WEATHER,)))


def test_a_schema_is_closed_at_every_depth() -> None:
    nested = {"type": "array", "items": {"anyOf": [SCHEMA, {"type": "null"}]}}
    form = anthropic.encode(request(response_schema=nested))["output_config"]["format"]["schema"]
    assert form["items"]["anyOf"][0]["additionalProperties"] is False


# --- media


def test_media_are_encoded_for_each_vendor() -> None:
    sent = request(Message("user", "look", media=(PNG, PDF, NOTE, ZIP)))
    png, pdf = (base64.b64encode(media.data or b"").decode() for media in (PNG, PDF))
    [message] = openai.encode(sent)["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "file", "text", "text"]
    assert message["content"][1]["image_url"]["url"] == f"data:image/png;base64,{png}"
    [item] = openai_responses.encode(sent)["input"]
    assert [part["type"] for part in item["content"]] == [
        *("input_text", "input_image", "input_file", "input_text", "input_text")
    ]
    [message] = anthropic.encode(sent)["messages"]
    assert message["content"][2] == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
    }
    assert message["content"][3]["text"] == "[note.txt]\nread me"
    assert "a.zip" in message["content"][4]["text"]
    [content] = gemini.encode(sent)["contents"]
    assert content["parts"][1] == {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}}


@pytest.mark.parametrize("mime_type", ["image/tiff", "image/svg+xml", "application/zip", "x/y"])
def test_a_file_that_a_vendor_rejects_becomes_a_note(mime_type: str) -> None:
    sent = request(Message("user", "look", media=(Media(mime_type, b"<svg/>", name="odd"),)))
    words = [
        openai.encode(sent)["messages"][0]["content"][1],
        openai_responses.encode(sent)["input"][0]["content"][1],
        anthropic.encode(sent)["messages"][0]["content"][1],
        gemini.encode(sent)["contents"][0]["parts"][1],
    ]
    assert all(word["text"].startswith("[odd") for word in words), words


def test_gemini_reads_text_files_as_text_and_no_gif() -> None:
    sent = request(Message("user", "look", media=(NOTE, Media("image/gif", b"GIF89a", name="a.gif"))))
    [content] = gemini.encode(sent)["contents"]
    assert content["parts"][1] == {"text": "[note.txt]\nread me"}
    assert "a.gif" in content["parts"][2]["text"]


def test_media_by_address() -> None:
    address = Media("image/png", uri="https://example.com/a.png")
    sent = request(Message("user", "", media=(address,)))
    assert openai.encode(sent)["messages"][0]["content"][0]["image_url"]["url"] == address.uri
    assert anthropic.encode(sent)["messages"][0]["content"][0]["source"] == {"type": "url", "url": address.uri}
    assert gemini.encode(sent)["contents"][0]["parts"][0]["file_data"]["file_uri"] == address.uri
    assert openai_responses.encode(sent)["input"][0]["content"][0]["image_url"] == address.uri


def test_an_image_of_a_tool_follows_all_results() -> None:
    turn = Message("assistant", tool_calls=(ToolCall("c1", "draw", {}), ToolCall("c2", "draw", {})))
    first = Message("tool", tool_calls=(ToolCall("c1", "draw", output={"ok": 1}),), media=(PNG,))
    second = Message("tool", tool_calls=(ToolCall("c2", "draw", output={"ok": 2}),))
    sent = request(USER, turn, first, second)
    assert [message["role"] for message in openai.encode(sent)["messages"]] == [
        *("user", "assistant", "tool", "tool", "user")
    ]
    blocks = anthropic.encode(sent)["messages"][2]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "image"]
    contents = gemini.encode(sent)["contents"]
    assert [len(content["parts"]) for content in contents] == [1, 2, 2, 1]


def test_an_error_result_is_marked_for_anthropic() -> None:
    turn = Message("assistant", tool_calls=(ToolCall("c1", "a", {}),))
    sent = request(USER, turn, Message("tool", tool_calls=(ToolCall("c1", "a", output={"error": "no"}),)))
    assert anthropic.encode(sent)["messages"][2]["content"][0]["is_error"] is True


def test_openai_gets_audio() -> None:
    [message] = openai.encode(request(Message("user", media=(Media("audio/wav", b"RIFF"),))))["messages"]
    assert message["content"] == [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]


# --- signatures

GEMINI = "gemini-3.5-flash"
CLAUDE = "claude-opus-4-6"
GPT = "gpt-5.2"
REASONING: dict[str, Any] = {"id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}


def by(provider: str, model: str, value: bytes | str) -> Signature:
    return Signature(provider, model, value.encode() if isinstance(value, str) else value)


def step(
    call: ToolCall, *more: ToolCall, text: str = "", thoughts: tuple[Thought, ...] = ()
) -> tuple[Message, Message]:
    calls = (call, *more)
    results = tuple(ToolCall(one.id, one.name, output={"ok": True}) for one in calls)
    return Message("assistant", text, calls, thoughts=thoughts), Message("tool", "", results)


def test_gemini_gets_its_signature_on_the_first_call_of_each_step() -> None:
    signed = ToolCall("c1", "a", {}, signature=by("gemini", GEMINI, b"\x01"))
    sent = request(USER, *step(signed, ToolCall("c2", "b", {})), *step(ToolCall("c3", "a", {})), model=GEMINI)
    contents = gemini.encode(sent)["contents"]
    first, sibling = contents[1]["parts"]
    assert first["thought_signature"] == b"\x01"
    assert "thought_signature" not in sibling
    assert contents[3]["parts"][0]["thought_signature"] == gemini.PLACEHOLDER_SIGNATURE


def test_gemini_gets_no_placeholder_in_earlier_turns() -> None:
    sent = request(USER, *step(ToolCall("c1", "a", {})), Message("user", "and now?"), model=GEMINI)
    assert "thought_signature" not in gemini.encode(sent)["contents"][1]["parts"][0]


def test_gemini_gets_the_signature_of_its_text_back() -> None:
    answer = Message("assistant", "hello", signature=by("gemini", GEMINI, b"\x02"))
    contents = gemini.encode(request(USER, answer, USER, model=GEMINI))["contents"]
    assert contents[1]["parts"] == [{"text": "hello", "thought_signature": b"\x02"}]


def test_gemini_gets_an_answer_and_the_calls_after_it_as_one_turn() -> None:
    sent = request(USER, Message("assistant", "Let me see."), *step(ToolCall("c1", "a", {})), model=GEMINI)
    assert [content["role"] for content in gemini.encode(sent)["contents"]] == ["user", "model", "user"]


def test_anthropic_gets_its_thinking_back_unchanged() -> None:
    thoughts = (
        Thought("First I look.\n", by("anthropic", CLAUDE, "c2ln")),
        Thought(signature=by("anthropic", CLAUDE, "redacted:ZGF0YQ")),
        Thought("without a signature"),
    )
    late = by("anthropic", CLAUDE, json.dumps([{"type": "thinking", "thinking": "hm", "signature": "eA=="}]))
    sent = request(USER, *step(ToolCall("c1", "a", {}, signature=late), text="So.", thoughts=thoughts), model=CLAUDE)
    assert anthropic.encode(sent)["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "First I look.\n", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ"},
        {"type": "text", "text": "So."},
        {"type": "thinking", "thinking": "hm", "signature": "eA=="},
        {"type": "tool_use", "id": "c1", "name": "a", "input": {}},
    ]


def test_anthropic_gets_no_thinking_after_a_cut_and_does_not_think_in_that_step() -> None:
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    turn = step(ToolCall("c1", "a", {}), thoughts=(Thought("hm", by("anthropic", CLAUDE, "c2ln")),))
    whole = anthropic.encode(request(USER, *turn, model=CLAUDE, temperature=1.0), options=options)
    assert whole["messages"][1]["content"][0]["type"] == "thinking"
    assert whole["thinking"] == options["thinking"]
    assert "temperature" not in whole
    cut = anthropic.encode(request(USER, *turn, model=CLAUDE, cut=True), options=options)
    assert [block["type"] for block in cut["messages"][1]["content"]] == ["tool_use"]
    assert "thinking" not in cut


def test_claude_does_not_think_before_a_forced_call() -> None:
    sent = request(model=CLAUDE, tools=(WEATHER,), tool_choice="required")
    body = anthropic.encode(sent, options={"thinking": {"type": "adaptive"}})
    assert (body["tool_choice"], "thinking" in body) == ({"type": "any"}, False), "the API rejects both together"
    assert anthropic.encode(sent, options={"thinking": {"type": "disabled"}})["tool_choice"] == {"type": "any"}


def test_responses_get_reasoning_back_before_what_it_was_made_for() -> None:
    first = by("openai", GPT, json.dumps(REASONING))
    second = by("openai", GPT, json.dumps(REASONING | {"id": "rs_2"}))
    turn = step(ToolCall("c1", "a", {}, signature=second), text="So.", thoughts=(Thought("hm", first),))
    items = openai_responses.encode(request(USER, *turn, model=GPT))["input"]
    assert [item.get("id") or item["type"] for item in items] == [
        *("message", "rs_1", "message", "rs_2", "function_call", "function_call_output")
    ]


def test_responses_get_no_reasoning_whose_item_is_gone() -> None:
    mine = by("openai", GPT, json.dumps(REASONING))
    empty = Message("assistant", thoughts=(Thought("hm", mine),))
    assert [item["type"] for item in openai_responses.encode(request(USER, empty, USER, model=GPT))["input"]] == [
        *("message", "message")
    ]


def test_responses_leave_out_reasoning_whose_message_was_emptied() -> None:
    first = by("openai", GPT, json.dumps(REASONING))
    second = by("openai", GPT, json.dumps(REASONING | {"id": "rs_2"}))
    turn = step(ToolCall("c1", "a", {}, signature=second), text=" ", thoughts=(Thought("hm", first),))
    items = openai_responses.encode(request(USER, *turn, model=GPT))["input"]
    assert [item.get("id") or item["type"] for item in items] == [
        *("message", "rs_2", "function_call", "function_call_output")
    ]


# --- a change of provider

VENDORS = {
    "gemini": (GEMINI, b"\x01signed"),
    "anthropic": (CLAUDE, b"c2lnbmVk"),
    "openai": (GPT, json.dumps(REASONING).encode()),
}


@pytest.mark.parametrize("maker", VENDORS)
@pytest.mark.parametrize("reader", ["gemini", "anthropic", "openai", "chat"])
def test_m8_a_session_continues_with_another_provider(maker: str, reader: str) -> None:
    made_by, value = VENDORS[maker]
    mark = Signature(maker, made_by, value)
    call, result = step(
        ToolCall("call_1", "weather", {"city": "Paris"}, signature=mark),
        ToolCall("call_2", "weather", {"city": "Rome"}),
        text="Let me see.",
        thoughts=(Thought("Two calls.", mark),),
    )
    history = (USER, call, result, Message("assistant", "Sunny.", signature=mark), USER, call, result)
    model = GPT if reader == "chat" else VENDORS[reader][0]
    sent = request(*history, model=model)
    own = wire_rules.own_signatures(history, reader, model)
    match reader:
        case "gemini":
            body, broken = gemini.encode(sent), wire_rules.gemini(gemini.encode(sent), own)
        case "anthropic":
            body, broken = anthropic.encode(sent), wire_rules.anthropic(anthropic.encode(sent), own)
        case "openai":
            body, broken = (
                openai_responses.encode(sent),
                wire_rules.openai_responses(openai_responses.encode(sent), own),
            )
        case _:
            body, broken = openai.encode(sent), wire_rules.openai_chat(openai.encode(sent))
    assert broken == []
    foreign = value if reader == "gemini" else value.decode("latin-1")
    text = repr(body)
    assert text.count("Let me see.") == 2
    assert text.count("Rome") == 4  # twice from the user, twice from the model
    if reader != maker:
        assert repr(foreign)[2:-1] not in text
