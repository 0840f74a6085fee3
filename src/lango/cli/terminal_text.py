"""Format text and values for a terminal, with control characters made harmless."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lango.events import ToolProgress
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


def format_cost(cost_usd: float | None) -> str:
    """Return a cost in dollars, or "" if it is unknown."""
    if cost_usd is None:
        return ""
    return "<$0.0001" if 0 < cost_usd < 0.0001 else f"${cost_usd:,.{4 if 0 < cost_usd < 1 else 2}f}"


def counted(count: int, what: str) -> str:
    """Return `1 session`, or `2 sessions`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def format_age(at: float, now: float) -> str:
    """Format how long ago a time was, in its largest unit."""
    seconds = max(0.0, now - at)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{counted(count, unit)} ago"
    return "just now"


_TYPES = {"string": "", "boolean": "yes or no", "integer": "a whole number", "number": "a number"}
_FORMATS = {
    "date": "a date such as 2030-12-31",
    "time": "a time such as 18:30",
    "date-time": "a time such as 2030-12-31T18:30+00:00",
    "email": "an e-mail address",
    "uri": "an address such as https://example.org",
}


def describe_schema(schema: Mapping[str, Any] | None) -> str:
    """Describe what fits a schema in a few words, or return "" if any text fits."""
    wanted = schema or {}
    if choices := choices_of(wanted):
        return f"one of {_names(choices)}"
    kind: Any = wanted.get("type")
    if kind == "array" and (choices := choices_of(wanted.get("items") or {})):
        return f"several of {_names(choices)}, with commas between"
    if not wanted or kind in _TYPES:
        return f"{_FORMATS.get(str(wanted.get('format')), _TYPES.get(kind, ''))}{_range(wanted)}".strip()
    return f"JSON that fits {printable(json.dumps(dict(wanted), ensure_ascii=False, default=str))}"


def _range(schema: Mapping[str, Any]) -> str:
    """Describe the bounds of a number, or of the length of a text."""
    bounds = [
        f"{word} {schema[name]}{unit}"
        for name, word, unit in (
            ("minimum", "at least", ""),
            ("exclusiveMinimum", "more than", ""),
            ("maximum", "at most", ""),
            ("exclusiveMaximum", "less than", ""),
            ("multipleOf", "a multiple of", ""),
            ("minLength", "at least", " characters"),
            ("maxLength", "at most", " characters"),
        )
        if name in schema
    ]
    return f" {', '.join(bounds)}" if bounds else ""


def _names(choices: Sequence[tuple[Any, str]]) -> str:
    return ", ".join(name for _, name in choices)


def choices_of(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values to choose from, with their names; MCP names them in several ways."""
    titled: Any = schema.get("oneOf") or schema.get("anyOf") or []
    if titled and all("const" in choice for choice in titled):
        return [(choice["const"], one_line(str(choice.get("title", choice["const"])))) for choice in titled]
    values: Any = schema.get("enum") or []
    names: Any = schema.get("enumNames") or values
    return [(value, one_line(str(name))) for value, name in zip(values, names, strict=False)]


def describe_progress(event: ToolProgress) -> str:
    """Describe the progress of a running tool."""
    share = f"{event.progress:g}" if event.total is None else f"{event.progress:g} of {event.total:g}"
    return f" {share}{': ' if event.message else ''}{one_line(event.message)}"
