"""What time it is."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lango.errors import ToolError
from lango.tools.tool import tool


@tool(level="safe", effect="none")
def current_time(timezone: str = "UTC") -> dict[str, Any]:
    """Tell the current date and time.

    Args:
        timezone: A name such as Europe/Berlin.
    """
    try:
        zone = UTC if timezone.upper() == "UTC" else ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ToolError(f"there is no time zone {timezone!r}: use a name such as Europe/Berlin, or UTC") from error
    now = datetime.now(zone)
    return {"time": now.isoformat(timespec="seconds"), "weekday": now.strftime("%A"), "timezone": timezone}
