"""Write and read the cursors of pages: a time, a number and a text, in a form that a pattern describes completely."""

import re
from decimal import Decimal

from lango.server.errors import ApiError

_TIME_AND_KEY = r"[0-9]{1,12}(\.[0-9]{1,60})?-[0-9]{1,18}"
SESSION_CURSOR = rf"^{_TIME_AND_KEY}$"
INBOX_CURSOR = rf"^{_TIME_AND_KEY}-([0-9a-f]{{2}}){{0,800}}$"


def encode_cursor(time: float, key: int, text: str | None = None) -> str:
    """Write the place of the last row of a page; the time is exact."""
    place = f"{Decimal(time):f}-{key}"
    return place if text is None else f"{place}-{text.encode('utf-8', 'replace').hex()}"


def decode_cursor(cursor: str, pattern: str) -> tuple[float, int, str]:
    """Read a cursor; raise `ApiError` for a text that is none."""
    if not re.fullmatch(pattern, cursor, re.ASCII) or cursor.endswith("\n"):
        raise ApiError(400, "BadRequest", "cursor: send the next_cursor of the page before")
    time, key, *text = cursor.split("-")
    return float(time), int(key), bytes.fromhex("".join(text)).decode("utf-8", "replace")
