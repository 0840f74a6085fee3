"""The message that closes calls which nobody answered, or which were answered elsewhere."""

import re

from lango.history import count_tokens
from lango.messages import Message, ToolCall
from lango.store.codec.json_text import dumps
from lango.store.codec.records import Entry, Stored

_PLACE = ("branch", "isolation_scope")
_ID = re.compile(r"(closed|client|no)-\d+-\d+")


def closing(event_id: str, made_by: Stored, results: tuple[ToolCall, ...], now: float) -> Entry:
    """Make the message that closes calls, where the agent that made them finds it: on its branch, in its scope."""
    author = made_by.message.author if made_by.message else ""
    message = Message("tool", "\n".join(dumps(one.output) for one in results), results, author)
    return Entry(
        event_id=event_id,
        created_at=now,
        message=message,
        tokens=count_tokens(message),
        invocation_id=made_by.invocation_id,
        extra={name: value for name, value in (made_by.extra or {}).items() if name in _PLACE},
    )


def is_closing(stored: Stored) -> bool:
    """Whether a message closes calls, and was no event of the turn that made them."""
    return _ID.fullmatch(stored.event_id) is not None
