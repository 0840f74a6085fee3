"""Rebuild the events of an ended turn from its messages when the event log does not have them.

The log dropped them, or no server ran the turn. Each text is one event, and each tool and each node of a workflow has
its start and its end; thoughts are left out. `accepted` has its original id. The others are numbered from
`FIRST_REBUILT` on, the same each time: their original ids are not stored.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lango import event_ids
from lango.events import (
    Accepted,
    TextDelta,
    ToolEnd,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    Usage,
    WaitOpened,
)
from lango.messages import ToolCall
from lango.sessions import SessionRecord, StoredEvent, as_datetime
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import loads
from lango.store.codec.request_waits import wait_of_request
from lango.store.codec.rows import calls_from_json
from lango.store.engine.database import Operation
from lango.store.sessions.lineage import row_ranges
from lango.store.sessions.open_calls import is_closing_event, message_at
from lango.store.tool_calls import tool_journal
from lango.store.turns import turns
from lango.store.turns.node_progress import NodeStep, read_turn_steps

_NOT_TOOLS = ("transfer_to_agent", "adk_request_")
_EXPIRIES = """
SELECT call_id, expires_at FROM open_calls
WHERE session_key = $1 AND (approves_call_id IS NOT NULL OR input_request > 0)
"""
_SESSION_ID = "SELECT id FROM sessions WHERE session_key = $1"
_WITHOUT_ANSWER = """
SELECT first_seq, status, extra FROM turns WHERE session_key = $1 AND first_seq >= $2 AND first_seq <= $3
    AND status IN ('failed', 'cancelled', 'interrupted')
"""
# an approved call is a few messages before its result
_EARLIER_CALLS = """
SELECT tool_calls FROM messages WHERE session_key = $1 AND seq <= $2 AND role = 'assistant' AND tool_calls IS NOT NULL
ORDER BY seq DESC LIMIT 50
"""


def rebuild_events(key: int, turn: int, record: turns.TurnRecord) -> Operation[list[TurnEvent]]:
    """Rebuild the events of an ended turn, the same each time."""
    found = yield from turns.read_turn_messages(key, turn)
    messages = [event for event in found if not is_closing_event(event)]
    opener = None if record.first_seq is None else (yield from message_at(key, record.first_seq))
    steps = yield from read_turn_steps(key, record.first_seq, opener, messages)
    [[session_id]] = yield _SESSION_ID, (key,)
    rebuilder = _Rebuilder(
        session_id,
        turn,
        messages,
        (yield from tool_journal.read_journal_entries(key, messages)),
        (yield from _earlier_calls(key, messages)),
        {row[0]: row[1] for row in (yield _EXPIRIES, (key,))},
        steps,
    )
    first_id = event_ids.event_id(turn, 1)
    accepted = Accepted(first_id, turn, waiting=record.was_queued, invocation_id=record.invocation_id)
    numbered = [replace(event, id=event_ids.rebuilt_id(turn, n)) for n, event in enumerate(rebuilder.events())]
    return [accepted, *numbered, final_event(turn, record, event_ids.id_range(turn)[1] - 1)]


def final_event(turn: int, record: turns.TurnRecord, event_id: int) -> TurnDone | TurnError:
    """Build the final event of an ended turn."""
    if record.status == "done":
        used: Mapping[str, Any] = record.extra.get("usage") or {}
        spent = [used.get(name, 0) for name in ("input", "output", "cached", "model_calls")]
        usage = Usage(*spent, cost_usd=used.get("cost_usd"), thought_tokens=used.get("thoughts", 0))
        usage = replace(usage, cache_write_tokens=used.get("cache_writes", 0))
        ended: Mapping[str, Any] = record.extra.get("done") or {}
        status, reason = ended.get("status", "done"), ended.get("finish_reason", "")
        return TurnDone(event_id, turn, status, usage, reason, ended.get("output"))
    return _error(record.status, record.extra, event_id, has_run=record.epoch is not None)


def _error(status: str, extra: Mapping[str, Any], event_id: int, *, has_run: bool) -> TurnError:
    """Return why a turn ended without an answer."""
    if status == "cancelled" and not has_run:
        error, message = "TurnCancelled", "the message was withdrawn before its turn started: send it with another key"
    elif status == "cancelled":
        error, message = "TurnCancelled", "the turn was stopped"
    else:
        error, message = "TurnFailed", "the process that ran this turn is gone: what is stored stays; send it again"
    failed: Mapping[str, Any] = extra.get("error") or {}
    return TurnError(
        event_id,
        failed.get("type", error),
        failed.get("message", message),
        retry_after_s=failed.get("retry_after_s"),
    )


def read_turn_errors(session: SessionRecord, first_seq: int, last_seq: int) -> Operation[dict[int, TurnError]]:
    """Read why turns between two messages ended without an answer, by the message that started each."""
    errors: dict[int, TurnError] = {}
    for key, first, last in row_ranges(session, first_seq, last_seq):
        for seq, status, extra in (yield _WITHOUT_ANSWER, (key, first, last)):
            errors[seq] = _error(status, loads(extra) if extra else {}, 0, has_run=True)
    return errors


def _earlier_calls(key: int, messages: Iterable[StoredEvent]) -> Operation[dict[str, ToolCall]]:
    """Find the calls of earlier turns whose results are in this one, because they were approved in between."""
    made = {call.id for event in messages for call in _calls(event)}
    results = {call.id: event.seq for event in messages for call in _results(event) if call.id not in made}
    if not results:
        return {}
    rows = yield _EARLIER_CALLS, (key, min(results.values()))
    found: dict[str, ToolCall] = {}
    for [calls] in rows:
        for call in calls_from_json(calls):
            if call.id in results:
                found.setdefault(call.id, call)
    return found


class _Rebuilder:
    """The messages of a turn, and the journal entries of their calls."""

    def __init__(
        self,
        session_id: str,
        turn: int,
        messages: list[StoredEvent],
        journal: tool_journal.JournalByCall,
        earlier: Mapping[str, ToolCall],
        expiries: Mapping[str, float | None],
        steps: Sequence[NodeStep] = (),
    ) -> None:
        self._session_id = session_id
        self._turn = turn
        self._messages = messages
        self._journal = journal
        self._earlier = earlier
        self._expiries = expiries
        self._steps = steps
        self._answered = {call.id for event in messages for call in _results(event)}

    def events(self) -> Iterator[TurnEvent]:
        """Rebuild the events between the first and the last, without ids."""
        steps = deque(self._steps)
        for event in self._messages:
            # a node starts before its first event, and ends after its last one
            yield from _take_steps(steps, event, has_come=False)
            yield from self._message(event)
            yield from _take_steps(steps, event, has_come=True)
        yield from (step.event for step in steps)

    def _message(self, event: StoredEvent) -> Iterator[TurnEvent]:
        if event.message and event.message.role == "assistant" and event.message.content:
            yield TextDelta(0, event.message.content, event.message.author)
        for call in _calls(event):
            yield from self._call(event, call)
        for result in _results(event):
            yield from self._result(event, result)

    def _call(self, stored: StoredEvent, call: ToolCall) -> Iterator[ToolStart | WaitOpened]:
        expires_at = self._expiries.get(call_key(call.id))
        wait = wait_of_request(
            call,
            stored.message,
            stored.extra,
            None,
            session_id=self._session_id,
            turn=self._turn,
            opened_at=as_datetime(stored.created_at),
            expires_at=None if expires_at is None else as_datetime(expires_at),
        )
        if wait is not None:
            yield WaitOpened(0, wait)
        elif _is_tool(call):
            noted = self._journal.get((stored.seq, call_key(call.id)))
            began = (
                noted is not None
                and noted.started_at is not None
                and noted.approved_by in (None, tool_journal.DECIDED_BY_POLICY)
            )
            if call.id in self._answered or began or call.id in stored.client_call_ids:
                yield _start(call, stored)

    def _result(self, stored: StoredEvent, result: ToolCall) -> Iterator[ToolStart | ToolEnd | TurnError]:
        if call := self._earlier.get(result.id):
            yield _start(call, stored)
        output = result.output or {}
        failed = output.get("error")
        noted = self._journal.get((stored.seq, call_key(result.id)))
        yield ToolEnd(0, result.id, result.name, not failed, output, noted.duration_s if noted else None)
        if failed:
            yield TurnError(0, "ToolFailed", str(failed), fatal=False, call_id=result.id)


def _take_steps(steps: deque[NodeStep], event: StoredEvent, *, has_come: bool) -> Iterator[TurnEvent]:
    """Take the steps of nodes that come before an event, or those up to it once it has come."""
    while steps and (
        steps[0].at < event.created_at
        or (steps[0].at == event.created_at and (has_come or steps[0].event.status == "started"))
    ):
        yield steps.popleft().event


def _start(call: ToolCall, stored: StoredEvent) -> ToolStart:
    return ToolStart(0, call.id, call.name, call.input or {}, stored.message.author if stored.message else "")


def _calls(stored: StoredEvent) -> list[ToolCall]:
    """Return the calls that a message makes."""
    message = stored.message
    if message is None or message.role != "assistant":
        return []
    return [call for call in message.tool_calls if call.output is None]


def _results(stored: StoredEvent) -> list[ToolCall]:
    """Return the results of tools in a message; that a call waits for approval is none."""
    actions: Mapping[str, Any] = (stored.extra or {}).get("actions") or {}
    asks: Mapping[str, Any] = actions.get("requested_tool_confirmations") or {}
    calls = stored.message.tool_calls if stored.message and stored.message.role == "tool" else ()
    return [call for call in calls if _is_tool(call) and call.id not in asks]


def _is_tool(call: ToolCall) -> bool:
    """Whether a call runs a tool: ADK's transfers and approval requests are calls, too."""
    return not call.name.startswith(_NOT_TOOLS)
