"""Define the steps of a trace (agents, model calls, tools), and how deep each stands below the others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.events import Usage
from lango.sessions import Status
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


def nesting_depths(parents: Mapping[str, str], keys: Iterable[str]) -> dict[str, int]:
    """Return how deep each step stands below the top, in time linear in the number of steps.

    A step that would be below itself, as with ids of calls that a model repeats, stands at the top with all that it
    leads to. So does one that would be deeper than `MAX_DEPTH`.
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
