"""Read the messages of a history that the model reads as a client sends it."""

import json
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from lango.json_values import is_nested_deeper_than
from lango.messages import Message, ToolCall
from lango.server.errors import bad_request

_RESULT_WITHOUT_CALL = "[tool result; its call is not in this history] "
_MAX_DEPTH = 100


def parse_arguments(text: str | None) -> dict[str, Any]:
    """Parse the arguments of a call; a text that is no JSON object is the only argument."""
    try:
        arguments: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_nested_deeper_than(arguments, _MAX_DEPTH):
        return {"arguments": text}
    return cast("dict[str, Any]", arguments)


class _MessageWithResults(Struct):
    """A message and the results of its calls."""

    message: Message
    results: list[ToolCall] = []


def to_history(sent: Sequence[Message]) -> list[Message]:
    """Return a conversation as a history: results follow the message with their calls, or are text without one.

    Raise `ApiError` for messages that no model could read.
    """
    messages: list[_MessageWithResults] = []
    open_calls: dict[str, tuple[_MessageWithResults, ToolCall]] = {}
    for message in sent:
        if message.role == "tool":
            [result] = message.tool_calls
            if (found := open_calls.pop(result.id, None)) is None:
                text = _RESULT_WITHOUT_CALL + json.dumps(result.output)
                messages.append(_MessageWithResults(Message("user", text)))
            else:
                owner, call = found
                owner.results.append(ToolCall(call.id, call.name, output=result.output))
        elif message.content or message.media or message.tool_calls:
            if not all(call.id and call.name for call in message.tool_calls):
                raise bad_request("messages: a tool call needs an id and the name of its function")
            messages.append(_MessageWithResults(message))
            open_calls |= {call.id: (messages[-1], call) for call in message.tool_calls}
    return [message for with_results in messages for message in _flatten(with_results)]


def _flatten(owner: _MessageWithResults) -> list[Message]:
    results = [Message("tool", tool_calls=tuple(owner.results))] if owner.results else []
    return [owner.message, *results]
