"""The messages of an AG-UI client after text was withdrawn."""

from ag_ui.core import AssistantMessage, ReasoningMessage, ToolMessage, UserMessage

from lango.events import IDS_PER_TURN, TextDelta, TextWithdrawn, ThoughtDelta
from lango.server.compat.agui.agui_events import RunMessages


def test_a_snapshot_has_all_but_the_withdrawn_text() -> None:
    asked = UserMessage(id="u", content="hi")
    messages = RunMessages([asked])
    messages.add_text("m1", TextDelta(1, "I note. ", "a", 1))
    messages.add_call("c1", "note", '{"text": "this"}')
    messages.add_result("m3", "c1", '{"noted": "this"}')
    messages.add_text("m4", ThoughtDelta(4, "hm", "a", 2))
    messages.add_text("m5", TextDelta(5, "an", "b", 3))
    messages.add_text("m6", TextDelta(6, "half of", "a", 2))
    messages.add_text("m5", TextDelta(7, "other ", "b", 3))
    messages.add_text("m6", TextDelta(8, " it", "a", 2))
    snapshot = messages.withdraw(TextWithdrawn(9, 2, "a"))
    assert snapshot
    before, first, call, result, thought, other = snapshot.messages
    assert before == asked
    assert first == AssistantMessage(id="m1", content="I note. ", name="a")
    assert isinstance(call, AssistantMessage)
    assert call.tool_calls
    assert (call.tool_calls[0].id, call.tool_calls[0].function.name) == ("c1", "note")
    assert result == ToolMessage(id="m3", tool_call_id="c1", content='{"noted": "this"}')
    assert thought == ReasoningMessage(id="m4", content=""), "clients keep reasoning that a snapshot leaves out"
    assert other == AssistantMessage(id="m5", content="another ", name="b"), "the text of another block stays"


def test_nothing_is_replaced_if_no_text_was_sent() -> None:
    messages = RunMessages([])
    messages.add_text("m1", TextDelta(1, "stays", "a", 1))
    assert messages.withdraw(TextWithdrawn(5, 2, "a")) is None
    of_next_turn = TextWithdrawn(IDS_PER_TURN + 6, 1, "a")
    assert messages.withdraw(of_next_turn) is None
