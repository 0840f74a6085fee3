"""Translate A2A's parts to what a user submits, and what a turn shows to A2A's parts. Imports `a2a`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from a2a.types import Message, Part, Role
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct as ProtoStruct
from google.protobuf.struct_pb2 import Value as ProtoValue
from msgspec import json, to_builtins

from lango.errors import InvalidAnswer
from lango.events import to_jsonable
from lango.json_values import to_client_json
from lango.messages import Attachment, make_attachment
from lango.waits import (
    Answer,
    ApprovalWait,
    Approve,
    ClientResultWait,
    Credential,
    CredentialWait,
    Decline,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Refuse,
    Result,
    Value,
    Wait,
)

_YES = frozenset({"yes", "y", "approve", "approved", "ok", "allow"})
_NO = frozenset({"no", "n", "refuse", "refused", "deny", "decline"})
WAIT_ID = "wait_id"
"""The member of a message's metadata, and of a data part, that names the wait that the message answers."""


def to_text(parts: Iterable[Part]) -> str:
    """Return the text of a message; data is written as JSON."""
    texts = (part.text if part.HasField("text") else _data_text(part) for part in parts)
    return "\n".join(text for text in texts if text)


def _data_text(part: Part) -> str:
    return json.encode(part_data(part)).decode() if part.HasField("data") else ""


def part_data(part: Part) -> Any:
    """Return the value of a data part."""
    return MessageToDict(part.data)


def to_attachments(parts: Iterable[Part]) -> list[Attachment]:
    """Return the files of a message. Raise `InvalidAnswer` for a file by its address: nothing is fetched."""
    files: list[Attachment] = []
    for number, part in enumerate(parts, 1):
        if part.HasField("url"):
            raise InvalidAnswer(f"part {number}: files are not fetched from addresses; send their bytes as `raw`")
        if part.HasField("raw"):
            media_type = part.media_type or "application/octet-stream"
            files.append(make_attachment(number, part.filename or None, media_type, part.raw))
    return files


def text_part(text: str) -> Part:
    """Make a part of a text."""
    return Part(text=text, media_type="text/plain")


def data_part(value: Any) -> Part:
    """Make a part of a JSON value."""
    plain = to_client_json(to_builtins(value, str_keys=True, enc_hook=to_jsonable))
    return Part(data=ParseDict(plain, ProtoValue()), media_type="application/json")


def metadata(fields: Mapping[str, Any]) -> ProtoStruct:
    """Make the metadata of a message, task or artifact."""
    return ParseDict(dict(fields), ProtoStruct())


def message_metadata(message: Message) -> dict[str, Any]:
    """Return the metadata of a message as plain values."""
    return MessageToDict(message.metadata)


def agent_message(message_id: str, task_id: str, context_id: str, parts: Sequence[Part]) -> Message:
    """Make a message of the agent."""
    return Message(message_id=message_id, task_id=task_id, context_id=context_id, role=Role.ROLE_AGENT, parts=parts)


# -- waits ---------------------------------------------------------------------------------------------------------


def wait_parts(wait: Wait) -> list[Part]:
    """Describe a wait: in words, and with the fields that an answer needs."""
    return [text_part(_question(wait)), data_part(wait)]


def _question(wait: Wait) -> str:
    match wait:
        case ApprovalWait():
            arguments = json.encode(to_client_json(to_builtins(wait.arguments, enc_hook=to_jsonable))).decode()
            hint = f" {wait.hint}" if wait.hint else ""
            return f"May the tool {wait.tool} run with {arguments}?{hint} Answer yes or no."
        case CredentialWait():
            what = wait.message or "A tool needs access to one of your accounts."
            return f"{what} {wait.auth_url}".strip()
        case InputWait() | QuestionWait():
            return wait.message or "The agent needs a value."
        case ClientResultWait() | LongRunningWait():
            return f"The tool {wait.tool} waits for its result."
        case _:
            return "The agent waits."


def chosen_wait(waits: Sequence[Wait], message: Message) -> Wait:
    """Return the wait that a message names, or else the oldest one. Raise `InvalidAnswer` for an unknown one."""
    fields = message_metadata(message)
    named = [fields, *(part_data(part) for part in message.parts if part.HasField("data"))]
    for one in named:
        wait_id = cast("dict[str, Any]", one).get(WAIT_ID) if isinstance(one, dict) else None
        if wait_id is not None:
            for wait in waits:
                if wait.id == wait_id:
                    return wait
            raise InvalidAnswer(f"the task has no open wait {wait_id!r}")
    return waits[0]


def to_answer(wait: Wait, message: Message) -> Answer:
    """Read the answer to a wait from a message. Raise `InvalidAnswer` if it does not say yes or no to an approval."""
    value = _answer_value(message)
    match wait:
        case ApprovalWait():
            return _approval(value)
        case CredentialWait():
            return Credential(value)
        case InputWait():
            return Value(value)
        case QuestionWait():
            return Decline() if value == {"declined": True} else Value(value)
        case ClientResultWait() | LongRunningWait():
            return Result(cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value})
        case _:
            raise InvalidAnswer(f"a message cannot answer a wait of kind {wait.kind}")


def _answer_value(message: Message) -> Any:
    """Return the value of the first data part, of an ADK function response its response, or else the text."""
    for part in message.parts:
        if part.HasField("data"):
            match part_data(part):
                case {"name": str(), "response": response}:
                    value = response
                case value:
                    pass
            if isinstance(value, dict):
                fields = {name: one for name, one in cast("dict[str, Any]", value).items() if name != WAIT_ID}
                return fields["value"] if fields.keys() == {"value"} else fields
            return value
    return to_text(message.parts)


def _approval(value: Any) -> Approve | Refuse:
    match value:
        case True | {"approved": True}:
            return Approve()
        case {"approved": False, "reason": str(reason)}:
            return Refuse(reason)
        case False | {"approved": False}:
            return Refuse()
        case {"result": str(text)}:
            return _approval(text)
        case str(text) if text.strip().rstrip(".!").lower() in _YES:
            return Approve()
        case str(text) if text.strip().rstrip(".!").lower() in _NO:
            return Refuse()
        case _:
            raise InvalidAnswer(
                'the task waits for an approval: answer with the text yes or no, or with the data {"approved": true}'
            )
