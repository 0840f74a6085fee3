"""Show a request to a model as people read it: what was sent, what came back, and what differs from the one before."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from lango.providers.request_view import RequestChanges, RequestView, content_view, request_changes, request_view
from lango.sessions import SessionId
from lango.store import Store
from lango.store.turns.developer_log import ModelRequest, read_request
from lango.threads import run_in_thread


class AnswerView(Struct, frozen=True):
    """What came back, merged from what was streamed."""

    text: str
    thoughts: str
    calls: Any
    """Each with its id, name and arguments."""
    finish: str
    """Why the answer ended, as the provider names it."""
    usage: Mapping[str, Any]


class ReadableRequest(Struct, frozen=True):
    """A request to a model as people read it."""

    id: str
    turn: int
    provider: str
    model: str
    url: str
    """Empty: the model runs in the server's process."""
    started_at: float
    duration_s: float | None
    status: int | None
    error: str
    sent: RequestView
    answer: AnswerView | None
    """None: nothing came back."""
    previous_id: str | None
    """The request of the same agent before this one; null: none is kept."""
    changes: RequestChanges | None
    """How it differs from that one."""


async def readable_request(store: Store, name: SessionId, request_id: str) -> ReadableRequest:
    """Read a request as people read it. Raise `TraceNotFound` if it is not kept, or no longer kept."""
    return await run_in_thread(_readable, *await store.read(read_request, name, request_id))


def _readable(request: ModelRequest, before: ModelRequest | None) -> ReadableRequest:
    bodies = request.bodies()
    sent = request_view(bodies["request"])
    return ReadableRequest(
        request.id,
        request.turn,
        request.provider,
        request.model,
        request.url,
        request.started_at,
        request.duration_s,
        request.status,
        request.error,
        sent,
        _answer(bodies),
        before.id if before else None,
        request_changes(request_view(before.bodies()["request"]), sent) if before else None,
    )


def _answer(bodies: Mapping[str, Any]) -> AnswerView | None:
    if bodies["answer"] is not None:
        return AnswerView(**bodies["answer"])
    if not isinstance(bodies["response"], dict) or "content" not in bodies["response"]:
        return None  # not that of one of ADK's own models
    response = cast("Mapping[str, Any]", bodies["response"])
    content = content_view(response["content"])
    calls = [{"id": call.id, "name": call.name, "arguments": call.value} for call in content.calls]
    return AnswerView(
        content.text, content.thoughts, calls, response.get("finish_reason") or "", response.get("usage_metadata") or {}
    )
