"""Submit messages as tasks, find tasks by their ids, and follow them. Imports `a2a`.

The id of a task is a hash of the id of its first message, so a message that is sent again gets the same task; the
idempotency key of the task's first turn finds it in any process.
"""

import hashlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from a2a.types import (
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from a2a.utils.task import apply_history_length, decode_page_token, encode_page_token
from msgspec import Struct
from msgspec.structs import replace

from lango import events
from lango.errors import ArtifactNotFound
from lango.runtime.turns import StoredTurn
from lango.runtime.webhooks import TASK_KEY_PREFIX, TASK_MEMBER
from lango.server.compat.a2a.parts import chosen_wait, message_metadata, metadata, to_answer, to_attachments, to_text
from lango.server.compat.a2a.push_notifications import PushNotifications
from lango.server.compat.a2a.task_view import INTERRUPTED, TERMINAL, TaskUpdate, TaskView
from lango.server.context import AgentUser
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo
from lango.submissions import ModelOptions, SubmittedAnswer, SubmittedMessage, TurnRequest
from lango.waits import CredentialWait, Wait

_CONTINUING_PREFIX = "a2a-continuing "
_MESSAGE, _METADATA, _ANSWER = "a2a_message", "a2a_metadata", "a2a_answer"
"""Members of a turn's `client_request`."""
_UNIQUE_ID_LENGTH = 16
_MAX_ANSWER_CHARACTERS = 2_000
_MAX_INLINE_BYTES = 1_000_000
"""A larger artifact is given by its address."""


class TaskTurns(Struct, frozen=True):
    """The stored turns of a task, in order."""

    task_id: str
    session: SessionInfo
    turns: Sequence[tuple[int, StoredTurn]]

    @property
    def context_id(self) -> str:
        """The id of the conversation, which is that of the session."""
        return self.session.name.id

    @property
    def last(self) -> TurnRef:
        """The newest turn."""
        return TurnRef(self.session, self.turns[-1][0])


class Tasks:
    """The tasks of one user of one agent."""

    def __init__(self, user: AgentUser, artifact_url: str) -> None:
        """`artifact_url` is the address under which the server has its sessions."""
        self._user = user
        self._artifact_url = artifact_url
        self.notifications = PushNotifications(user.runtime.webhooks)

    async def find(self, task_id: str) -> TaskTurns:
        """Find the turns of a task. Raise `TaskNotFoundError`, also for a task of another user."""
        turns = self._user.runtime.turns
        known = await turns.find_by_key_of_user(self._user.id, f"{TASK_KEY_PREFIX}{task_id}")
        session = await self._user.sessions.find_by_key(known.session_key) if known else None
        if known is None or session is None:
            raise TaskNotFoundError(f"there is no task {task_id!r}")
        found: list[tuple[int, StoredTurn]] = []
        number: int | None = known.turn
        while number is not None:
            row = await turns.read(session, number)
            if row is None or (not found and (row.client_request or {}).get(TASK_MEMBER) != task_id):
                break  # also a turn that an import says was a task
            run = None
            if not found or _continues(row, task_id, found[0][1]):
                found.append((number, row))
            else:  # another task came in between; a time or an event may have continued this one since
                run = found[0][1].invocation_id
            number = await turns.next(session, number, run)
        if not found:
            raise TaskNotFoundError(f"there is no task {task_id!r}")
        return TaskTurns(task_id, session, found)

    async def submit(self, request: SendMessageRequest) -> TaskTurns:
        """Submit a message: as a new task, or to one that it names, whose wait it answers."""
        message = request.message
        if message.role != Role.ROLE_USER:
            raise InvalidParamsError("message.role: a client sends messages of the role ROLE_USER")
        if not message.parts:
            raise InvalidParamsError("message.parts: the message is empty; send a text, a file or data")
        if unknown := [at for at, part in enumerate(message.parts, 1) if part.WhichOneof("content") is None]:
            raise InvalidParamsError(f"message.parts: part {unknown[0]} has none of text, raw, url and data")
        await self._user.check_token_quota()
        if message.task_id:
            return await self._continue(message)
        task_id = _task_id(self._user, message)
        context_id = message.context_id or f"a2a-{uuid.uuid4().hex}"
        key = f"{TASK_KEY_PREFIX}{task_id}"
        known = await self._user.runtime.turns.find_by_key_of_user(self._user.id, key)
        if known is None:
            turn_request = TurnRequest(key, options=_options(task_id, message))
            text, files = to_text(message.parts), to_attachments(message.parts)
            if not text and not files:
                raise InvalidParamsError("message.parts: the message is empty; send a text, a file or data")
            await self._user.submit(context_id, SubmittedMessage(text, files, request=turn_request))
        return await self.find(task_id)

    async def _continue(self, message: Message) -> TaskTurns:
        """Answer the wait of a task, or queue a message behind its running turn."""
        task = await self.find(message.task_id)
        if message.context_id and message.context_id != task.context_id:
            raise InvalidParamsError(f"message.context_id: the task belongs to the context {task.context_id!r}")
        key = f"{_CONTINUING_PREFIX}{_task_id(self._user, message)}"
        if await self._user.runtime.turns.find_by_key(task.session, key) is not None:
            return task
        state = (await self.view(task)).state
        if state in TERMINAL:
            raise UnsupportedOperationError(f"task {task.task_id!r} has ended: send the message as a new task")
        options = _options(task.task_id, message)
        request = TurnRequest(key, options=options)
        if state not in INTERRUPTED:
            submitted = SubmittedMessage(to_text(message.parts), to_attachments(message.parts), request=request)
            await self._user.submit(task.context_id, submitted)
            return await self.find(task.task_id)
        if not (waits := await self._waits(task)):
            raise UnsupportedOperationError(f"task {task.task_id!r} no longer waits: send the message as a new task")
        wait = chosen_wait(waits, message)
        answer = to_answer(wait, message)
        if not isinstance(wait, CredentialWait):  # its answer is a secret
            shown = {**(options.client_request or {}), _ANSWER: to_text(message.parts)[:_MAX_ANSWER_CHARACTERS]}
            request = replace(request, options=replace(options, client_request=shown))
        await self._user.submit(task.context_id, SubmittedAnswer(wait.id, answer, request))
        return await self.find(task.task_id)

    async def view(self, task: TaskTurns) -> TaskView:
        """Read a task as its stored events show it."""
        view = TaskView(task.task_id, task.context_id)
        for number, row in task.turns:
            view.begin_turn(number, row.created_at, await self._sent_message(task, number, row))
            for event in await self._user.runtime.turns.all_events(task.session, number):
                async for _ in self._add(view, event):
                    pass
            view.end_at(row.ended_at)
        last = task.turns[-1][1]
        if view.is_paused and last.ended_at and await self._is_given_up(task, view.state):
            view.task.status.state = TaskState.TASK_STATE_CANCELED  # stopped, expired, or the conversation continued
        return view

    async def updates(self, task: TaskTurns, *, from_start: bool) -> AsyncGenerator[Task | TaskUpdate]:
        """Yield a task, and then its updates until it ends or waits for its client.

        It is the task as it is now, or, `from_start`, as its newest turn began: a client whose turn is run again after
        a crash sends its message again, and must see the same as the first time.
        """
        number, row = task.turns[-1]
        earlier = TaskTurns(task.task_id, task.session, task.turns[:-1])
        view = await self.view(earlier) if earlier.turns else TaskView(task.task_id, task.context_id)
        view.begin_turn(number, row.created_at, await self._sent_message(task, number, row))
        stored_to = 0 if from_start else (await self._user.runtime.turns.events(task.session, number)).last_id
        has_begun = False
        async with aclosing(self._user.turns.follow(task.last)) as stream:
            async for logged in stream:
                if logged is None:
                    continue
                async for update in self._add(view, logged.event):
                    if has_begun:
                        yield update
                if not has_begun and (logged.id >= stored_to or logged.final):
                    has_begun = True
                    yield _copy(view.task)
                if has_begun and view.is_settled:
                    return
        if not has_begun:
            yield _copy(view.task)

    async def page(self, request: ListTasksRequest, size: int) -> ListTasksResponse:
        """Return a page of the tasks, the one that changed last first."""
        turns = self._user.runtime.turns
        since = request.status_timestamp_after.ToMicroseconds() / 1_000_000
        known = await turns.list_by_key_prefix(self._user.id, TASK_KEY_PREFIX, request.context_id)
        ids = [one.idempotency_key.removeprefix(TASK_KEY_PREFIX) for one in known if one.changed_at >= since]
        if request.status:
            states = [((await self.view(await self.find(one))).state, one) for one in ids]
            ids = [one for state, one in states if state == request.status]
        start = ids.index(after) + 1 if (after := decode_page_token(request.page_token)) in ids else 0
        if request.page_token and not start:
            raise InvalidParamsError("page_token: it is not one of this list")
        chosen = ids[start : start + size]
        views = [await self.view(await self.find(one)) for one in chosen]
        tasks = [view.task if request.include_artifacts else _without_artifacts(view.task) for view in views]
        more = encode_page_token(chosen[-1]) if chosen and start + size < len(ids) else ""
        shown = [apply_history_length(task, request) for task in tasks]
        return ListTasksResponse(tasks=shown, next_page_token=more, page_size=size, total_size=len(ids))

    async def cancel(self, task: TaskTurns) -> TaskView:
        """Stop a task; return it as it ended. Raise `TaskNotCancelableError` if it waits for a tool that runs on."""
        await self._user.stop(task.last)
        async with aclosing(self._user.turns.follow(task.last)) as stream:
            async for _ in stream:
                pass
        for wait in await self._waits(task):
            await self._user.runtime.cancel_wait(task.context_id, wait.id, user_id=self._user.id)
        view = await self.view(await self.find(task.task_id))
        if view.state not in TERMINAL:
            raise TaskNotCancelableError(
                f"task {task.task_id!r} has a tool that cannot be stopped: its result continues it"
            )
        return view

    async def _waits(self, task: TaskTurns) -> Sequence[Wait]:
        """Return what the turns of a task wait for."""
        turns = {number for number, _ in task.turns}
        return [wait for wait in await self._user.waits(task.context_id) if wait.turn in turns]

    async def _is_given_up(self, task: TaskTurns, state: TaskState) -> bool:
        """Whether all that a paused task waited for was closed, and no turn continues it."""
        if state in INTERRUPTED:
            is_open = bool(await self._waits(task))
        else:  # a time or an event that has come, and whose turn has not begun, is no longer among those
            turns = {number for number, _ in task.turns}
            unclosed = await self._user.runtime.turns.unclosed_waits(task.session)
            is_open = any(wait.turn in turns for wait in unclosed)
        number, row = task.turns[-1]
        return not is_open and await self._user.runtime.turns.next(task.session, number, row.invocation_id) is None

    async def _add(self, view: TaskView, event: events.TurnEvent) -> AsyncGenerator[TaskUpdate]:
        for update in view.add(event):
            yield update
        if isinstance(event, events.ArtifactSaved):
            yield await self._file_artifact(view, event)

    async def _file_artifact(self, view: TaskView, event: events.ArtifactSaved) -> TaskArtifactUpdateEvent:
        """Add an artifact that the agent saved."""
        artifacts, session_id = self._user.runtime.artifacts, view.task.context_id
        about = {"version": event.version, "author": event.author}
        part = Part(filename=event.name, metadata=metadata(about))
        part.url = f"{self._artifact_url}/v1/sessions/{session_id}/artifacts/{event.name}/{event.version}"
        try:
            stored = await artifacts.read(session_id, event.name, event.version, user_id=self._user.id)
            part.media_type = stored.mime_type or "application/octet-stream"
            if stored.hash is not None and stored.size <= _MAX_INLINE_BYTES:
                part.raw = await artifacts.load(session_id, event.name, event.version, user_id=self._user.id)
        except ArtifactNotFound:  # it was deleted since
            pass
        return view.add_artifact(f"{event.name}/{event.version}", event.name, [part])

    async def _sent_message(self, task: TaskTurns, number: int, row: StoredTurn) -> Message | None:
        """Return the message that the client sent for a turn; files are left out of it."""
        request = row.client_request or {}
        if request.get(TASK_MEMBER) != task.task_id:
            return None
        stored = await self._user.runtime.turns.input_messages(task.session, number, row)
        texts = [one.message.content for one in stored if one.message and one.message.role == "user"]
        texts.append(str(request.get(_ANSWER, "")))
        sent = Message(
            message_id=str(request.get(_MESSAGE, "")),
            task_id=task.task_id,
            context_id=task.context_id,
            role=Role.ROLE_USER,
            parts=[Part(text=text, media_type="text/plain") for text in texts if text],
        )
        if fields := request.get(_METADATA):
            sent.metadata.CopyFrom(metadata(fields))
        return sent


def _copy(task: Task) -> Task:
    copied = Task()
    copied.CopyFrom(task)
    return copied


def _without_artifacts(task: Task) -> Task:
    """Return a copy of a task without its artifacts."""
    copied = _copy(task)
    del copied.artifacts[:]
    return copied


def _continues(row: StoredTurn, task_id: str, first: StoredTurn) -> bool:
    """Whether a turn belongs to the task of an earlier one: its client says so, or it continues the same run."""
    return (row.client_request or {}).get(TASK_MEMBER) == task_id or row.invocation_id == first.invocation_id


def _options(task_id: str, message: Message) -> ModelOptions:
    """Return what a turn keeps of its message: the ids, and the metadata that the client gave."""
    kept = {TASK_MEMBER: task_id, _MESSAGE: message.message_id}
    fields = message_metadata(message)
    return ModelOptions(client_request={**kept, _METADATA: fields} if fields else kept)


def _task_id(user: AgentUser, message: Message) -> str:
    """Return the id of the task that a message starts: the same one if it is sent again.

    A long id is unique by itself; some clients count 1, 2, 3, so a short one counts with the whole message.
    """
    digest = hashlib.sha256(f"{user.runtime.app_name}\0{user.id}\0".encode())
    is_unique = len(message.message_id) >= _UNIQUE_ID_LENGTH
    digest.update(message.message_id.encode() if is_unique else message.SerializeToString(deterministic=True))
    return str(uuid.UUID(bytes=digest.digest()[:16], version=5))
