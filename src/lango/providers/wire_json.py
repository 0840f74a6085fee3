"""Turn the bodies of requests and responses into JSON text within a bound and without secrets."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import DecodeError, json

from lango.safe_text import redact_json, redact_secrets

_TEXT_LIMITS = (50_000, 10_000, 2_000, 500, 100)
"""How many characters of each text are kept, tried in this order until the whole fits."""
_ITEM_LIMITS = (1_000, 200, 50, 10)
_MAX_PARSED_BYTES = 8_000_000


def body_to_json_text(body: bytes, content_type: str, max_bytes: int) -> str:
    """Return a body as JSON text of at most `max_bytes`: an event stream as the list of its events."""
    if len(body) > _MAX_PARSED_BYTES:
        return _cut_text(body[:max_bytes].decode("utf-8", "replace"), len(body), max_bytes)
    try:
        return bounded_json_text(redact_json(_parse(body, content_type)), max_bytes)
    except RecursionError:
        return _cut_text(body.decode("utf-8", "replace"), len(body), max_bytes)


def bounded_json_text(value: Any, max_bytes: int) -> str:
    """Encode a JSON value; shorten long texts, then long lists, until it has at most `max_bytes`."""
    whole = encoded = json.encode(value)
    limits = [(limit, None) for limit in _TEXT_LIMITS] + [(_TEXT_LIMITS[-1], items) for items in _ITEM_LIMITS]
    for characters, items in limits:
        if len(encoded) <= max_bytes:
            return encoded.decode()
        encoded = json.encode(_clip(value, characters, items))
    return encoded.decode() if len(encoded) <= max_bytes else _cut_text(whole.decode(), len(whole), max_bytes)


def _parse(body: bytes, content_type: str) -> Any:
    if content_type.startswith("text/event-stream"):
        return _parse_events(body.decode("utf-8", "replace"))
    try:
        return json.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")


def _parse_events(text: str) -> list[Any]:
    """Return the data of the events of a stream; what is not JSON stays text."""
    events: list[Any] = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        if lines:
            data = "\n".join(lines)
            try:
                events.append(json.decode(data.encode()))
            except DecodeError:
                events.append(data)
    return events


def _clip(value: Any, characters: int, items: int | None) -> Any:
    if isinstance(value, str):
        left_out = len(value) - characters
        return f"{value[:characters]}... ({left_out:,} more characters)" if left_out > 0 else value
    if isinstance(value, Mapping):
        members = list(cast("Mapping[str, Any]", value).items())
        kept = members if items is None else members[:items]
        clipped = {name[:200]: _clip(member, characters, items) for name, member in kept}
        return clipped | ({"...": f"{len(members) - len(kept):,} more members"} if len(members) > len(kept) else {})
    if isinstance(value, list):
        entries = cast("Sequence[Any]", value)
        if items is None or len(entries) <= items:
            return [_clip(entry, characters, items) for entry in entries]
        first, last = entries[: items // 2], entries[-(items // 2) :]
        note = f"... ({len(entries) - len(first) - len(last):,} more items)"
        return [*(_clip(e, characters, items) for e in first), note, *(_clip(e, characters, items) for e in last)]
    return value


def _cut_text(text: str, size: int, max_bytes: int) -> str:
    """Return the beginning of a text that is not JSON, as a JSON string."""
    kept = redact_secrets(text[: max(0, max_bytes // 6 - 50)])  # a control character takes six bytes
    return json.encode(f"{kept}... ({size:,} bytes in all)").decode()
