"""Send stored files to clients: in pieces, whole or in part, and so that a browser runs nothing in them."""

import re
from collections.abc import Mapping
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from lango.messages import StoredBytes, byte_size, content_hash
from lango.runtime.sessions.sessions import Sessions
from lango.server.errors import ApiError

_INLINE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that a browser may display: images that hold no script. Other files are downloads."""
_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))")


def file_response(
    sessions: Sessions, name: str, mime_type: str, data: bytes, request: Mapping[str, str], *, changes: bool = False
) -> Response:
    """Return a file, or the range of it that the headers of the request ask for.

    `StoredBytes` are read piece by piece; if they are deleted before the end, the response is shorter than announced.
    `changes`: the file of this address may be another one later.
    """
    is_inline = mime_type in _INLINE_TYPES
    size, tag = byte_size(data), f'"{content_hash(data)}"'
    headers = {
        "Content-Disposition": f"{'inline' if is_inline else 'attachment'}; filename*=UTF-8''{_encoded(name)}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-cache" if changes else "private, max-age=3600",
        "Accept-Ranges": "bytes",
        "ETag": tag,
    }
    if tag in request.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    shown_type = mime_type if is_inline else "application/octet-stream"
    start, end = 0, size
    status = 200
    if "range" in request and request.get("if-range", tag) == tag and (wanted := _range(request["range"], size)):
        start, end = wanted
        status = 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    if not isinstance(data, StoredBytes):
        return Response(data[start:end], status, headers, shown_type)
    headers["Content-Length"] = str(end - start)
    return StreamingResponse(sessions.read_file(data, start, end), status, headers, shown_type)


def _encoded(name: str) -> str:
    """Encode a file name for a header: any character is safe there, also a line break or half a character."""
    return quote(name.encode("utf-8", "replace"), safe="")


def _range(header: str, size: int) -> tuple[int, int] | None:
    """Return the bytes that a `Range` asks for, or None for the whole file if such a range is not supported.

    Raise `ApiError` 416 if the file has none of them.
    """
    found = _RANGE.fullmatch(header.replace(" ", ""))
    if found is None:  # several ranges, or another unit: a server may send the whole file
        return None
    first, last, newest = found.groups()
    start = max(0, size - int(newest)) if newest else int(first)
    end = size if newest or not last else min(int(last) + 1, size)
    if not newest and last and int(last) < start:
        return None
    if start >= end:
        raise ApiError(
            416, "RangeNotSatisfiable", f"the file has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, end
