"""The vocabulary of store and providers."""

from lango.messages import Message, Thought, ToolCall


def test_a_message_takes_any_sequence_and_keeps_tuples() -> None:
    call = ToolCall("c", "f", {})
    message = Message("assistant", "", [call], thoughts=[Thought("hm")])  # pyright: ignore[reportArgumentType]
    assert message == Message("assistant", "", (call,), thoughts=(Thought("hm"),))
