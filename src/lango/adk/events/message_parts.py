"""Convert attachments to ADK parts, and read attachments and thoughts of a stored message."""

from collections.abc import Sequence

from google.genai import types

from lango.messages import Attachment


def attachments_to_parts(attachments: Sequence[Attachment]) -> list[types.Part]:
    """Convert attachments to parts."""
    return [
        types.Part(inline_data=types.Blob(data=file.data, mime_type=file.mime_type, display_name=file.name))
        for file in attachments
    ]
