"""Messages as an observer reads them: numbered, dated, calls with their arguments, results; large ones in pieces."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from lango.history import count_tokens
from lango.history.tokens import compact_json
from lango.messages import Message
from lango.store import Stored
from lango.store.codec.records import as_datetime

_ASKS_USER = "adk_request_"  # ADK's own questions to the user are calls, too; the call itself stands before them
_MOST_PARTS = 40
_INDENT = "\n    "  # what a message says never stands at the beginning of a line, where an observation does


def units(stored: Iterable[Stored]) -> list[list[Stored]]:
    """Split messages where no result is parted from its call."""
    found: list[list[Stored]] = []
    for one in stored:
        if found and one.message and one.message.role == "tool":
            found[-1].append(one)
        else:
            found.append([one])
    return found


def next_batch(stored: Sequence[Stored], max_tokens: int, large_tokens: int) -> list[Stored]:
    """Return the first messages that an observer is shown at once; a large one is a batch of its own."""
    batch: list[Stored] = []
    for unit in units(stored):
        cost = sum(one.tokens for one in (*batch, *unit))
        large = any(one.tokens > large_tokens for one in unit)
        if batch and (cost > max_tokens or large):
            break
        batch += unit
        if large:
            break
    return batch


def pieces(batch: Iterable[Stored], max_tokens: int, large_tokens: int) -> list[str]:
    """Return what an observer is shown, one text per call of its model; empty where nothing was said."""
    found: list[str] = []
    spent = 0
    for head, said in ((_head(one), said) for one in batch for said in _lines(one)):
        cost = count_tokens(said)
        if cost > large_tokens:
            found += [f"{head} {part}" for part in _parts(said, large_tokens, cost)]
            spent = max_tokens
        elif found and spent + cost <= max_tokens:
            found[-1] += f"\n{head} {said}"
            spent += cost
        else:
            found.append(f"{head} {said}")
            spent = cost
    return found


def day_of(stored: Stored) -> str:
    """Return the day of a message, UTC."""
    return as_datetime(stored.created_at).strftime("%Y-%m-%d")


def _head(stored: Stored) -> str:
    return f"#{stored.seq} {as_datetime(stored.created_at):%Y-%m-%d %H:%M}"


def _lines(stored: Stored) -> Iterator[str]:
    message = stored.message
    if message is not None and message.role != "event":
        for said in (*_said(message), *_files(stored)):
            yield _INDENT.join(said.splitlines())


def _said(message: Message) -> Iterator[str]:
    who = "user" if message.role == "user" else message.author or message.role
    calls = [call for call in message.tool_calls if not call.name.startswith(_ASKS_USER)]
    if message.content and not (message.role == "tool" and message.tool_calls):
        yield f"{who}: {message.content}"
    for call in calls:
        if call.input is not None or call.output is None:
            yield f"{who} calls {call.name} with {compact_json(call.input or {})}"
        if call.output is not None:
            yield f"{call.name} returned {compact_json(call.output)}"


def _files(stored: Stored) -> Iterator[str]:
    """Tell which files a message brings; of a text, also what it says."""
    layout: Any = (stored.extra or {}).get("parts") or ()
    for part in layout:
        blob = cast("dict[str, Any]", part).get("inline_data") if isinstance(part, dict) else None
        if not blob:
            continue
        kind, data = blob.get("mime_type") or "", blob.get("data") or b""
        file = f"a file is attached: {blob.get('display_name') or 'without a name'} ({kind})"
        yield f"{file}: {data.decode('utf-8', 'replace')}" if kind.startswith("text/") else file


def _parts(said: str, max_tokens: int, cost: int) -> list[str]:
    """Cut what is too large into parts that say which they are."""
    count = -(-cost // max_tokens)
    if count > _MOST_PARTS:
        count = _MOST_PARTS
        half = len(said) * max_tokens * _MOST_PARTS // cost // 2
        said = f"{said[:half]}{_INDENT}[... the middle was left out ...]{_INDENT}{said[len(said) - half :]}"
    size = -(-len(said) // count)
    return [f"(part {at + 1} of {count}) {said[at * size : (at + 1) * size]}" for at in range(count)]
