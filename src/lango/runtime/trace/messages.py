"""Classify the stored messages of a turn: responses of models, or made by code, and when each began."""

from collections.abc import Sequence

from lango.runtime.trace.steps import Step
from lango.store import StoredEvent


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
    """Return the branch of a message; empty: no agents run in parallel."""
    return (event.extra or {}).get("branch") or ""


def take_first(events: list[StoredEvent], branch: str | None) -> StoredEvent | None:
    """Take the first message of a branch; an older turn did not note the branches of its calls."""
    for at, event in enumerate(events):
        if branch is None or branch_of(event) == branch:
            return events.pop(at)
    return None


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


def message_step(event: StoredEvent) -> Step:
    """Return the step of a message that code made."""
    calls = event.message.tool_calls if event.message else ()
    return Step(
        id=f"message:{event.seq}",
        kind="message",
        name=", ".join(call.name for call in calls) or "message",
        started_at=event.created_at,
        duration_s=0.0,
        agent=author_of(event),
        branch=branch_of(event),
        seq=event.seq,
    )
