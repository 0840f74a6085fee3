"""The conversation that an OpenAI client carries, as messages: what the model reads where no session is named.

System and developer messages are left out: the instruction is the agent's. Results stand right after the message that
made their calls. What cannot be read further up is told to the model in its place: only the last message is refused.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct, field

from lango.config import ServerSettings
from lango.json_input import is_deeper_than
from lango.messages import Attachment, Media, Message, ToolCall
from lango.server.compat.inline_files import NOT_READ
from lango.server.compat.openai.chat_request import ChatCall, ChatMessage
from lango.server.errors import Refused

_NO_CALL = "[a tool returned this; its call is not part of this history] "
_DEEPEST = 100


class _Said(Struct):
    """A message, and what was returned to its calls."""

    message: Message
    results: list[ToolCall] = field(default_factory=list[ToolCall])


def read_history(sent: Sequence[ChatMessage], limits: ServerSettings) -> list[Message]:
    """Return what a client carries, in order. Raise `Refused` for what no model could read."""
    said: list[_Said] = []
    waiting: dict[str, tuple[_Said, ToolCall]] = {}
    for place, one in enumerate(sent, 1):
        match one.role:
            case "user":
                message = read_user(one, limits, last=place == len(sent))
            case "assistant":
                message = Message("assistant", one.text, tuple(_call(call) for call in one.tool_calls or ()))
            case "tool":
                message = _take_result(one, waiting)
            case _:
                continue
        if message and (message.content or message.media or message.tool_calls):
            said.append(_Said(message))
            waiting |= {call.id: (said[-1], call) for call in message.tool_calls}
    return [message for one in said for message in _flat(one)]


def read_user(one: ChatMessage, limits: ServerSettings, *, last: bool) -> Message:
    """Return a user's message. Raise `Refused` for a file that cannot be read, if it is the last one's."""
    try:
        files, note = one.read_files(limits), ""
    except Refused:
        if last:
            raise
        files, note = list[Attachment](), NOT_READ * len(one.others)
    media = [Media(file.mime_type, file.data, name=file.name) for file in files]
    return Message("user", one.text + note, media=tuple(media))


def _call(call: ChatCall) -> ToolCall:
    function = call.function
    if function is None or not function.name or not call.id:
        raise Refused(400, "BadRequest", "messages: a call needs its id, and the name of its function")
    try:
        arguments: Any = json.loads(function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_deeper_than(arguments, _DEEPEST):
        return ToolCall(call.id, function.name, {"arguments": function.arguments})
    return ToolCall(call.id, function.name, cast("dict[str, Any]", arguments))


def _take_result(one: ChatMessage, waiting: dict[str, tuple[_Said, ToolCall]]) -> Message | None:
    """Give a result to its call; return one without a call as text."""
    made = waiting.pop(one.tool_call_id or "", None)
    result = one.spoken.result
    if made is None:
        return Message("user", _NO_CALL + json.dumps(result))
    said, call = made
    said.results.append(ToolCall(call.id, call.name, output=result))
    return None


def _flat(one: _Said) -> list[Message]:
    return [one.message, Message("tool", tool_calls=tuple(one.results))] if one.results else [one.message]
