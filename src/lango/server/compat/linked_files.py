"""Load the files of a conversation that a client sends by reference: by an address, or by the id of an upload.

A client resends its whole conversation, so the newest files are loaded first. What cannot be loaded is an error in the
last message, and a note to the model in an earlier one.
"""

import mimetypes
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from msgspec import Struct

from lango.config import ServerSettings
from lango.errors import BlockedAddress, ToolError
from lango.messages import Attachment, make_attachment
from lango.server.compat.inline_files import read_data_url
from lango.server.errors import ApiError, bad_request

LoadUpload = Callable[[str, int], Awaitable[Attachment]]
"""Loads an upload of at most so many bytes by its id. Raises `ApiError`."""
_HEADERS = {"User-Agent": "lango", "Accept": "*/*", "Accept-Encoding": "identity"}
_MAX_LINKS = 50
"""How many different files of a conversation are loaded by reference."""
_FETCH_S = 30.0
"""How long the fetches of one request may take together."""
_ANY_TYPE = ("", "application/octet-stream", "binary/octet-stream")


class FileLink(Struct, frozen=True):
    """A reference to a file."""

    target: str
    """An address, or the id of an upload."""
    is_upload: bool = False
    is_image: bool = False
    """Whether only an image will do."""

    @property
    def is_loaded(self) -> bool:
        """Whether the file is elsewhere, and not in the link itself as a `data:` URL."""
        return self.is_upload or self.target[:8].lower().startswith(("http://", "https://"))


class LinkedFiles(Struct, frozen=True):
    """The files that links stand for, or why one could not be loaded."""

    found: Mapping[FileLink, Attachment | ApiError] = {}

    def read(self, number: int, name: str | None, link: FileLink) -> Attachment:
        """Return the file of a link or `data:` URL. Raise `ApiError` if there is none."""
        match self.found.get(link) if link.is_loaded else None:  # a `data:` URL would be hashed
            case None:
                return read_data_url(number, name, link.target)
            case ApiError() as error:
                raise error
            case file:
                return make_attachment(number, name or file.name, file.mime_type, file.data)


async def load_links(
    links: Sequence[FileLink], settings: ServerSettings, load_upload: LoadUpload | None = None
) -> LinkedFiles:
    """Load the files of the links of a conversation, which are in its order.

    Together they may have as many bytes as a conversation. One that is linked twice counts twice, as if it were inline.
    """
    left = settings.limits.max_conversation_bytes
    deadline = time.monotonic() + _FETCH_S
    found: dict[FileLink, Attachment | ApiError] = {}
    for link, count in Counter(link for link in reversed(links) if link.is_loaded).items():
        most = min(settings.limits.max_attachment_bytes, left // count)
        try:
            if len(found) == _MAX_LINKS:
                raise bad_request(f"messages: more than {_MAX_LINKS} files are sent by reference")
            if not link.is_upload:
                file = await fetch_file(link, settings, most, deadline - time.monotonic())
            elif load_upload is not None:
                file = await load_upload(link.target, most)
            else:
                raise bad_request("messages: file ids are not supported; send the file as base64 data")
        except ApiError as error:
            found[link] = error
            continue
        left -= len(file.data) * count
        found[link] = file
    return LinkedFiles(found)


async def fetch_file(link: FileLink, settings: ServerSettings, max_bytes: int, timeout_s: float) -> Attachment:
    """Fetch a file from a public address. Raise `ApiError` if that fails, or it is too large or of another type."""
    if not settings.fetch_files:
        raise bad_request(
            "messages: this server does not fetch URLs (setting server.fetch_files); send the file as a data: URL"
        )
    from lango.tools.builtin.public_fetch import fetch_public  # the HTTP library is slow to import

    allow = settings.file_addresses
    try:
        async with fetch_public(link.target, _HEADERS, timeout_s=max(timeout_s, 0.0), allow=allow) as response:
            if response.status != 200:
                raise _not_fetched(link, f"it answered with the status {response.status}")
            path = unquote(response.address.path)
            mime_type = response.mime_type
            if mime_type in _ANY_TYPE:
                mime_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
            if link.is_image and not mime_type.startswith("image/"):
                raise _not_fetched(link, f"it is {mime_type}, not an image")
            data, is_whole = await response.body(max_bytes)
    except BlockedAddress as error:
        raise _not_fetched(link, "its address is not public (setting server.file_addresses)") from error
    except ToolError as error:
        raise _not_fetched(link, str(error)) from error
    if not is_whole:
        raise ApiError(
            400,
            "file_too_large",
            f"messages: {link.target[:200]} has more than {max_bytes} bytes (settings "
            "server.limits.max_attachment_bytes, server.limits.max_conversation_bytes)",
        )
    return Attachment(PurePosixPath(path).name, mime_type, data)


def _not_fetched(link: FileLink, why: str) -> ApiError:
    return ApiError(400, "invalid_file_url", f"messages: could not fetch {link.target[:200]}: {why}")
