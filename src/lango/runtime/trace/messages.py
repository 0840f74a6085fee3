"""Classify the stored messages of a turn: responses of models, or made by code, and when each began."""

from collections import deque
from collections.abc import Iterable, Sequence

from lango.runtime.trace.steps import Step
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, StoredEvent

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
