"""Render messages as the transcript that an observer reads, with numbers and dates, large ones in pieces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lango.history import count_tokens
from lango.history.tokens import compact_json
from lango.json_values import as_object
from lango.messages import Message
from lango.sessions import INPUT_CALL, REQUEST_PREFIX, StoredEvent, as_datetime

_MAX_PARTS = 40
_INDENT = "\n    "  # text of a message never starts a line, where it could be taken for an observation


def units(stored: Iterable[StoredEvent]) -> list[list[StoredEvent]]:
    """Group messages so that a tool result stays with its call."""
    found: list[list[StoredEvent]] = []
    for event in stored:
        if found and event.message and event.message.role == "tool":
            found[-1].append(event)
        else:
            found.append([event])
    return found


def next_batch(stored: Sequence[StoredEvent], max_tokens: int, large_tokens: int) -> list[StoredEvent]:
    """Return the first messages that an observer is shown at once; a large message is a batch by itself."""
    batch: list[StoredEvent] = []
    for unit in units(stored):
        cost = sum(stored.tokens for stored in (*batch, *unit))
        large = any(stored.tokens > large_tokens for stored in unit)
        if batch and (cost > max_tokens or large):
            break
        batch += unit
        if large:
            break
    return batch


def pieces(batch: Iterable[StoredEvent], max_tokens: int, large_tokens: int) -> list[str]:
    """Render a batch as one text per model call; empty if the batch has no text.

    The first message of a text has its date and time, and each one of a later hour.
    """
    found: list[str] = []
    spent = 0
    dated = ""
    for stored, line in ((one, line) for one in batch for line in _lines(one)):
        head, hour = head_of(stored), f"{as_datetime(stored.created_at):%Y-%m-%d %H}"
        cost = count_tokens(line)
        if cost > large_tokens:
            found += [f"{head} {part}" for part in _parts(line, large_tokens, cost)]
            spent = max_tokens
        elif found and spent + cost <= max_tokens:
            found[-1] += f"\n{head if hour != dated else f'#{stored.seq}'} {line}"
            spent += cost
        else:
            found.append(f"{head} {line}")
            spent = cost
        dated = hour
    return found


def day_of(stored: StoredEvent) -> str:
    """Return the day of a message in UTC."""
    return as_datetime(stored.created_at).strftime("%Y-%m-%d")


def text_of(stored: StoredEvent) -> str:
    """Render a message without its number and date."""
    return "\n".join(_lines(stored))


def head_of(stored: StoredEvent) -> str:
    """Return the number and the date of a message, as the observer may be shown them."""
    return f"#{stored.seq} {as_datetime(stored.created_at):%Y-%m-%d %H:%M}"


def _lines(stored: StoredEvent) -> Iterator[str]:
    message = stored.message
    if message is not None and message.role != "event":
        for line in (*_message_lines(message), *_files(stored)):
            yield _INDENT.join(line.splitlines())


def _message_lines(message: Message) -> Iterator[str]:
    author = "user" if message.role == "user" else message.author or message.role
    calls = [call for call in message.tool_calls if not call.name.startswith(REQUEST_PREFIX)]
    if message.content and not (message.role == "tool" and message.tool_calls):
        yield f"{author}: {message.content}"
    for call in message.tool_calls:
        if call.name == INPUT_CALL and call.input is not None:
            yield f"{author} asks the user: {call.input.get('message') or ''}"
        elif call.name == INPUT_CALL and message.author == "user":
            yield f"user: {compact_json(call.output or {})}"
    for call in calls:
        if call.input is not None or call.output is None:
            yield f"{author} calls {call.name} with {compact_json(call.input or {})}"
        if call.output is not None:
            yield f"{call.name} returned {compact_json(call.output)}"


def is_text_file(file: Mapping[str, Any]) -> bool:
    """Whether the transcript shows the content of a file: it must be loaded."""
    return (file.get("mime_type") or "").startswith("text/")


def _files(stored: StoredEvent) -> Iterator[str]:
    """List the attached files, text files with their content."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    for part in layout:
        blob = as_object(part).get("inline_data")
        if not blob:
            continue
        data = blob.get("data") or b""
        file = f"a file is attached: {blob.get('display_name') or 'unnamed'} ({blob.get('mime_type') or ''})"
        yield f"{file}: {data.decode('utf-8', 'replace')}" if is_text_file(blob) else file


def _parts(line: str, max_tokens: int, cost: int) -> list[str]:
    """Split a line that is too large into numbered parts; drop the middle of a huge one."""
    count = -(-cost // max_tokens)
    if count > _MAX_PARTS:
        count = _MAX_PARTS
        half = len(line) * max_tokens * _MAX_PARTS // cost // 2
        line = f"{line[:half]}{_INDENT}[... the middle was left out ...]{_INDENT}{line[len(line) - half :]}"
    size = -(-len(line) // count)
    return [f"(part {at + 1} of {count}) {line[at * size : (at + 1) * size]}" for at in range(count)]
