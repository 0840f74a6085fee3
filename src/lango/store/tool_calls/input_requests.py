"""Store the requests of workflows for a person's input: each is answered once, in time, or gets no answer.

A request is an open call of its own, as an approval request is. It is closed by an answer, by the next message of the
user, or by the database's clock; `lango.store.tool_calls.approvals` closes both kinds of requests.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import WaitNotOpen
from lango.messages import ToolCall
from lango.sessions import SessionId, SessionRecord, StoredEvent
from lango.store.codec.ids import address_safe_id
from lango.store.engine.database import Operation
from lango.store.sessions.open_calls import INPUT_REQUEST
from lango.store.tool_calls.open_requests import answer_request, read_open_requests


class InputRequest(Struct, frozen=True):
    """A request for a value from a person, who reads the message and gives a value that fits the schema."""

    call_id: str
    """The id with which clients answer: safe in an address."""
    message: str
    schema: Mapping[str, Any] | None
    """The JSON schema of the value; None: any value."""
    payload: Any
    """What the workflow shows besides the message."""
    author: str
    path: str
    """The node of the workflow that requests the input."""
    requested_at: float
    expires_at: float | None
    seq: int
    """The message that makes the request: a workflow may request input again with the same id."""
    invocation_id: str
    branch: str | None = None
    """The branch of the workflow's run that waits: the answer belongs to it."""
    isolation_scope: str | None = None
    tool_call_id: str = ""
    """The running tool call that asks; empty: a workflow does. See `lango.store.tool_calls.tool_questions`."""
    stored_id: str = ""
    """The id that the workflow gave; empty: a running tool asks."""


class InputAnswer(Struct, frozen=True):
    """A person's answer to an input request."""

    call_id: str
    seq: int
    """The message that made the request."""


def read_input_requests(session: SessionRecord) -> Operation[list[InputRequest]]:
    """Read the input requests that can still be answered, in order."""
    found = yield from read_open_requests(session, INPUT_REQUEST)
    return [input_request(request.stored, request.call, request.expires_at) for request in found]


def input_request(stored: StoredEvent, call: ToolCall, expires_at: float | None = None) -> InputRequest:
    """Return the input request of a call in a stored message."""
    arguments = call.input or {}
    schema = arguments.get("response_schema")
    node: Mapping[str, Any] = (stored.extra or {}).get("node_info") or {}
    return InputRequest(
        address_safe_id(call.id),
        str(arguments.get("message") or ""),
        schema if isinstance(schema, dict) else None,  # pyright: ignore[reportUnknownArgumentType]
        arguments.get("payload"),
        stored.message.author if stored.message else "",
        node.get("path", ""),
        stored.created_at,
        expires_at,
        stored.seq,
        stored.invocation_id,
        (stored.extra or {}).get("branch"),
        (stored.extra or {}).get("isolation_scope"),
        stored_id=call.id,
    )


def record_answer(key: int, name: SessionId, answer: InputAnswer) -> Operation[None]:
    """Record an answer, once and in time; raise `WaitNotOpen` for any other."""
    if not (yield from answer_request(key, INPUT_REQUEST, answer.call_id, answer.seq)):
        raise WaitNotOpen(f"the input request {answer.call_id!r} of session {name.id!r} is not open any more")
