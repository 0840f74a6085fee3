"""Messages and events: the vocabulary of store and providers."""

import json

from lango.events import TurnDone, Usage, to_json
from lango.messages import Message, Thought, ToolCall


def test_a_message_takes_any_sequence_and_keeps_tuples() -> None:
    call = ToolCall("c", "f", {})
    message = Message("assistant", "", [call], thoughts=[Thought("hm")])  # pyright: ignore[reportArgumentType]
    assert message == Message("assistant", "", (call,), thoughts=(Thought("hm"),))


def test_an_event_with_usage_is_json() -> None:
    done = to_json(TurnDone(1, 1, usage=Usage(input_tokens=3)))
    assert done["usage"]["input_tokens"] == 3
    assert json.loads(json.dumps(done)) == done | {"waits": []}
