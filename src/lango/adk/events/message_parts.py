"""Convert attachments to ADK parts, and read attachments and thoughts of a stored message."""

from collections.abc import Sequence
from typing import Any, cast

from google.genai import types

from lango.messages import FILE_NAME, Attachment
from lango.store import StoredEvent


def make_attachment(number: int, name: str | None, mime_type: str | None, data: bytes | None) -> Attachment:
    """Make the attachment of a file, named after its number if its own name is not valid."""
    encodable = (name or "").encode(errors="replace").decode()  # JSON can hold lone surrogates, the store cannot
    valid_name = encodable if FILE_NAME.fullmatch(encodable) else f"file {number}"
    return Attachment(valid_name, (mime_type or "").lower(), data or b"")


def attachments_to_parts(attachments: Sequence[Attachment]) -> list[types.Part]:
    """Convert attachments to parts."""
    return [
        types.Part(inline_data=types.Blob(data=file.data, mime_type=file.mime_type, display_name=file.name))
        for file in attachments
    ]


def stored_attachments(stored: StoredEvent) -> list[Attachment]:
    """Return the attachments of a stored message; the bytes of most are `StoredBytes`, and not loaded."""
    blobs: list[dict[str, Any]] = [part["inline_data"] for part in _full_parts(stored) if part.get("inline_data")]
    return [
        Attachment(blob.get("display_name") or "", blob.get("mime_type") or "", blob.get("data", b"")) for blob in blobs
    ]


def stored_thoughts(stored: StoredEvent) -> str:
    """Return the thoughts of a stored message as text; empty if its provider shows none."""
    thoughts = [part.get("text") for part in _full_parts(stored) if part.get("thought") is True]
    return "".join(text for text in thoughts if isinstance(text, str))


def _full_parts(stored: StoredEvent) -> list[dict[str, Any]]:
    """Return the parts of a message whose layout is stored in full; see `lango.adk.events.events_to_rows`."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    return [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]
