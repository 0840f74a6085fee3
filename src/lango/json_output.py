"""Convert stored values to text and JSON that every client and both databases accept."""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_UNPRINTABLE = re.compile("[\\0\ud800-\udfff]")  # PostgreSQL refuses NUL, both refuse lone surrogates


def printable_text(text: str) -> str:
    """Replace NUL and lone surrogates, which no text column can store."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNPRINTABLE.sub("\ufffd", text)


def to_client_json(value: Any) -> Any:
    """Convert a value to plain JSON: lone surrogates become U+FFFD, bytes base64, NaN null."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {
            to_client_json(str(name)): to_client_json(item) for name, item in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [to_client_json(item) for item in cast("Sequence[Any]", value)]
    return value
