"""Files of messages, served so that a browser takes nothing for more than it is."""

from urllib.parse import quote

from fastapi import Response

from lango.messages import Attachment

_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a browser may show in its place: pictures that hold no script. Anything else is only to be saved."""


def file_response(file: Attachment) -> Response:
    """Answer with a file."""
    shown = file.mime_type in _SHOWN
    headers = {
        "Content-Disposition": f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, max-age=3600",
    }
    return Response(file.data, media_type=file.mime_type if shown else "application/octet-stream", headers=headers)
