"""Files of a message: as parts of ADK's content, and as the store keeps those."""

from collections.abc import Sequence
from typing import Any, cast

from google.genai import types

from lango.messages import FILE_NAME, Attachment
from lango.store import StoredEvent


def make_attachment(number: int, name: str | None, mime_type: str | None, data: bytes | None) -> Attachment:
    """Return a file that a message brings: under its own name, where that is one, else under its number."""
    encodable = (name or "").encode(errors="replace").decode()  # JSON can hold half a character, the store cannot
    named = encodable if FILE_NAME.fullmatch(encodable) else f"file {number}"
    return Attachment(named, (mime_type or "").lower(), data or b"")


def attachments_to_parts(attachments: Sequence[Attachment]) -> list[types.Part]:
    """Return files as parts."""
    return [
        types.Part(inline_data=types.Blob(data=file.data, mime_type=file.mime_type, display_name=file.name))
        for file in attachments
    ]


def stored_attachments(stored: StoredEvent) -> list[Attachment]:
    """Return the files that a stored message brings, in order."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    parts = [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]
    blobs: list[dict[str, Any]] = [part["inline_data"] for part in parts if part.get("inline_data")]
    return [
        Attachment(blob.get("display_name") or "", blob.get("mime_type") or "", blob.get("data") or b"")
        for blob in blobs
    ]


def stored_thoughts(stored: StoredEvent) -> str:
    """Return what the model thought before a stored message; nothing where its provider does not tell."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    parts = [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]
    return "".join(part["text"] for part in parts if part.get("thought") is True and isinstance(part.get("text"), str))
