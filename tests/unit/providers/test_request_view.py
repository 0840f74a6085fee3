"""The bodies of all vendors are read as the same request, and two requests are compared."""

import re
from typing import Any

import pytest
from msgspec import json, to_builtins
from msgspec.structs import replace

from lango.messages import Media, Message, ToolCall
from lango.providers import Request, TextDelta, ToolSpec, anthropic, gemini, openai, openai_responses
from lango.providers.protocol import CallDelta, Finish, ThoughtDelta, UsageDelta
from lango.providers.reply_assembly import ReplyAssembler
from lango.providers.request_view import CallView, MessageView, RequestView, ToolView, request_changes, request_view

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = ToolCall("call_1", "weather", {"city": "Bern"})
REQUEST = Request(
    "m",
    (
        Message("user", "What is this?", media=(Media("image/png", b"\x89PNG"),)),
        Message("assistant", "Let me see.", (CALL,)),
        Message("tool", "", (ToolCall("call_1", "weather", output={"sky": "clear"}),)),
    ),
    system="Be brief.",
    tools=(ToolSpec("weather", "What is the weather?", SCHEMA),),
    temperature=0.5,
)


def _camel(value: Any) -> Any:
    """Write the names as Gemini's REST API has them."""
    text = json.encode(value).decode()
    return json.decode(re.sub(r'"([a-z]+)_([a-z])([a-z]*)":', lambda m: f'"{m[1]}{m[2].upper()}{m[3]}":', text))


def _plain(body: Any) -> Any:
    return json.decode(json.encode(body))


BODIES = {
    "openai": lambda: openai.encode(REQUEST),
    "responses": lambda: openai_responses.encode(REQUEST),
    "anthropic": lambda: anthropic.encode(REQUEST),
    "adk": lambda: gemini.encode(REQUEST),
    "gemini": lambda: _camel(gemini.encode(REQUEST)),
    "lango": lambda: to_builtins(REQUEST),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_the_body_of_every_vendor_is_read_as_the_same_request(body: Any) -> None:
    view = request_view(_plain(body()))
    assert view.system == "Be brief."
    [tool] = view.tools
    assert (tool.name, tool.description) == ("weather", "What is the weather?")
    assert tool.parameters["properties"].keys() == {"city"}
    assert view.options.get("temperature", 0.5) == 0.5  # not all send it
    assert view.options["model"] == "m"
    assert not {"messages", "contents", "input", "system", "tools"} & view.options.keys()
    assert "What is this?" in view.messages[0].text
    assert len(view.messages[0].files) == 1
    texts = [message.text for message in view.messages if message.text]
    assert texts[1:] == ["Let me see."], "results are no texts"
    calls = [call for message in view.messages for call in message.calls]
    results = [result for message in view.messages for result in message.results]
    assert [(call.name, call.value) for call in calls] == [("weather", {"city": "Bern"})]
    assert [result.value for result in results] == [{"sky": "clear"}]


@pytest.mark.parametrize("body", [None, "cut off... (9 bytes in all)", [], {"messages": "?"}, {"messages": [1, None]}])
def test_a_body_that_was_cut_is_read_as_far_as_it_goes(body: Any) -> None:
    assert request_view(body).tools == []


def test_two_requests_are_compared() -> None:
    first = RequestView("Be brief.\nBe kind.", [MessageView("user", "a"), MessageView("user", "b")], [], {"top_p": 1})
    tool = ToolView("look", "Look.", {})
    added = [MessageView("assistant", "c"), MessageView("user", "d")]
    second = RequestView("Be brief.\nBe rude.", [first.messages[1], *added], [tool], {"top_p": 1, "stop": ["x"]})
    changes = request_changes(first, second)
    assert changes.system.splitlines() == ["@@ -1,2 +1,2 @@", " Be brief.", "-Be kind.", "+Be rude."]
    assert (changes.added_messages, changes.removed_messages) == ([1, 2], [first.messages[0]])
    assert (changes.added_tools, changes.removed_tools, changes.changed_tools) == (["look"], [], [])
    assert [(one.name, one.before, one.after) for one in changes.options] == [("stop", None, ["x"])]
    third = replace(second, tools=[replace(tool, description="See.")])
    assert request_changes(second, third).changed_tools == ["look"]
    assert request_changes(second, second).added_messages == []


def test_an_answer_is_merged_while_it_comes() -> None:
    parts = ReplyAssembler()
    assert parts.to_json() is None
    pieces = [CallDelta(0, "c1", "look", '{"a":'), CallDelta(1, "c2", "see", "{"), CallDelta(0, arguments=" 1}")]
    end = [UsageDelta(5, None), UsageDelta(None, 2), Finish("tool_calls", "tool_use")]
    for delta in [ThoughtDelta("hm"), TextDelta("Let "), TextDelta("me."), *pieces, *end]:
        parts.add(delta)
    assert parts.to_json() == {
        "text": "Let me.",
        "thoughts": "hm",
        "calls": [{"id": "c1", "name": "look", "arguments": {"a": 1}}, {"id": "c2", "name": "see", "arguments": "{"}],
        "finish": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }


def test_a_call_of_adk_keeps_its_id() -> None:
    part: dict[str, Any] = {"function_call": {"id": "adk-1", "name": "look", "args": {}}}
    view = request_view({"model": "m", "contents": [{"role": "model", "parts": [part]}], "config": {}})
    assert view.messages == [MessageView("model", calls=[CallView("adk-1", "look", {})])]
