"""JSON from an API that cannot constrain an answer: a tool that takes it, or an instruction."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.messages import Message
from lango.providers.protocol import CallDelta, Delta, Finish, Request, TextDelta, ThoughtDelta, ToolSpec, UsageDelta
from lango.providers.sdk.json_answers import stream_json
from tests.support.deltas import text_of

CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = ToolSpec("weather", "What is the weather?", CITY)
USAGE = UsageDelta(1, 1)
FREE = Request("m", (Message("user", "hi"),), system="Be kind.", json_object=True)
HELD = Request("m", (Message("user", "hi"),), response_schema=CITY, tools=(WEATHER,))


class Vendor:
    """Answers with fixed deltas, and keeps the request."""

    def __init__(self, *deltas: Delta) -> None:
        self.deltas = deltas
        self.closed = False
        self.sent = HELD

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.sent = request
        try:
            for delta in self.deltas:
                yield delta
        finally:
            self.closed = True


async def answer(vendor: Vendor, request: Request) -> list[Delta]:
    return [delta async for delta in stream_json(request, vendor.stream)]


async def test_a_tool_takes_the_answer_and_its_arguments_are_the_text() -> None:
    vendor = Vendor(
        TextDelta("Here you are: "),
        CallDelta(0, "c1", "final_answer"),
        CallDelta(0, arguments='{"city": '),
        CallDelta(0, arguments='"Rome"}'),
        USAGE,
        Finish("tool_calls", "tool_use"),
    )
    found = await answer(vendor, HELD)
    assert found == [TextDelta('{"city": '), TextDelta('"Rome"}'), USAGE, Finish("stop", "tool_use")]
    assert [tool.name for tool in vendor.sent.tools] == ["weather", "final_answer"]
    assert vendor.sent.tools[1].parameters == CITY
    assert (vendor.sent.tool_choice, vendor.sent.response_schema) == ("required", None)
    assert vendor.closed


async def test_another_tool_may_be_called_first() -> None:
    call, end = CallDelta(0, "c1", "weather", "{}"), Finish("tool_calls")
    assert await answer(Vendor(TextDelta("Let me see. "), call, end), HELD) == [call, end]


async def test_a_model_that_calls_nothing_has_its_text_as_the_answer() -> None:
    deltas = (TextDelta("I will not."), ThoughtDelta("hm"), Finish("safety"))
    assert await answer(Vendor(*deltas), HELD) == [ThoughtDelta("hm"), TextDelta("I will not."), Finish("safety")]


async def test_the_tool_that_takes_the_answer_has_a_name_of_its_own() -> None:
    vendor = Vendor(Finish("stop"))
    await answer(vendor, Request("m", HELD.messages, response_schema=CITY, tools=(ToolSpec("final_answer"),)))
    assert [tool.name for tool in vendor.sent.tools] == ["final_answer", "final_answer_"]


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_alone_or_if_no_tool_may_be_called_it_is_forced_by_its_name(choice: str) -> None:
    vendor = Vendor(Finish("stop"))
    tools = (WEATHER,) if choice == "none" else ()
    await answer(vendor, Request("m", HELD.messages, response_schema=CITY, tools=tools, tool_choice=choice))
    assert [tool.name for tool in vendor.sent.tools] == ["final_answer"]
    assert vendor.sent.tool_choice == "final_answer"


JSON_OBJECTS = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)


def in_pieces(text: str, sizes: Sequence[int]) -> list[Delta]:
    pieces: list[Delta] = []
    for size in (*sizes, len(text)):
        pieces.append(TextDelta(text[:size]))
        text = text[size:]
    return pieces


@given(JSON_OBJECTS, st.sampled_from(["", "```json\n", "Sure! "]), st.lists(st.integers(1, 9)), st.booleans())
async def test_of_a_free_answer_only_the_object_is_left(
    value: dict[str, Any], before: str, sizes: list[int], ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    vendor = Vendor(*in_pieces(f"{before}{text}\n``` {{}} done", sizes), USAGE, Finish("stop"))
    found = await answer(vendor, FREE)
    assert text_of(found) == text
    assert found == [USAGE, TextDelta(text), Finish("stop")]
    assert vendor.sent.system.startswith("Be kind.")
    assert ("JSON" in vendor.sent.system, vendor.sent.json_object) == (True, False)


async def test_text_without_an_object_and_calls_are_passed_on() -> None:
    call = CallDelta(0, "c1", "weather", "{}")
    assert await answer(Vendor(TextDelta("I will "), USAGE, TextDelta("not."), Finish("safety")), FREE) == [
        USAGE,
        TextDelta("I will not."),
        Finish("safety"),
    ]
    assert await answer(Vendor(call, Finish("tool_calls")), FREE) == [call, Finish("tool_calls")]
