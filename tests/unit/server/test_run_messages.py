"""The messages of an AG-UI client after text was withdrawn."""

from ag_ui.core import AssistantMessage, ReasoningMessage, ToolMessage, UserMessage

from lango.events import TextDelta, TextWithdrawn, ThoughtDelta
from lango.server.compat.agui.agui_events import RunMessages


def test_a_snapshot_has_all_but_the_withdrawn_text() -> None:
    asked = UserMessage(id="u", content="hi")
    messages = RunMessages([asked])
    messages.add_text("m1", TextDelta(1, "I note. ", "a"))
    messages.add_call("c1", "note", '{"text": "this"}')
    messages.add_result("m3", "c1", '{"noted": "this"}')
    messages.add_text("m4", ThoughtDelta(4, "hm", "a"))
    messages.add_text("m5", TextDelta(5, "other ", "b"))
    messages.add_text("m5", TextDelta(6, "half of", "a"))
    messages.add_text("m7", TextDelta(7, " it", "a"))
    snapshot = messages.withdraw(TextWithdrawn(8, 3, "a"))
    assert snapshot
    before, first, call, result, thought, other = snapshot.messages
    assert before == asked
    assert first == AssistantMessage(id="m1", content="I note. ", name="a")
    assert isinstance(call, AssistantMessage)
    assert call.tool_calls
    assert (call.tool_calls[0].id, call.tool_calls[0].function.name) == ("c1", "note")
    assert result == ToolMessage(id="m3", tool_call_id="c1", content='{"noted": "this"}')
    assert thought == ReasoningMessage(id="m4", content=""), "clients keep reasoning that a snapshot leaves out"
    assert other == AssistantMessage(id="m5", content="other ", name="b"), "the text of another author stays"


def test_nothing_is_replaced_if_no_text_was_sent() -> None:
    messages = RunMessages([])
    messages.add_text("m1", TextDelta(1, "stays", "a"))
    assert messages.withdraw(TextWithdrawn(5, 1, "a")) is None
    assert messages.withdraw(TextWithdrawn(6, 0, "b")) is None
