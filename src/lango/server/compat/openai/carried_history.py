"""Turn the messages of a chat request into stored messages. Results follow the message with their calls."""

import json
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from lango.config import ServerLimits
from lango.json_values import is_nested_deeper_than
from lango.messages import Message, ToolCall
from lango.server.compat.openai.chat_request import ChatCall, ChatMessage
from lango.server.errors import bad_request

_RESULT_WITHOUT_CALL = "[tool result; its call is not in this history] "
_MAX_DEPTH = 100


class _MessageWithResults(Struct):
    """A message and the results of its calls."""

    message: Message
    results: list[ToolCall] = []


def read_history(sent: Sequence[ChatMessage], limits: ServerLimits) -> list[Message]:
    """Return a conversation as a history, in order. Raise `ApiError` for messages that no model could read."""
    messages: list[_MessageWithResults] = []
    open_calls: dict[str, tuple[_MessageWithResults, ToolCall]] = {}
    for position, sent_message in enumerate(sent, 1):
        match sent_message.role:
            case "user":
                message = sent_message.to_user_message(limits, last=position == len(sent))
            case "assistant":
                message = Message(
                    "assistant", sent_message.text, tuple(_to_tool_call(call) for call in sent_message.tool_calls or ())
                )
            case "tool":
                message = _attach_result(sent_message, open_calls)
            case _:
                continue
        if message and (message.content or message.media or message.tool_calls):
            messages.append(_MessageWithResults(message))
            open_calls |= {call.id: (messages[-1], call) for call in message.tool_calls}
    return [message for with_results in messages for message in _flatten(with_results)]


def _to_tool_call(call: ChatCall) -> ToolCall:
    function = call.function
    if function is None or not function.name or not call.id:
        raise bad_request("messages: a tool call needs an id and the name of its function")
    try:
        arguments: Any = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_nested_deeper_than(arguments, _MAX_DEPTH):
        return ToolCall(call.id, function.name, {"arguments": function.arguments})
    return ToolCall(call.id, function.name, cast("dict[str, Any]", arguments))


def _attach_result(message: ChatMessage, open_calls: dict[str, tuple[_MessageWithResults, ToolCall]]) -> Message | None:
    """Attach a result to its call; return a result without a call as text."""
    found = open_calls.pop(message.tool_call_id or "", None)
    result = message.calls.result
    if found is None:
        return Message("user", _RESULT_WITHOUT_CALL + json.dumps(result))
    owner, call = found
    owner.results.append(ToolCall(call.id, call.name, output=result))
    return None


def _flatten(owner: _MessageWithResults) -> list[Message]:
    results = [Message("tool", tool_calls=tuple(owner.results))] if owner.results else []
    return [owner.message, *results]
