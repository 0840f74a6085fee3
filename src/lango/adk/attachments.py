"""Files of a message: as parts of ADK's content, and as the store keeps those."""

from collections.abc import Sequence
from typing import Any, cast

from google.genai import types

from lango.messages import Attachment
from lango.store import Stored


def attachments_to_parts(attachments: Sequence[Attachment]) -> list[types.Part]:
    """Return files as parts."""
    return [
        types.Part(inline_data=types.Blob(data=file.data, mime_type=file.mime_type, display_name=file.name))
        for file in attachments
    ]


def stored_attachments(stored: Stored) -> list[Attachment]:
    """Return the files that a stored message brings, in order."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    parts = [cast("dict[str, Any]", item) for item in layout if isinstance(item, dict)]
    blobs: list[dict[str, Any]] = [part["inline_data"] for part in parts if part.get("inline_data")]
    return [
        Attachment(blob.get("display_name") or "", blob.get("mime_type") or "", blob.get("data") or b"")
        for blob in blobs
    ]
