"""Files of messages: read from what clients send, served so that a browser takes nothing for more than it is."""

import hashlib
import re

import msgspec

from lango.adk.services.message_parts import file_of
from lango.messages import Attachment, Message
from lango.server.errors import Refused

_BASE64_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_LONGEST_HEAD = 1000
NOT_READ = "[a file stood here that could not be read]"
"""Read by the model in the place of a file that is not the last message's."""


def file_of_base64(number: int, name: str | None, mime_type: str | None, text: str) -> Attachment:
    """Read a file that a message brings in base64."""
    try:
        data = msgspec.convert(text, bytes)  # base64, at a third of what the standard library takes
    except msgspec.ValidationError as error:
        raise Refused(400, "BadRequest", f"messages: the data of file {number} is not base64") from error
    return file_of(number, name, mime_type, data)


def file_of_url(number: int, name: str | None, url: str) -> Attachment:
    """Read a file that a message brings as a `data:` URL; nothing is fetched from elsewhere."""
    head = _BASE64_URL.match(url[:_LONGEST_HEAD])
    if head is None:
        raise Refused(
            400,
            "BadRequest",
            f"messages: nothing is fetched here; send file {number} as a data: URL (data:image/png;base64,...)",
        )
    return file_of_base64(number, name, head[1], url[head.end() :])


def files_of(message: Message) -> list[Attachment]:
    """Return the files of a user's message."""
    return [Attachment(one.name or "", one.mime_type, one.data or b"") for one in message.media]


def mark_of(file: Attachment) -> str:
    """Return what tells a file from another: its type and its bytes, whatever it is called."""
    return hashlib.sha256(f"{file.mime_type},".encode("utf-8", "surrogatepass") + file.data).hexdigest()
