"""The message of a turn as its row keeps it: whole while it is queued, and as a digest beside its idempotency key."""

import hashlib
from collections.abc import Mapping
from typing import Any

from lango.messages import Message
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import ClientResult, Entry, calls_from_json, calls_to_json, to_columns


def says_the_same(entry: Entry, digest: str | None) -> bool:
    """Whether a message is the one of an earlier turn, of which a digest is kept.

    A message that only tries again says nothing of its own.
    """
    return entry.message is None or entry.message.role == "event" or digest is None or digest == digest_of(entry)


def digest_of(entry: Entry) -> str:
    """Return what two requests with the same message have in common, and no others; it outlives the message.

    Results beside a message are no part of it: those of calls that do not wait any more are left out of a retry.
    """
    row = to_columns(entry)
    said = dumps([row.role, row.content, row.tool_calls, row.state_delta, row.extra])
    return hashlib.sha256(said.encode()).hexdigest()


def dump_entry(entry: Entry) -> str:
    """Spell the message of a turn that is queued."""
    return dumps(_to_object(entry))


def _to_object(entry: Entry) -> dict[str, Any]:
    message = entry.message or Message("user")
    return {
        "event_id": entry.event_id,
        "created_at": entry.created_at,
        "invocation_id": entry.invocation_id,
        "tokens": entry.tokens,
        "role": message.role,
        "author": message.author,
        "content": message.content,
        "tool_calls": calls_to_json(message.tool_calls),
        "extra": dict(entry.extra or {}),
        "state_delta": dict(entry.state_delta or {}),
        "results": {call_id: [one.output, one.whole] for call_id, one in entry.results.items()},
        "before": [_to_object(one) for one in entry.before],
    }


def entry_of(text: str) -> Entry:
    """Read the message of a turn that waits."""
    return _from_object(loads(text))


def _from_object(told: Mapping[str, Any]) -> Entry:
    return Entry(
        event_id=told["event_id"],
        created_at=told["created_at"],
        invocation_id=told["invocation_id"],
        tokens=told["tokens"],
        message=Message(told["role"], told["content"], calls_from_json(told["tool_calls"]), told["author"]),
        extra=told["extra"],
        state_delta=told.get("state_delta") or None,
        results={call_id: ClientResult(*one) for call_id, one in told.get("results", {}).items()},
        before=tuple(_from_object(one) for one in told.get("before", ())),
    )
