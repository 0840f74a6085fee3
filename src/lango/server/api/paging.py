"""Page through lists: the size of a page, and the cursor of the next one.

A cursor is a time, a number and a text in hexadecimal digits: a pattern describes it completely.
"""

import re
from decimal import Decimal
from typing import Annotated

from fastapi import Query

from lango.server.errors import bad_request

_PLACE = r"^[0-9]{1,12}(\.[0-9]{1,60})?-[0-9]{1,18}-([0-9a-f]{2}){0,800}$"

PageSize = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=2000, json_schema_extra={"pattern": _PLACE})]


def encode_cursor(time: float, key: int, text: str = "") -> str:
    """Write the place of the last row of a page; the time is exact."""
    return f"{Decimal(time):f}-{key}-{text.encode('utf-8', 'replace').hex()}"


def decode_cursor(cursor: str | None) -> tuple[float, int, str] | None:
    """Return the place after which a page begins, or None for the first page. Raise `ApiError` for any other text."""
    if cursor is None:
        return None
    if not re.fullmatch(_PLACE, cursor, re.ASCII) or cursor.endswith("\n"):
        raise bad_request("cursor: send the next_cursor of the previous page")
    time, key, text = cursor.split("-")
    return float(time), int(key), bytes.fromhex(text).decode("utf-8", "replace")
