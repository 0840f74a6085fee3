"""Define the steps of a trace (agents, model calls, tools), and classify the stored messages that they follow from."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.events import Usage
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, Status, StoredEvent
from lango.store.turns.turn_usage import Resumption

StepKind = Literal["agent", "model_call", "tool", "node", "message"]
MAX_DEPTH = 30
"""How many steps stand below each other: what reads the tree follows its levels."""
StepStatus = Literal["running", "done", "failed", "waiting", "not_run", "unknown"]
"""not_run: its turn ended before it ran. unknown: it had started when its turn ended."""


class Attempt(Struct, frozen=True):
    """One request of a model call. Those that failed were retried, or ended the call."""

    provider: str
    model: str
    started_at: float
    duration_s: float | None = None
    error: str = ""
    status: int | None = None
    """The HTTP status of the response."""
    request_id: str | None = None
    """The id of the stored request, or None if requests are not kept (setting `trace.requests`)."""
    size: int = 0
    """The bytes of the stored request and response."""


class NodeValues(Struct):
    """What a node of a workflow got and put out."""

    input: Any = None
    output: Any = None
    error: str = ""
    """Why it failed."""


class Step(Struct, kw_only=True):
    """An agent, a model call, a tool call, a node of a workflow, or a message that code made."""

    id: str
    """Unique in its turn, and the same each time the trace is read."""
    kind: StepKind
    name: str
    status: StepStatus = "done"
    started_at: float
    duration_s: float | None = None
    is_estimated: bool = False
    """The times follow from those of the messages around it."""
    is_replayed: bool = False
    """Answered from the record when the turn was resumed: the model was called before that."""
    agent: str = ""
    branch: str = ""
    call_id: str = ""
    seq: int | None = None
    """The message with the response, or of a tool: the message that made the call."""
    result_seq: int | None = None
    """Of a tool: the message with its result."""
    approved_by: str | None = None
    model: str = ""
    node: NodeValues | None = None
    """Of a node of a workflow."""
    usage: Usage = Usage()
    attempts: list[Attempt] = []
    steps: "list[Step]" = []

    @property
    def ended_at(self) -> float:
        """When it ended; of a step under way, when it began."""
        return self.started_at + (self.duration_s or 0.0)

    @property
    def workflow(self) -> str:
        """Of a node: the name of its workflow, which its path in `call_id` has: `node:shop@1/pay@1#1`."""
        return self.call_id.rpartition("node:")[2].rpartition("/")[0].rpartition("/")[2].partition("@")[0]


class TurnTrace(Struct, kw_only=True):
    """The steps of one turn."""

    turn: int
    status: Status | Literal["waiting"]
    started_at: float
    duration_s: float | None
    first_seq: int | None
    last_seq: int | None
    is_rewound: bool
    error: str
    usage: Usage
    resumptions: Sequence[Resumption]
    begun_version: str
    """The version of the app that began it."""
    version: str
    """The version of the app that ran it last."""
    steps: list[Step]

    def walk(self) -> Iterator[tuple[int, Step]]:
        """Yield each step before those below it, with its depth."""
        return _walk(self.steps, 0)


def _walk(steps: Sequence[Step], depth: int) -> Iterator[tuple[int, Step]]:
    for step in steps:
        yield depth, step
        yield from _walk(step.steps, depth + 1)


def nesting_depths(parents: Mapping[str, str], keys: Iterable[str]) -> dict[str, int]:
    """Return the depth of each step below the top, in time linear in the number of steps.

    A step that would be below itself, as when a model repeats ids of calls, moves to the top with everything below
    it. So does one that would be deeper than `MAX_DEPTH`.
    """
    depths: dict[str, int] = {}
    for key in keys:
        path: list[str] = []
        on_path: set[str] = set()
        while key and key not in depths and key not in on_path:
            path.append(key)
            on_path.add(key)
            key = parents.get(key, "")
        if key in on_path:
            depths |= dict.fromkeys(path, 0)
            continue
        depth = depths[key] if key else -1
        for step in reversed(path):
            depth = (depth + 1) % MAX_DEPTH
            depths[step] = depth
    return depths


# -- messages ----------------------------------------------------------------------------------------------------------

_REQUESTS = {
    CONFIRMATION_CALL: "request for approval",
    INPUT_CALL: "request for input",
    CREDENTIAL_CALL: "request for access",
}


def is_response(event: StoredEvent) -> bool:
    """Whether a message has the response of a model."""
    message, extra = event.message, event.extra or {}
    if message is None or extra.get("from_code") or extra.get("output_text"):
        return False
    if message.role == "event":
        return bool(extra.get("error_code") and (extra.get("finish_reason") or extra.get("usage_metadata")))
    return message.role == "assistant"


def is_from_code(event: StoredEvent) -> bool:
    """Whether code made a message: a callback, the user's own agent, or a workflow with its output."""
    extra = event.extra or {}
    made = extra.get("from_code") or extra.get("output_text")
    return event.message is not None and event.message.role == "assistant" and bool(made)


def author_of(event: StoredEvent) -> str:
    """Return the agent of a message."""
    return event.message.author if event.message else ""


def branch_of(event: StoredEvent) -> str:
    """Return the branch of a message, or an empty text if no agents run in parallel."""
    return (event.extra or {}).get("branch") or ""


class UnmatchedResponses:
    """The responses of models that no known call has yet, to be taken in order by their agent and branch."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self.seqs: set[int] = set()
        self._places: dict[tuple[str, str], deque[StoredEvent]] = {}
        for event in events:
            self.seqs.add(event.seq)
            self._places.setdefault((author_of(event), branch_of(event)), deque()).append(event)

    def take_first(self, agent: str, branch: str) -> StoredEvent | None:
        """Take the first response of an agent in a branch, or return None if none is left."""
        left = self._places.get((agent, branch))
        if not left:
            return None
        event = left.popleft()
        self.seqs.remove(event.seq)
        return event


def previous_times(messages: Sequence[StoredEvent], started_at: float) -> dict[int, float]:
    """Return for each message when the one before it came, in its own branch or in none."""
    newest: dict[str, float] = {}
    found: dict[int, float] = {}
    for event in messages:
        branch = branch_of(event)
        before = max(newest.get(branch, started_at), newest.get("", started_at))
        found[event.seq] = min(before, event.created_at)
        newest[branch] = event.created_at
    return found


def message_step(event: StoredEvent, *, turn_waits: bool) -> Step:
    """Return the step of a message that code made: a request to a person waits as long as its turn does."""
    calls = event.message.tool_calls if event.message else ()
    requests = [_REQUESTS[call.name] for call in calls if call.name in _REQUESTS]
    return Step(
        id=f"message:{event.seq}",
        kind="message",
        name=", ".join(requests or [call.name for call in calls]) or "message",
        status="waiting" if requests and turn_waits else "done",
        started_at=event.created_at,
        duration_s=0.0,
        agent=author_of(event),
        branch=branch_of(event),
        seq=event.seq,
    )
