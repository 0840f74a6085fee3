"""Read files that a message carries inline, as base64 or `data:` URLs."""

import hashlib
import re
from collections.abc import Callable, Sequence

import msgspec

from lango.config import ServerLimits
from lango.errors import AttachmentRefused
from lango.json_values import convert
from lango.messages import Attachment, Media, Message, content_hash, make_attachment
from lango.server.errors import ApiError, bad_request
from lango.submissions import check_attachments

_BASE64_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_MAX_URL_HEAD = 1000
_UNREADABLE_FILE = "[file omitted: it could not be read]"
"""Shown to the model instead of the files of an earlier message of which one is not readable."""


def read_base64_file(number: int, name: str | None, mime_type: str | None, text: str) -> Attachment:
    """Decode a file in base64."""
    try:
        data = convert(text, bytes)  # decodes base64 three times as fast as the standard library
    except msgspec.ValidationError as error:
        raise bad_request(f"messages: the data of file {number} is not base64") from error
    return make_attachment(number, name, mime_type, data)


def read_data_url(number: int, name: str | None, url: str) -> Attachment:
    """Decode a file in a `data:` URL."""
    head = _BASE64_URL.match(url[:_MAX_URL_HEAD])
    if head is None:
        raise bad_request(
            f"messages: file {number} cannot be read: send it as a data: URL (data:image/png;base64,...), or its https "
            "address"
        )
    return read_base64_file(number, name, head[1], url[head.end() :])


def read_user_message(
    text: str, readers: Sequence[Callable[[int], Attachment]], *, last: bool, limits: ServerLimits | None = None
) -> Message:
    """Return a user's message with its files, each read with its number.

    Raise `ApiError` for files of the last message that are unreadable, or beyond the limits of OpenAI's API.
    """
    files, note = list[Attachment](), ""
    try:
        files = [read(number) for number, read in enumerate(readers, 1)]
        if limits is not None:
            check_attachments(files, limits)
    except (ApiError, AttachmentRefused) as error:
        if last:  # OpenAI's API has no other status for an invalid part
            raise error if isinstance(error, ApiError) else ApiError(400, type(error).__name__, str(error)) from error
        files, note = [], _UNREADABLE_FILE * len(readers)
    return Message("user", text + note, media=tuple(Media(file.mime_type, file.data, name=file.name) for file in files))


def attachments_of_message(message: Message) -> list[Attachment]:
    """Return the files of a user's message."""
    return [Attachment(media.name or "", media.mime_type, media.data or b"") for media in message.media]


def file_fingerprint(file: Attachment) -> str:
    """Return a hash of a file's type and bytes, which does not depend on its name. The bytes need not be loaded."""
    return hashlib.sha256(f"{file.mime_type},{content_hash(file.data)}".encode("utf-8", "surrogatepass")).hexdigest()
