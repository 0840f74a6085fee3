"""Fold the events of turns into an A2A task and its updates. Imports `a2a`.

A task is a turn and the turns that continue it: those that bring answers to what it waits for. Its state and artifacts
follow from the event log alone, so every process shows the same task, during the turn and afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from a2a.types import (
    Artifact,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp

from lango import events
from lango.errors import TurnCancelled
from lango.events.text import FinalText, TextOrder
from lango.server.compat.a2a.parts import agent_message, data_part, metadata, text_part, wait_parts
from lango.server.compat.wait_answers import asks_client
from lango.waits import CredentialWait, QuestionWait

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
"""States of a task that nothing continues."""
INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
"""States of a task that waits for a message of its client."""

TaskUpdate = TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class TaskView:
    """A task, as the events so far show it."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task = Task(id=task_id, context_id=context_id)
        self._set_status(TaskState.TASK_STATE_SUBMITTED)
        self._answer, self._order = FinalText(), TextOrder()
        self._answer_id = ""
        self.is_paused = False
        """Whether the newest turn ended with waits: it continues when one is answered, unless all are closed."""

    @property
    def state(self) -> TaskState:
        """The state of the task."""
        return self.task.status.state

    @property
    def is_settled(self) -> bool:
        """Whether no update follows before the client sends a message."""
        return self.state in TERMINAL or self.state in INTERRUPTED

    def begin_turn(self, turn: int, created_at: float, sent: Message | None) -> None:
        """Begin a turn of the task with the message that the client sent: a further turn continues its work."""
        state = TaskState.TASK_STATE_WORKING if self._answer_id else TaskState.TASK_STATE_SUBMITTED
        self._answer, self._order, self._answer_id = FinalText(), TextOrder(), f"answer-{turn}"
        self._set_status(state, at=created_at)
        self.is_paused = False
        if sent is not None:
            self.task.history.append(sent)

    def end_at(self, at: float | None) -> None:
        """Set the time of the last change, which a task that is read again shows."""
        if at is not None:
            self.task.status.timestamp.CopyFrom(_timestamp(at))

    def add(self, event: events.TurnEvent) -> Iterator[TaskUpdate]:
        """Add the next event of the turn; yield what changes for the client."""
        if text := "".join(self._answer.add(ready) for ready in self._order.add(event)):
            yield from self._work()
            yield self._add_text(text)
        match event:
            case events.TurnDone():
                yield from self._end_answer()
                if event.output is not None and not isinstance(event.output, str):
                    yield self.add_artifact(f"output-{event.turn}", "output", [data_part(event.output)])
                yield self._done(event)
            case events.TurnError(fatal=True):
                yield from self._end_answer()
                cancelled = event.error == TurnCancelled.__name__
                state = TaskState.TASK_STATE_CANCELED if cancelled else TaskState.TASK_STATE_FAILED
                yield self._change(state, [text_part(event.message)], event.id, _failure(event))
            case events.WaitOpened(wait=QuestionWait() as wait):  # the turn runs on
                yield self._change(TaskState.TASK_STATE_INPUT_REQUIRED, wait_parts(wait), event.id)
            case events.ToolProgress(message=str(message)) if message:
                yield self._change(TaskState.TASK_STATE_WORKING, [text_part(message)], event.id)
            case events.ToolStart() | events.NodeProgress() | events.WaitClosed() | events.Resumed():
                yield from self._work()
            case _:
                pass

    def add_artifact(self, artifact_id: str, name: str, parts: Sequence[Part]) -> TaskArtifactUpdateEvent:
        """Add a whole artifact to the task."""
        artifact = Artifact(artifact_id=artifact_id, name=name, parts=parts)
        self.task.artifacts.append(artifact)
        return self._artifact_update(artifact, append=False, last=True)

    def _work(self) -> Iterator[TaskUpdate]:
        if self.state != TaskState.TASK_STATE_WORKING:
            yield self._change(TaskState.TASK_STATE_WORKING)

    def _add_text(self, text: str) -> TaskArtifactUpdateEvent:
        """Add text to the artifact of the answer."""
        known = next((one for one in self.task.artifacts if one.artifact_id == self._answer_id), None)
        if known is None:
            self.task.artifacts.append(Artifact(artifact_id=self._answer_id, name="answer", parts=[text_part(text)]))
        else:
            known.parts[0].text += text
        piece = Artifact(artifact_id=self._answer_id, name="answer", parts=[text_part(text)])
        return self._artifact_update(piece, append=known is not None, last=False)

    def _end_answer(self) -> Iterator[TaskUpdate]:
        """Send the text of the answer once more, whole: some clients keep only what is marked as the last piece."""
        whole = next((one for one in self.task.artifacts if one.artifact_id == self._answer_id), None)
        if whole is not None:
            yield self._artifact_update(whole, append=False, last=True)

    def _artifact_update(self, artifact: Artifact, *, append: bool, last: bool) -> TaskArtifactUpdateEvent:
        return TaskArtifactUpdateEvent(
            task_id=self.task.id, context_id=self.task.context_id, artifact=artifact, append=append, last_chunk=last
        )

    def _done(self, event: events.TurnDone) -> TaskUpdate:
        usage = event.usage
        used = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        self.task.metadata.CopyFrom(metadata({"usage": used}))
        match event.status:
            case "done":
                return self._change(TaskState.TASK_STATE_COMPLETED)
            case "cancelled":
                return self._change(TaskState.TASK_STATE_CANCELED)
            case _:
                self.is_paused = event.status == "waiting"
                asked = [wait for wait in event.waits if asks_client(wait)]
                if not asked:  # the result comes from elsewhere, and another turn brings it
                    return self._change(TaskState.TASK_STATE_WORKING)
                needs_access = all(isinstance(wait, CredentialWait) for wait in asked)
                state = TaskState.TASK_STATE_AUTH_REQUIRED if needs_access else TaskState.TASK_STATE_INPUT_REQUIRED
                return self._change(state, [part for wait in asked for part in wait_parts(wait)], event.id)

    def _change(
        self, state: TaskState, parts: Sequence[Part] = (), event_id: int = 0, about: Mapping[str, Any] | None = None
    ) -> TaskStatusUpdateEvent:
        """Set the state of the task; return the update."""
        self._set_status(state, parts, event_id)
        if about:
            self.task.status.message.metadata.CopyFrom(metadata(about))
        return TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=self.task.status)

    def _set_status(
        self, state: TaskState, parts: Sequence[Part] = (), event_id: int = 0, at: float | None = None
    ) -> None:
        message = (
            agent_message(f"{self.task.id}-{event_id}", self.task.id, self.task.context_id, parts) if parts else None
        )
        moment = datetime.now(UTC).timestamp() if at is None else at
        self.task.status.CopyFrom(TaskStatus(state=state, message=message, timestamp=_timestamp(moment)))


def _failure(event: events.TurnError) -> dict[str, Any]:
    """Return what a program reads of a failure: the type of the error, and when another task may succeed."""
    return {"error": event.error} | ({"retry_after_s": event.retry_after_s} if event.retry_after_s else {})


def _timestamp(at: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(int(at * 1_000_000))
    return stamp
