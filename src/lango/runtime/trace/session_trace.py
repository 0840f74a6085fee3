"""Read the trace of a session, one request of it as people read it, and its events as they are stored."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from msgspec import Struct

from lango.errors import MessageNotFound, TraceNotFound
from lango.events import NodeProgress, Usage
from lango.messages import Message, StoredBytes
from lango.providers.request_view import RequestChanges, RequestView, content_view, request_changes, request_view
from lango.runtime.trace.prices import Prices, cost_usd
from lango.runtime.trace.steps import TurnTrace
from lango.runtime.trace.tree import turn_trace
from lango.sessions import SessionId, StoredEvent
from lango.store import Store
from lango.store.codec.json_text import loads
from lango.store.codec.rows import calls_to_json, row_to_event
from lango.store.engine.database import Operation
from lango.store.sessions.developer_log import ModelRequest, read_request, read_requests
from lango.store.sessions.sessions import find_session, get_session
from lango.store.sessions.window import read_rows
from lango.store.turns import turn_usage
from lango.store.turns.event_log import read_nodes
from lango.threads import run_in_thread

DEFAULT_TURNS = 20

RunningCalls = Callable[[int, int], Sequence[Mapping[str, Any]]]
"""Returns the model calls so far of a turn that runs in this process, by the session's key and the turn."""


class SessionTrace(Struct, frozen=True):
    """The traces of a session's newest turns, in order."""

    turns: Sequence[TurnTrace]
    before: int | None
    """The value of `before` for the next older page, or None if there are no older turns."""


class _TurnRows(Struct, frozen=True):
    session_key: int
    turn: turn_usage.TurnUsage
    messages: Sequence[StoredEvent]
    requests: Sequence[ModelRequest]
    nodes: Sequence[NodeProgress]


def no_running_calls(_session_key: int, _turn: int) -> Sequence[Mapping[str, Any]]:
    """Return no model calls: for a reader that runs no turns."""
    return ()


async def session_trace(
    store: Store,
    name: SessionId,
    *,
    turn: int | None = None,
    before: int | None = None,
    limit: int = DEFAULT_TURNS,
    running_calls: RunningCalls = no_running_calls,
    prices: Prices,
) -> SessionTrace:
    """Read the trace of the newest turns, of those before a turn, or of one turn.

    Raise `SessionNotFound`, or `TraceNotFound` if the session has no such turn.
    """
    rows, earlier = await store.read(_read, name, turn, before, limit)
    if turn is not None and not rows:
        raise TraceNotFound(f"session {name.id!r} has no turn {turn}")
    running = [running_calls(of_turn.session_key, of_turn.turn.turn) for of_turn in rows]
    turns = await run_in_thread(_build, rows, running, prices)
    return SessionTrace(turns, earlier)


def _read(
    name: SessionId, turn: int | None, before: int | None, limit: int
) -> Operation[tuple[list[_TurnRows], int | None]]:
    session = yield from get_session(name)
    if turn is not None:
        before, limit = turn + 1, 1
    rows = yield from turn_usage.read_turns(session, turn_usage.NEWEST_TURN if before is None else before, limit + 1)
    page = rows[-limit:]
    if turn is not None:
        page = [row for row in page if row.turn == turn]
    requests = (yield from read_requests(session, page[0].turn, page[-1].turn)) if page else []
    found: list[_TurnRows] = []
    for row in page:
        messages: list[StoredEvent] = []
        nodes: list[NodeProgress] = []
        if row.first_seq is not None and row.last_seq is not None:
            stored = yield from read_rows(session, row.first_seq, row.last_seq)
            messages = [row_to_event(message) for message in stored]
            progress = yield from read_nodes(session, row.first_seq, row.first_seq)
            nodes = progress.get(row.first_seq, [])
        of_turn = [one for one in requests if one.turn == row.turn]
        found.append(_TurnRows(session.key, row, messages, of_turn, nodes))
    return found, page[0].turn if page and turn is None and len(rows) > limit else None


def _build(
    rows: Sequence[_TurnRows], running: Sequence[Sequence[Mapping[str, Any]]], prices: Prices
) -> list[TurnTrace]:
    @cache
    def price(model: str, input_tokens: int, output_tokens: int, cached_tokens: int) -> float | None:
        return cost_usd({model: Usage(input_tokens, output_tokens, cached_tokens)}, prices) if model else None

    return [
        turn_trace(of_turn.turn, of_turn.messages, of_turn.requests, calls, price, of_turn.nodes)
        for of_turn, calls in zip(rows, running, strict=True)
    ]


async def traced_event(store: Store, name: SessionId, seq: int) -> dict[str, Any]:
    """Read a message as it is stored, also one that was rewound. Raise `MessageNotFound` if there is none."""

    def read() -> Operation[list[StoredEvent]]:
        session = yield from find_session(name)
        rows = (yield from read_rows(session, seq, seq)) if session and 0 < seq <= session.last_seq else []
        return [row_to_event(row) for row in rows]

    found = await store.read(read)
    if not found:
        raise MessageNotFound(f"session {name.id!r} has no message {seq}")
    return _event_to_json(found[0])


def _event_to_json(event: StoredEvent) -> dict[str, Any]:
    message = event.message or Message("event")
    return {
        "seq": event.seq,
        "event_id": event.event_id,
        "invocation_id": event.invocation_id,
        "created_at": event.created_at,
        "role": message.role,
        "author": message.author,
        "content": message.content,
        "tool_calls": loads(calls_to_json(message.tool_calls)),
        "tokens": event.tokens,
        "state_delta": _without_bytes(event.state_delta or {}),
        "extra": _without_bytes(event.extra or {}),
    }


def _without_bytes(value: Any) -> Any:
    """Replace bytes that stand apart from their row by their hash and size."""
    if isinstance(value, StoredBytes):
        return {"hash": value.hash, "bytes": value.size}
    if isinstance(value, Mapping):
        return {name: _without_bytes(member) for name, member in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_bytes(item) for item in cast("Sequence[Any]", value)]
    return value


# -- one request, as people read it ------------------------------------------------------------------------------------


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
