"""Format text and values for a terminal, with control characters made harmless."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lango.safe_text import printable as printable


def one_line(text: str, width: int | None = None) -> str:
    """Return text as one line, cut with an ellipsis at `width`."""
    line = printable(" ".join(text.split()))
    return line if width is None or len(line) <= width else line[: max(1, width - 1)] + "…"


def format_cell(value: Any) -> str:
    """Format a value for a table."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case _:
            return str(value)


def format_time(at: float) -> str:
    """Format a time in UTC."""
    from lango.sessions import as_datetime

    return as_datetime(at).isoformat(timespec="seconds")


def describe_resumption(reason: str) -> str:
    """Say why a turn was resumed."""
    return {
        "crash": "its process died",
        "handover": "its process was stopped",
        "failure": "the provider or the store failed",
        "update": "the application was updated",
    }.get(reason, reason)


def format_age(at: float, now: float) -> str:
    """Format how long ago a time was, in its largest unit."""
    seconds = max(0.0, now - at)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


_TYPES = {"string": "", "boolean": "yes or no", "integer": "a whole number", "number": "a number"}


def describe_schema(schema: Mapping[str, Any] | None) -> str:
    """Describe what fits a schema in a few words, or return "" if any text fits."""
    wanted = schema or {}
    if choices := _choices(wanted):
        return f"one of {', '.join(choices)}"
    kind: Any = wanted.get("type")
    if kind == "array" and (choices := _choices(wanted.get("items") or {})):
        return f"several of {', '.join(choices)}, with commas between"
    if not wanted or kind in _TYPES:
        return _TYPES.get(kind, "")
    return f"JSON that fits {printable(json.dumps(dict(wanted), ensure_ascii=False, default=str))}"


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """Return the values to choose from; MCP names them in one of two ways."""
    titled: Any = schema.get("oneOf") or schema.get("anyOf") or []
    values: Any = schema.get("enum") or [choice["const"] for choice in titled if "const" in choice]
    return [one_line(str(value)) for value in values]
