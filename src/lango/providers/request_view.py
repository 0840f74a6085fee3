"""Read the body of a request to any vendor as people read it (system, messages, tools, options), and compare two.

Bodies are stored shortened and redacted, and those of ADK's own models differ from ours, so a part that is not
understood is left out; readers also get the body itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Any, cast

from msgspec import DecodeError, Struct, json

_MESSAGES = ("messages", "contents", "input")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_CONFIG = ("config", "generationConfig", "generation_config")
_TEXTS = ("text", "input_text", "output_text", "refusal")
_RESULTS = ("tool_result", "function_call_output")
_CALLS = ("tool_use", "function_call")

Json = Mapping[str, Any]


class CallView(Struct, frozen=True):
    """A tool call, or the result of one."""

    id: str
    name: str
    value: Any
    """The arguments, or the result."""


class MessageView(Struct, frozen=True):
    """A message as the model got it."""

    role: str
    text: str = ""
    thoughts: str = ""
    calls: Sequence[CallView] = []
    results: Sequence[CallView] = []
    files: Sequence[str] = []
    """The types of its files."""


class ToolView(Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Any


class RequestView(Struct, frozen=True):
    """What was sent to a model."""

    system: str
    messages: Sequence[MessageView]
    tools: Sequence[ToolView]
    options: Json
    """Everything else: the temperature, the limits, the format of the answer."""


def request_view(body: Any) -> RequestView:
    """Read a body in the form of OpenAI, OpenAI's responses, Anthropic, Gemini, ADK or Lango."""
    members = _json(body)
    options = {name: value for name, value in members.items() if name not in (*_MESSAGES, *_SYSTEM, *_CONFIG, "tools")}
    for name in _CONFIG:
        config = _json(members.get(name))
        options |= {name: value for name, value in config.items() if name not in (*_SYSTEM, "tools")}
        members = {**{name: config[name] for name in (*_SYSTEM, "tools") if name in config}, **members}
    systems = [_text_of(members[name]) for name in _SYSTEM if members.get(name)]
    messages: list[MessageView] = []
    for item in _messages(members):
        message = _message(item)
        if message.role in ("system", "developer"):
            systems.append(message.text)
        else:
            messages.append(message)
    kept = {name: value for name, value in options.items() if value not in (None, "", [], {}, ())}
    return RequestView("\n\n".join(systems), messages, [*_tools(members.get("tools"))], kept)


def content_view(content: Any) -> MessageView:
    """Read the content that one of ADK's own models answered with."""
    return _message(_json(content))


def _messages(members: Json) -> Iterable[Json]:
    found = next((members[name] for name in _MESSAGES if members.get(name)), ())
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    return [_json(item) for item in _list(found)]


def _message(item: Json) -> MessageView:
    parts = [
        *_parts(item.get("content")),
        *_parts(item.get("parts")),
        *_parts(item.get("media")),
        *_parts(item.get("tool_calls")),
    ]
    role = str(item.get("role") or "")
    if item.get("type") in (*_CALLS, *_RESULTS, "reasoning"):  # of OpenAI's responses: no message, but an item
        role = "tool" if item.get("type") in _RESULTS else "assistant"
        parts = [item]
    elif role in ("tool", "function") and "tool_call_id" in item:
        parts = [{"type": "tool_result", "id": item["tool_call_id"], "content": item.get("content")}]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[CallView] = []
    results: list[CallView] = []
    files: list[str] = []
    for part in parts:
        match _read_part(part):
            case CallView() as call:
                (results if _is_result(part) else calls).append(call)
            case ("text", text):
                texts.append(text)
            case ("thought", text):
                thoughts.append(text)
            case (_, kind):
                files.append(kind)
    return MessageView(role or "user", "\n".join(texts), "\n".join(thoughts), calls, results, files)


def _read_part(part: Json) -> CallView | tuple[str, str]:
    """Read a part of a message: a call or a result, or its kind and text."""
    kind = part.get("type")
    if (call := _member(part, "functionCall", "function_call", "functionResponse", "function_response")) is not None:
        return _call(call)
    if kind in (*_CALLS, *_RESULTS, "function") or "output" in part or ("name" in part and "input" in part):
        return _call({**part, **_json(part.get("function"))})
    if kind in ("thinking", "reasoning", "redacted_thinking") or part.get("thought"):
        return "thought", _text_of(_first(part, "thinking", "summary", "text") or "")
    if kind in _TEXTS or "text" in part:
        return "text", _text_of(part.get("text") or part.get("refusal"))
    data = _json(_member(part, "inlineData", "inline_data", "fileData", "file_data", "source", "image_url", "file"))
    return "file", str(_first(data, "mimeType", "mime_type", "media_type") or kind or "file")


def _is_result(part: Json) -> bool:
    named = _member(part, "functionResponse", "function_response") is not None
    return named or part.get("type") in _RESULTS or part.get("output") is not None


def _call(members: Json) -> CallView:
    value = _first(members, "arguments", "args", "response", "output", "content")
    if value is None:
        value = members.get("input")
    id_ = _first(members, "call_id", "tool_use_id", "id") or ""
    if isinstance(value, list):  # blocks of a result
        value = _text_of(cast("Any", value))
    return CallView(str(id_), str(members.get("name") or ""), _decoded(value))


def _tools(tools: Any) -> Iterable[ToolView]:
    for tool in map(_json, _list(tools)):
        declared = _first(tool, "functionDeclarations", "function_declarations")
        for one in map(_json, _list(declared)) if declared else [{**tool, **_json(tool.get("function"))}]:
            names = "parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema"
            name = str(one.get("name") or one.get("type") or ", ".join(one) or "tool")
            yield ToolView(name, str(one.get("description") or ""), _first(one, *names))


def _text_of(value: Any) -> str:
    """Return the text of a text, of a list of blocks, or of a content with parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text_of, cast("list[Any]", value))))
    members = _json(value)
    return _text_of(_first(members, "text", "parts", "content")) if members else ""


def _decoded(value: Any) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON."""
    try:
        return json.decode(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except DecodeError:
        return value


def _parts(value: Any) -> list[Json]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    return [{"type": "text", "text": part} if isinstance(part, str) else _json(part) for part in _list(value)]


def _member(members: Json, *names: str) -> Json | None:
    found = _first(members, *names)
    return cast("Json", found) if isinstance(found, Mapping) else None


def _first(members: Json, *names: str) -> Any:
    return next((members[name] for name in names if members.get(name) is not None), None)


def _json(value: Any) -> dict[str, Any]:
    return dict(cast("Json", value)) if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


# -- changes -----------------------------------------------------------------------------------------------------------


class OptionChange(Struct, frozen=True):
    """An option that has another value, or None where it is not set."""

    name: str
    before: Any
    after: Any


class RequestChanges(Struct, frozen=True):
    """How a request differs from the one before it."""

    system: str
    """The changed lines of the system text, as a unified diff; empty: it is the same."""
    added_messages: Sequence[int]
    """The places of the messages that are new."""
    removed_messages: Sequence[MessageView]
    """The messages that the request before had."""
    added_tools: Sequence[str]
    removed_tools: Sequence[str]
    changed_tools: Sequence[str]
    options: Sequence[OptionChange]


def request_changes(before: RequestView, after: RequestView) -> RequestChanges:
    """Return what a request adds, leaves out and changes."""
    old, new = [json.encode(message) for message in before.messages], [json.encode(one) for one in after.messages]
    added: list[int] = []
    removed: list[MessageView] = []
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            added += range(start, end)
            removed += before.messages[first:last]
    tools_before = {tool.name: tool for tool in before.tools}
    tools_after = {tool.name: tool for tool in after.tools}
    lines = unified_diff(before.system.splitlines(), after.system.splitlines(), n=1, lineterm="")
    return RequestChanges(
        system="\n".join(line for line in lines if not line.startswith(("---", "+++"))),
        added_messages=added,
        removed_messages=removed,
        added_tools=[name for name in tools_after if name not in tools_before],
        removed_tools=[name for name in tools_before if name not in tools_after],
        changed_tools=[name for name, tool in tools_after.items() if tools_before.get(name, tool) != tool],
        options=_option_changes(before.options, after.options),
    )


def _option_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[OptionChange]:
    names = dict.fromkeys([*before, *after])
    return [
        OptionChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]
