"""Prepare messages, signatures, media and schemas for any vendor's encoder."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from msgspec.structs import replace

from lango.history.history_repair import CONTINUE, repair
from lango.history.message_cleanup import clean_text, keep_signatures
from lango.messages import Media, Message, ToolCall
from lango.providers.protocol import Request

Json = dict[str, Any]

HISTORY_OPENING = "[The conversation so far:]"
"""First user message, for providers that require one, of a history that begins with the model."""

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that OpenAI and Anthropic accept."""
_PLAIN_KEYWORDS = frozenset(
    {"$defs", "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "const", "default", "definitions"}
    | {"description", "enum", "examples", "format", "items", "properties", "required", "title", "type"}
)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def prepare_messages(request: Request, provider: str) -> tuple[str, list[Message]]:
    """Return the system instruction, and the messages as every provider accepts them: paired, in order, none empty.

    All results of one assistant message become one message, with no image of a tool between them. Signatures of other
    providers and models, which they would reject, are left out.
    """
    texts, messages = [request.system], list[Message]()
    for message in repair(keep_signatures(request.messages, provider, request.model)):
        if message.role == "system":
            texts.append(message.content)
        elif message.role == "tool" and messages and messages[-1].role == "tool":
            first = messages[-1]
            calls, media = first.tool_calls + message.tool_calls, first.media + message.media
            messages[-1] = replace(first, tool_calls=calls, media=media)
        else:
            messages.append(message)
    system = clean_text("\n".join(text for text in texts if text.strip()))
    return system, messages or [Message("user", CONTINUE)]


def without_signatures(request: Request) -> Request:
    """Return the request without signatures."""
    return replace(request, messages=tuple(keep_signatures(request.messages, "", "")))


def valid_tool_name(name: str) -> str:
    """Return a tool's name with the characters that every vendor accepts; a valid name is unchanged."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "tool"


def to_json(value: object) -> str:
    """Encode a value as compact JSON; values of other types become text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def output_text(result: ToolCall) -> str:
    """Return a tool's result as text."""
    return to_json(result.output if result.output is not None else {})


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as the text of a JSON object."""
    return to_json(call.input or {})


def base64_of(media: Media) -> str:
    """Return the bytes of a file in base64."""
    return base64.b64encode(media.data or b"").decode("ascii")


def data_url(media: Media) -> str:
    """Return the URL of a file: its own, or a data URL with its bytes."""
    return media.uri if media.uri and not media.data else f"data:{media.mime_type};base64,{base64_of(media)}"


def media_text(media: Media) -> str:
    """Return the text of a text file, or a note in place of a file that the model cannot read."""
    label = media.name or media.mime_type or "file"
    note = f"[{label}: a file of type {media.mime_type or 'unknown'} that this model cannot read]"
    return media.text or note


def without_media(request: Request) -> Request:
    """Return the request with a note in place of each file, for a model that accepts only text."""
    return replace(request, messages=tuple(_media_as_text(message) for message in request.messages))


def _media_as_text(message: Message) -> Message:
    if not message.media:
        return message
    notes = "\n".join(media_text(media) for media in message.media)
    if message.role != "tool":
        return replace(message, content=f"{message.content}\n{notes}".strip(), media=())
    last = message.tool_calls[-1:]
    with_note = tuple(replace(call, output={**(call.output or {}), "files": notes}) for call in last)
    return replace(message, tool_calls=message.tool_calls[:-1] + with_note, media=())


def forbid_extra_properties(schema: Mapping[str, Any]) -> Json:
    """Return a JSON schema whose objects allow no further properties, as strict structured output requires."""
    closed = {key: _closed_value(value) for key, value in schema.items()}
    if closed.get("type") == "object" or "properties" in closed:
        closed["additionalProperties"] = False
    return closed


def is_plain_schema(schema: Mapping[str, Any]) -> bool:
    """Whether Anthropic accepts a schema of an answer: no open objects, no limits of values, no recursion."""
    definitions: Mapping[str, Any] = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
    order = TopologicalSorter({name: _references(definition) for name, definition in definitions.items()})
    try:
        order.prepare()
    except CycleError:
        return False
    return "#" not in _references(schema) and all(_is_plain(node) for node in [schema, *definitions.values()])


def _is_plain(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return True
    members = cast("Mapping[str, Any]", node)
    if not members.keys() <= _PLAIN_KEYWORDS or members.get("additionalProperties", False) is not False:
        return False
    if members.get("type") == "object" and not members.get("properties"):
        return False  # of any shape: closed, it would have to be empty
    inner: list[Any] = [
        *(members.get("properties") or {}).values(),
        members.get("items"),
        *(members.get("anyOf") or ()),
    ]
    return all(_is_plain(value) for value in (*inner, *(members.get("allOf") or ())))


def _references(node: Any) -> set[str]:
    """Return the names of the definitions that a schema refers to; `#` is the schema itself."""
    if isinstance(node, Mapping):
        members = cast("Mapping[str, Any]", node)
        found = {str(members["$ref"]).rpartition("/")[2]} if isinstance(members.get("$ref"), str) else set[str]()
        return found.union(*(_references(value) for value in members.values()))
    if isinstance(node, list):
        return set[str]().union(*(_references(value) for value in cast("list[Any]", node)))
    return set()


def is_strict(schema: object) -> bool:
    """Whether OpenAI accepts a schema as strict: every object closed, every property required."""
    if isinstance(schema, Mapping):
        node = cast("Mapping[str, Any]", schema)
        if node.get("type") == "object" or "properties" in node:
            properties: Mapping[str, Any] = node.get("properties") or {}
            if node.get("additionalProperties") is not False or set(node.get("required") or ()) != set(properties):
                return False
        return all(is_strict(value) for value in node.values())
    if isinstance(schema, list | tuple):
        return all(is_strict(item) for item in cast("Sequence[object]", schema))
    return True


def _closed_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return forbid_extra_properties(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_closed_value(item) for item in cast("list[Any]", value)]
    return value
