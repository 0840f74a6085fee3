"""Page through lists: the size of a page, and the cursor of the next one.

A cursor is a time, a number and a text, in a form that a pattern describes completely.
"""

import re
from decimal import Decimal
from typing import Annotated

from fastapi import Query

from lango.server.errors import bad_request

_TIME_AND_KEY = r"[0-9]{1,12}(\.[0-9]{1,60})?-[0-9]{1,18}"
_SESSION_PLACE = rf"^{_TIME_AND_KEY}$"
_INBOX_PLACE = rf"^{_TIME_AND_KEY}-([0-9a-f]{{2}}){{0,800}}$"

PageSize = Annotated[int, Query(ge=1, le=200)]
SessionCursor = Annotated[str | None, Query(max_length=200, json_schema_extra={"pattern": _SESSION_PLACE})]
InboxCursor = Annotated[str | None, Query(max_length=2000, json_schema_extra={"pattern": _INBOX_PLACE})]


def encode_cursor(time: float, key: int, text: str | None = None) -> str:
    """Write the place of the last row of a page; the time is exact."""
    place = f"{Decimal(time):f}-{key}"
    return place if text is None else f"{place}-{text.encode('utf-8', 'replace').hex()}"


def decode_session_cursor(cursor: str) -> tuple[float, int]:
    """Read the cursor of a list of sessions; raise `ApiError` for any other text."""
    time, key = _parts(cursor, _SESSION_PLACE)
    return float(time), int(key)


def decode_inbox_cursor(cursor: str) -> tuple[float, int, str]:
    """Read the cursor of an inbox; raise `ApiError` for any other text."""
    time, key, text = _parts(cursor, _INBOX_PLACE)
    return float(time), int(key), bytes.fromhex(text).decode("utf-8", "replace")


def _parts(cursor: str, pattern: str) -> list[str]:
    if not re.fullmatch(pattern, cursor, re.ASCII) or cursor.endswith("\n"):
        raise bad_request("cursor: send the next_cursor of the previous page")
    return cursor.split("-")
