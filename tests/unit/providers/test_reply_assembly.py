"""Deltas are assembled to the same reply however the stream was cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import ProviderProtocolError
from lango.messages import Signature, Thought, ToolCall
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, ThoughtDelta, UsageDelta
from lango.providers.reply_assembly import Reply, ReplyAssembler

SIGNED = Signature("p", "m", b"s")


def assembled(*deltas: Delta) -> Reply:
    assembler = ReplyAssembler("p")
    for delta in deltas:
        assembler.add(delta)
    return assembler.reply()


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[list[Delta], list[Delta]]:
    """Return a stream in as few deltas as possible, and the same stream cut anywhere, with empty deltas between."""
    whole: list[Delta] = []
    cut: list[Delta] = []

    def pieces(text: str) -> list[str]:
        at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
        return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]

    for thought in draw(st.lists(st.text(max_size=8), max_size=2)):
        whole.append(ThoughtDelta(thought, SIGNED))
        cut += [*(ThoughtDelta(piece) for piece in pieces(thought)), ThoughtDelta(signature=SIGNED)]
    text = draw(st.text(max_size=12))
    whole.append(TextDelta(text))
    cut += [TextDelta(piece) for piece in pieces(text)]
    calls: list[list[Delta]] = []
    for index, name in enumerate(draw(st.lists(st.sampled_from(["exec", "search_web"]), max_size=3))):
        arguments = json.dumps(draw(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)))
        whole.append(CallDelta(index, f"c{index}", name, arguments))
        names = [CallDelta(index, name=piece) for piece in pieces(name)]
        calls.append(
            [CallDelta(index, f"c{index}"), *names, *(CallDelta(index, arguments=a) for a in pieces(arguments))]
        )
    while any(calls):  # parallel calls may arrive interleaved
        cut.append(draw(st.sampled_from([queue for queue in calls if queue])).pop(0))
    whole += [UsageDelta(7, 9), Finish("stop")]
    cut += [UsageDelta(7), UsageDelta(output_tokens=9), Finish("stop")]
    return whole, cut


@given(cut_streams())
def test_m7_any_way_of_cutting_a_stream_gives_the_same_reply(streams: tuple[list[Delta], list[Delta]]) -> None:
    whole, cut = streams
    assert assembled(*whole) == assembled(*cut)


def test_m7_pieces_of_a_call_are_assembled_by_index() -> None:
    reply = assembled(
        CallDelta(1, "c2", "search"),
        CallDelta(0, "c1", "exec", '{"cmd"'),
        CallDelta(1, arguments='{"q": 1}'),
        CallDelta(0, "c1", "exec", ': "ls"}', SIGNED),  # some servers repeat id and name
        Finish("tool_calls"),
    )
    assert reply.calls == (ToolCall("c1", "exec", {"cmd": "ls"}, signature=SIGNED), ToolCall("c2", "search", {"q": 1}))


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_m7_a_call_without_arguments_is_called_with_none(arguments: str) -> None:
    assert assembled(CallDelta(0, "c1", "exec", arguments), Finish("stop")).calls == (ToolCall("c1", "exec", {}),)


@pytest.mark.parametrize("arguments", ['{"cmd":', "[1]", '"text"', "null", '{"n": NaN}', "[" * 100_000, "ls -l"])
def test_m7_arguments_that_are_no_json_object_are_malformed(arguments: str) -> None:
    reply = assembled(CallDelta(0, "c1", "exec", arguments), CallDelta(1, "c2", "exec", "{}"), Finish("stop"))
    assert [call.id for call in reply.calls] == ["c2"]
    assert [(call.id, call.arguments) for call in reply.malformed] == [("c1", arguments)]
    assert "JSON" in reply.malformed[0].problem


def test_m7_arguments_too_deep_to_be_stored_never_run() -> None:
    deep = CallDelta(0, "c1", "f", '{"a":' * 300 + "1" + "}" * 300)
    reply = assembled(deep, CallDelta(1, "c2", "f", '{"a":' * 90 + "[]" + "}" * 90), Finish("tool_calls"))
    assert [call.id for call in reply.calls] == ["c2"]
    assert "100 levels deep" in reply.malformed[0].problem


def test_m7_a_call_without_a_name_is_malformed() -> None:
    [call] = assembled(CallDelta(0, "c1", arguments="{}"), Finish("stop")).malformed
    assert "name" in call.problem


def test_thoughts_end_with_their_signature_or_with_text() -> None:
    reply = assembled(
        ThoughtDelta("a"),
        ThoughtDelta("b", SIGNED),
        ThoughtDelta(signature=SIGNED),
        ThoughtDelta("c"),
        TextDelta(""),
        ThoughtDelta("d"),
        TextDelta("said"),
        ThoughtDelta("e"),
        Finish("stop"),
    )
    assert reply.thoughts == (Thought("ab", SIGNED), Thought("", SIGNED), Thought("cd"), Thought("e"))
    assert reply.text == "said"


def test_m4_a_stream_without_an_end_is_broken() -> None:
    with pytest.raises(ProviderProtocolError, match="before the answer was finished") as caught:
        assembled(TextDelta("half"))
    assert caught.value.provider == "p"


def test_m4_a_stream_that_goes_on_after_its_end_is_broken() -> None:
    with pytest.raises(ProviderProtocolError, match="after its end"):
        assembled(Finish("stop"), TextDelta("more"))


def test_later_usage_replaces_the_fields_that_it_sets() -> None:
    usage: Any = assembled(UsageDelta(1, 2, 3), UsageDelta(output_tokens=9, thought_tokens=4), Finish("stop")).usage
    assert usage == UsageDelta(1, 9, 3, 4)
