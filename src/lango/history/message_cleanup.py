"""Clean single messages: empty parts, values that are not JSON, signatures of other models."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from lango.history.tokens import replace_surrogates
from lango.messages import Message, Signature, Thought, ToolCall

MAX_NAME_LENGTH = 64
UNNAMED = "unknown"
"""The name of a call or result that has none."""
_NAME = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_NAME_LENGTH}}}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]")
_MAX_DEPTH = 100
_STRICT_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def clean_message(message: Message) -> Message:
    """Remove blank text, empty thoughts and empty media from a message, and replace text that cannot be encoded.

    A clean message is returned as the same object: this runs over the whole history before every model call.
    """
    content = clean_text(message.content)
    content = content if content.strip() else ""
    thoughts, media = message.thoughts, message.media
    if thoughts:
        thoughts = tuple(_clean_thought(thought) for thought in thoughts if thought.text or thought.signature)
    if media:
        media = tuple(item for item in media if item.data or item.uri)
    calls = tuple([_clean_call(call) for call in message.tool_calls])
    clean = (content, thoughts, media, calls)
    if clean == (message.content, message.thoughts, message.media, message.tool_calls):
        return message
    return replace(message, content=content, thoughts=thoughts, media=media, tool_calls=calls)


def clean_text(text: str) -> str:
    """Replace lone surrogates in a text: a request with one cannot be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text)
    return text


def clean_json(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same object if it is JSON, else a copy with values that are not JSON as text."""
    try:
        _STRICT_ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError):
        return cast("dict[str, Any]", _jsonable(value, 0))
    return value


def _jsonable(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:  # a cycle, or deeper than any provider accepts
        return "[nested too deeply]"
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean_text(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            return {clean_text(str(key)): _jsonable(item, depth + 1) for key, item in pairs}
        case list() | tuple():
            return [_jsonable(item, depth + 1) for item in cast("Sequence[Any]", value)]
        case _:
            return clean_text(str(value))


def _clean_thought(thought: Thought) -> Thought:
    text = clean_text(thought.text)
    return thought if text is thought.text else replace(thought, text=text)


def _clean_call(call: ToolCall) -> ToolCall:
    name = call.name if _NAME.fullmatch(call.name) else _NOT_IN_NAMES.sub("_", call.name)[:MAX_NAME_LENGTH] or UNNAMED
    arguments = None if call.input is None else clean_json(call.input)
    output = None if call.output is None else clean_json(call.output)
    if name is call.name and arguments is call.input and output is call.output:
        return call
    return replace(call, name=name, input=arguments, output=output)


def keep_signatures(messages: Iterable[Message], provider: str, model: str) -> list[Message]:
    """Remove the signatures of other providers and models from messages.

    A thought that was only such a signature is removed; a thought with text stays, unsigned.
    """

    def own(signature: Signature | None) -> Signature | None:
        return signature if signature and (signature.provider, signature.model) == (provider, model) else None

    def kept(message: Message) -> Message:
        if not (message.signature or message.thoughts or any(call.signature for call in message.tool_calls)):
            return message
        thoughts = (replace(thought, signature=own(thought.signature)) for thought in message.thoughts)
        return replace(
            message,
            signature=own(message.signature),
            thoughts=tuple(thought for thought in thoughts if thought.text or thought.signature),
            tool_calls=tuple(replace(call, signature=own(call.signature)) for call in message.tool_calls),
        )

    return [kept(message) for message in messages]
