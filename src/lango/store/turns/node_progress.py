"""Derive the progress of a workflow's nodes from what is stored of a turn, for readers that did not follow it.

An event of a node has the node's path, and says what the node put out, why it failed, or what it waits for. A function
node that put out nothing has no event, but an entry in the tool journal. A node that waited for input and does not run
again with the answer ends with the message that brings the answer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.events import NodeProgress, output_to_text
from lango.sessions import INPUT_CALL, SessionRecord, StoredEvent
from lango.store.codec.ids import shorten
from lango.store.codec.rows import MESSAGE_COLUMNS, row_to_event
from lango.store.engine.database import LARGEST, Operation, Row
from lango.store.sessions.lineage import all_row_ranges, live_ranges

WORKFLOW_NODE = "workflow_node"
"""In the `extra` of an event without output: its path is that of a workflow's node, and not only of a sub-agent."""
NODE_STEP = "node:"
"""The prefix of a function node's id in the tool journal; its path and `#` with the attempt follow."""

_MAX_SHOWN_CHARACTERS = 10_000  # of a node's output in its progress; the stored event has all of it
_MOST_EVENTS = 1000  # of nodes in one page of messages
_EVENTS = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq >= $2 AND seq <= $3
    AND (extra LIKE '%"node_info"%' OR author = 'user') ORDER BY seq DESC LIMIT {_MOST_EVENTS}
"""  # noqa: S608 - constants
_JOURNALED = """
SELECT j.call_id, j.name, j.status, j.started_at, j.finished_at, t.first_seq
FROM turns t JOIN tool_journal j ON j.session_key = t.session_key AND j.epoch = t.first_epoch
WHERE t.session_key = $1 AND t.first_seq >= $2 AND t.first_seq <= $3 AND j.call_id LIKE 'node:%'
"""
_EVENTS_OF_INVOCATION = f"""
SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND invocation_id = $2 ORDER BY seq
"""  # noqa: S608 - constants
_JOURNALED_IN_INVOCATION = """
SELECT j.call_id, j.name, j.status, j.started_at, j.finished_at, t.first_seq
FROM turns t JOIN tool_journal j ON j.session_key = t.session_key AND j.epoch = t.first_epoch
WHERE t.session_key = $1 AND t.invocation_id = $2 AND j.call_id LIKE 'node:%'
"""
# the requests that an input answers are a few messages before it
_REQUESTS = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq < $2 AND role = 'assistant'
    AND tool_calls LIKE '%{INPUT_CALL}%' ORDER BY seq DESC LIMIT 50
"""  # noqa: S608 - constants


class NodeStep(Struct, frozen=True):
    """One step in the progress of a node: when it happened, and after which message."""

    at: float
    seq: int
    event: NodeProgress
    """Its id is 0: only events of a turn that is followed are numbered."""


class _JournaledNode(Struct, frozen=True):
    path: str
    attempt: int
    finished: bool
    started_at: float
    finished_at: float
    first_seq: int


class _Node(Struct):
    """What is known of one node in one turn."""

    at: float
    seq: int
    failures: list[tuple[float, int, str]] = []
    status: str = ""
    ended_at: float = 0.0
    ended_seq: int = 0
    output: Any = None

    def end(self, stored: StoredEvent, status: str, output: Any = None) -> None:
        self.status, self.ended_at, self.ended_seq = status, stored.created_at, stored.seq
        self.output = output if output is not None else self.output


def shown_output(output: Any) -> Any:
    """Return the output that readers see of a node, clipped to a text if it is long."""
    if output is None:
        return None
    text = output_to_text(output)
    return output if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def answered_value(output: Mapping[str, Any] | None) -> Any:
    """Return the value in the stored answer to an input request."""
    members = dict(output or {})
    return members["result"] if members.keys() == {"result"} else members


def read_node_steps(session: SessionRecord, first_seq: int, last_seq: int) -> Operation[list[NodeStep]]:
    """Read the progress of nodes between two messages of a session, turn by turn, in order."""
    events: list[StoredEvent] = []
    journaled: list[_JournaledNode] = []
    live = [
        (max(first, first_seq), min(last, last_seq)) for first, last in live_ranges(session.last_seq, session.rewinds)
    ]
    for key, first, last in all_row_ranges(session, live):
        events += [row_to_event(row) for row in (yield _EVENTS, (key, first, last))]
        if any(_path(stored) for stored in events):
            journaled += yield from _read_journaled(key, first, last)
    events.reverse()
    if not any(_path(stored) for stored in events):
        return []
    requests = yield from read_request_paths(session.key, events)
    return [*_steps(events, journaled, requests)]


def latest_by_turn(steps: Iterable[NodeStep], page: Sequence[StoredEvent]) -> dict[int, list[NodeProgress]]:
    """Return the latest progress of each node, in the order of their starts, by the message that started their turn.

    Nodes of a turn that started before the page are with its first message.
    """
    starts = [stored.seq for number, stored in enumerate(page) if _is_input(stored) or number == 0]
    nodes: dict[int, dict[str, NodeProgress]] = {}
    for step in steps:
        start = max((seq for seq in starts if seq <= step.seq), default=starts[0])
        nodes.setdefault(start, {})[step.event.path] = step.event
    return {start: [*latest.values()] for start, latest in nodes.items()}


def read_earlier_nodes(key: int, invocation_id: str, event_id: str) -> Operation[dict[str, str]]:
    """Read the nodes that ran in an invocation before the input `event_id` continued it: their status, by path."""
    rows = yield _EVENTS_OF_INVOCATION, (key, shorten(invocation_id))
    events: list[StoredEvent] = []
    for stored in map(row_to_event, rows):
        if stored.event_id == event_id:
            break
        events.append(stored)
    if not any(_path(stored) for stored in events):
        return {}
    journaled = _journaled_nodes((yield _JOURNALED_IN_INVOCATION, (key, invocation_id)))
    earlier = [entry for entry in journaled if entry.first_seq <= events[-1].seq]
    steps = _steps(events, earlier, _request_paths(events))
    return {step.event.path: step.event.status for step in steps}


def read_request_paths(key: int, events: Iterable[StoredEvent]) -> Operation[dict[str, str]]:
    """Read the paths of the nodes whose input requests are made or answered in these events, by call."""
    events = list(events)
    paths = _request_paths(events)
    missing = [stored.seq for stored in events for call_id in _answers(stored) if call_id not in paths]
    if missing:
        earlier = [row_to_event(row) for row in (yield _REQUESTS, (key, max(missing)))]
        paths = {**_request_paths(reversed(earlier)), **paths}
    return paths


def _request_paths(events: Iterable[StoredEvent]) -> dict[str, str]:
    return {
        call.id: _path(stored)
        for stored in events
        if stored.message and stored.message.role == "assistant" and (stored.extra or {}).get(WORKFLOW_NODE)
        for call in stored.message.tool_calls
        if call.name == INPUT_CALL
    }


def _read_journaled(key: int, first: int, last: int) -> Operation[list[_JournaledNode]]:
    return _journaled_nodes((yield _JOURNALED, (key, first, last)))


def _journaled_nodes(rows: Iterable[Row]) -> list[_JournaledNode]:
    found: list[_JournaledNode] = []
    for call_id, _, status, started_at, finished_at, first_seq in rows:
        path, _, attempt = str(call_id).removeprefix(NODE_STEP).rpartition("#")
        if started_at is not None and attempt.isdecimal():
            ended = finished_at or started_at
            found.append(_JournaledNode(path, int(attempt), status == "finished", started_at, ended, first_seq))
    return found


def _steps(
    events: Sequence[StoredEvent], journaled: Sequence[_JournaledNode], requests: Mapping[str, str]
) -> Iterator[NodeStep]:
    """Yield the steps of all nodes, turn by turn: each begins with a message of the user."""
    turns: list[list[StoredEvent]] = []
    for stored in events:
        if _is_input(stored) or not turns:
            turns.append([])
        turns[-1].append(stored)
    ends = [turn[0].seq for turn in turns[1:]] + [LARGEST]
    for turn, end in zip(turns, ends, strict=True):
        own = [entry for entry in journaled if turn[0].seq <= entry.first_seq < end]
        yield from _turn_steps(turn, own, requests)


def _turn_steps(
    turn: Sequence[StoredEvent], journaled: Sequence[_JournaledNode], requests: Mapping[str, str]
) -> list[NodeStep]:
    nodes: dict[str, _Node] = {}
    for stored in turn:
        _note_event(nodes, stored)
    attempts = {(entry.path, entry.attempt): entry for entry in journaled}
    for entry in journaled:
        nodes.setdefault(entry.path, _Node(entry.started_at, _seq_at(turn, entry.started_at)))
    steps: list[NodeStep] = []
    for path, value in _answers(turn[0]).items():
        if (node_path := requests.get(path)) and node_path not in nodes:
            steps.append(_step(turn[0].created_at, turn[0].seq, node_path, "ended", output=shown_output(value)))
    for path, node in nodes.items():
        steps += _node_steps(path, node, attempts, turn)
    return sorted(steps, key=_order)


def _order(step: NodeStep) -> tuple[float, bool, int]:
    """Order steps of the same moment: nodes start from the outside in, and end from the inside out."""
    depth, has_ended = step.event.path.count("/"), step.event.status != "started"
    return step.at, has_ended, -depth if has_ended else depth


def _note_event(nodes: dict[str, _Node], stored: StoredEvent) -> None:
    """Note what one event says about its node, and about the nodes around it."""
    extra: Mapping[str, Any] = stored.extra or {}
    path = _path(stored)
    if not path:
        return
    ended_for: Sequence[str] = [other for other in (extra["node_info"].get("output_for") or ()) if "/" in other]
    calls = stored.message.tool_calls if stored.message and stored.message.role == "assistant" else ()
    if not (ended_for or extra.get(WORKFLOW_NODE)):
        return
    node = nodes.setdefault(path, _Node(stored.created_at, stored.seq))
    if "error_code" in extra and not (stored.message and (stored.message.content or calls)):
        node.failures.append(
            (stored.created_at, stored.seq, f"{extra['error_code']}: {extra.get('error_message', '')}")
        )
        return
    if extra.get("long_running_tool_ids"):
        _note_waiting(nodes, stored, path)
        return
    if stored.message and stored.message.role == "tool":
        node.status = ""
    if ended_for or "output" in extra:
        node.end(stored, "ended", shown_output(extra.get("output")))
        for other in ended_for:
            if other != path:
                nodes.setdefault(other, _Node(node.at, node.seq)).end(stored, "ended")


def _note_waiting(nodes: dict[str, _Node], stored: StoredEvent, path: str) -> None:
    """Note that a node waits for an answer, and with it every node around it."""
    while "/" in path:
        node = nodes.setdefault(path, _Node(stored.created_at, stored.seq))
        if node.status != "ended":
            node.end(stored, "waiting")
        path = path.rpartition("/")[0]


def _node_steps(
    path: str, node: _Node, attempts: Mapping[tuple[str, int], _JournaledNode], turn: Sequence[StoredEvent]
) -> Iterator[NodeStep]:
    number = 0
    for number, (at, seq, error) in enumerate(node.failures, start=1):
        noted = attempts.get((path, number))
        yield _step(noted.started_at if noted else min(node.at, at), seq, path, "started", number)
        yield _step(at, seq, path, "failed", number, error=error)
    number += 1
    noted = attempts.get((path, number))
    if node.failures and noted is None and not node.status:
        return
    started_at = noted.started_at if noted else max([node.at, *(at for at, _, _ in node.failures)])
    yield _step(started_at, node.seq, path, "started", number)
    if node.status:
        yield _step(max(node.ended_at, started_at), node.ended_seq, path, node.status, number, output=node.output)
    elif noted is not None and noted.finished:
        yield _step(noted.finished_at, _seq_at(turn, noted.finished_at), path, "ended", number)


def _step(at: float, seq: int, path: str, status: Any, attempt: int = 1, **fields: Any) -> NodeStep:
    name = path.rpartition("/")[2].rpartition("@")[0]
    return NodeStep(at, seq, NodeProgress(0, name, path, status, attempt, **fields))


def _seq_at(turn: Sequence[StoredEvent], at: float) -> int:
    """Return the newest message of a turn at a time."""
    return max((stored.seq for stored in turn if stored.created_at <= at), default=turn[0].seq)


def _path(stored: StoredEvent) -> str:
    """Return the path of the node that an event comes from; empty: from none below the root."""
    node: Mapping[str, Any] = (stored.extra or {}).get("node_info") or {}
    path: str = node.get("path", "")
    return path if "/" in path else ""


def _is_input(stored: StoredEvent) -> bool:
    return stored.message is not None and stored.message.author == "user"


def _answers(stored: StoredEvent) -> dict[str, Any]:
    """Return the values that a message of the user brings for input requests, by call."""
    if stored.message is None or stored.message.role != "tool" or stored.message.author != "user":
        return {}
    return {
        call.id: answered_value(call.output)
        for call in stored.message.tool_calls
        if call.name == INPUT_CALL and "error" not in (call.output or {})
    }
