"""Convert ADK contents to messages, and keep signatures with the model that made them.

A signature is kept in `thought_signature`, the one field that ADK and every session service store, in an envelope that
names the provider and the model that made it. A signature without an envelope comes from an import, a foreign event or
one of ADK's own models (Gemini, Claude and LiteLLM all use the same field). Its maker is unknown, so it is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from google.genai import types
from msgspec.structs import replace
from pydantic import BaseModel

from lango.adk.events.unpaired_results import UnpairedContent
from lango.adk.services.stored_session import SteeringContent
from lango.history import CONTEXT_AUTHOR, STEERING_AUTHOR
from lango.history.pairing import with_ids
from lango.messages import Media, Message, Signature, Thought, ToolCall
from lango.providers.gemini import PLACEHOLDER_SIGNATURE, checks_signatures
from lango.sessions import CORRECTION, UPDATE

_SIGNATURE_HEADER = b"lango-signature"
_ANY_TYPE = "application/octet-stream"
_OTHER_AGENT_PREFIX = "For context: below is a transcript of what another agent did"
"""The start of the user message in which ADK quotes other agents."""
_NOT_OF_THE_USER = (_OTHER_AGENT_PREFIX, UPDATE, CORRECTION)
"""How the messages with the role of the user begin that the user did not send."""


def signature_to_bytes(signature: Signature) -> bytes:
    """Write a signature, with its provider and model, as a `thought_signature`."""
    return b"\0".join((_SIGNATURE_HEADER, signature.provider.encode(), signature.model.encode(), signature.value))


def bytes_to_signature(value: bytes | None) -> Signature | None:
    """Read the signature of a `thought_signature`; None if it has no envelope."""
    fields = (value or b"").split(b"\0", 3)
    if fields[0] != _SIGNATURE_HEADER or len(fields) != 4:
        return None
    return Signature(fields[1].decode("utf-8", "replace"), fields[2].decode("utf-8", "replace"), fields[3])


def unwrap_signatures(contents: Sequence[types.Content], model: str, *, gemini: bool) -> list[types.Content]:
    """Remove the envelopes of signatures from contents for one of ADK's own models, and parts that were only that.

    ADK's Gemini gets back what the same model signed for our provider, and a placeholder on calls that another model
    signed. Signatures without an envelope are left to ADK.
    """
    unwrapped = [_unwrap_content(content, model, gemini=gemini) for content in contents]
    return [content for content, before in zip(unwrapped, contents, strict=True) if content.parts or not before.parts]


def _unwrap_content(content: types.Content, model: str, *, gemini: bool) -> types.Content:
    if not any((part.thought_signature or b"").startswith(_SIGNATURE_HEADER) for part in content.parts or ()):
        return content
    parts: list[types.Part] = []
    for part in content.parts or ():
        signature = bytes_to_signature(part.thought_signature)
        if signature is None:
            parts.append(part)
            continue
        value = PLACEHOLDER_SIGNATURE if gemini and part.function_call and checks_signatures(model) else None
        if gemini and (signature.provider, signature.model) == ("gemini", model):
            value = signature.value
        part = part.model_copy(update={"thought_signature": value})
        if value or part.model_dump(exclude_none=True, exclude={"thought"}).keys() - {"text"} or part.text:
            parts.append(part)
    return content.model_copy(update={"parts": parts})


def contents_to_messages(contents: Iterable[types.Content]) -> list[Message]:
    """Convert the contents of a request to messages, and give calls the ids that they lack."""
    return with_ids([message for content in contents for message in content_to_messages(content)])


def content_to_messages(content: types.Content) -> list[Message]:
    """Convert a content to messages: the model's text and calls, then results, then the user's text."""
    if isinstance(content, UnpairedContent):
        content = content.results
    parts = content.parts or []
    calls = tuple(_call(part) for part in parts if part.function_call)
    results = tuple(_result(part.function_response) for part in parts if part.function_response)
    messages: list[Message] = []
    if content.role == "model":
        messages.append(_model_message(parts, calls))
    elif calls:
        messages.append(Message("assistant", tool_calls=calls))
    if results:
        files = [piece for part in parts for piece in (part.function_response and part.function_response.parts) or ()]
        messages.append(Message("tool", tool_calls=results, media=_media(files)))
    if content.role != "model":
        messages.append(_user_message(parts))
    if isinstance(content, SteeringContent):
        messages = [replace(message, author=STEERING_AUTHOR) for message in messages]
    return [
        message
        for message in messages
        if message.content or message.tool_calls or message.media or message.thoughts or message.signature
    ]


def _model_message(parts: Sequence[types.Part], calls: tuple[ToolCall, ...]) -> Message:
    texts = [part for part in parts if not part.thought and not part.function_call]
    signatures = [bytes_to_signature(part.thought_signature) for part in texts if part.thought_signature]
    return Message(
        "assistant",
        "".join(_text(part) for part in texts),
        calls,
        thoughts=tuple(
            Thought(part.text or "", bytes_to_signature(part.thought_signature))
            for part in parts
            if part.thought and not part.function_call
        ),
        media=_media(parts),
        signature=signatures[-1] if signatures else None,
    )


def _user_message(parts: Sequence[types.Part]) -> Message:
    text = "\n".join(text for part in parts if (text := _text(part)))
    author = CONTEXT_AUTHOR if text.startswith(_NOT_OF_THE_USER) else ""
    return Message("user", text, author=author, media=_media(parts))


def _text(part: types.Part) -> str:
    """Return the text of a part; executed code and its output as ADK's own code executors write them."""
    if part.executable_code and part.executable_code.code:
        return f"```python\n{part.executable_code.code}\n```"
    if part.code_execution_result and part.code_execution_result.output:
        return f"```tool_output\n{part.code_execution_result.output}\n```"
    return part.text or ""


def _call(part: types.Part) -> ToolCall:
    call = part.function_call or types.FunctionCall()
    return ToolCall(
        call.id or "", call.name or "", call.args or {}, signature=bytes_to_signature(part.thought_signature)
    )


def _result(result: types.FunctionResponse) -> ToolCall:
    output = {name: plain_model(value) for name, value in (result.response or {}).items()}
    return ToolCall(result.id or "", result.name or "", output=output)


def plain_model(value: Any) -> Any:
    """Return a model of ADK or of Google's SDK, such as found memories, as JSON without its many unset fields."""
    if isinstance(value, BaseModel) and type(value).__module__.startswith("google."):
        return value.model_dump(mode="json", exclude_none=True)
    return value


def _media(parts: Sequence[types.Part | types.FunctionResponsePart]) -> tuple[Media, ...]:
    found: list[Media] = []
    for part in parts:
        blob, file = part.inline_data, part.file_data
        if blob and blob.data:
            found.append(Media(blob.mime_type or _ANY_TYPE, blob.data, name=blob.display_name))
        elif file and file.file_uri:
            found.append(Media(file.mime_type or _ANY_TYPE, uri=file.file_uri, name=file.display_name))
    return tuple(found)
