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
from lango.server.compat.wait_answers import asks_client, question_text, value_to_answer
from lango.waits import Answer, ApprovalWait, Wait

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
    question = question_text(wait)
    asked = f"{question} Answer yes or no." if isinstance(wait, ApprovalWait) else question
    return [text_part(asked), data_part(wait)]


def chosen_wait(waits: Sequence[Wait], message: Message) -> Wait:
    """Return the wait that a message names, or the oldest for clients. Raise `InvalidAnswer` for an unknown one."""
    fields = message_metadata(message)
    named = [fields, *(part_data(part) for part in message.parts if part.HasField("data"))]
    for one in named:
        wait_id = cast("dict[str, Any]", one).get(WAIT_ID) if isinstance(one, dict) else None
        if wait_id is not None:
            for wait in waits:
                if wait.id == wait_id:
                    return wait
            raise InvalidAnswer(f"the task has no open wait {wait_id!r}")
    return next((wait for wait in waits if asks_client(wait)), waits[0])


def to_answer(wait: Wait, message: Message) -> Answer:
    """Read the answer to a wait from a message. Raise `InvalidAnswer` if it does not say yes or no to an approval."""
    return value_to_answer(wait, _answer_value(message))


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
