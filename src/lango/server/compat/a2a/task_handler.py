"""Answer the operations of A2A: messages, tasks and the extended card. Imports `a2a`."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.message import Message as ProtoMessage
from msgspec import Struct
from typing_extensions import override

from lango.errors import Conflict, WaitNotOpen
from lango.server.compat.a2a.cards import make_extended_card, server_address
from lango.server.compat.a2a.push_notifications import PushNotifications
from lango.server.compat.a2a.task_view import TERMINAL
from lango.server.compat.a2a.tasks import Tasks, TaskTurns
from lango.server.context import AgentUser
from lango.server.errors import to_api_error

_OfTask = (
    TaskPushNotificationConfig
    | GetTaskPushNotificationConfigRequest
    | ListTaskPushNotificationConfigsRequest
    | DeleteTaskPushNotificationConfigRequest
)
_PAGE = 50
_log = logging.getLogger("lango.server")


class Call(Struct, frozen=True):
    """What a binding knows about a call."""

    user: AgentUser
    reached_at: str
    """The address at which the caller reached the server."""
    given_status: Callable[[ListTasksRequest], Awaitable[Any]]
    """Returns the status filter of a request as it was sent."""

    @property
    def tasks(self) -> Tasks:
        """The tasks of the caller."""
        return Tasks(self.user, server_address(self.user.context, self.reached_at))


class TaskHandler(RequestHandler):
    """Answers every operation from the store: no task lives in the memory of one process."""

    def __init__(self, open_call: Callable[[ServerCallContext], Call]) -> None:
        self._open_call = open_call

    @override
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        """Submit a message; return its task when that has ended or waits for the client, or at once if asked to."""
        with _checked(params):
            tasks, submitted = await self._submit(params, context)
            if not params.configuration.return_immediately:
                async with aclosing(tasks.updates(submitted, from_start=True)) as updates:
                    async for _ in updates:
                        pass
            view = await tasks.view(await tasks.find(submitted.task_id))
            return apply_history_length(view.task, params.configuration)

    @override
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Submit a message; yield its task and then its updates."""
        with _checked(params):
            tasks, submitted = await self._submit(params, context)
            async with aclosing(tasks.updates(submitted, from_start=True)) as updates:
                async for update in updates:
                    yield apply_history_length(update, params.configuration) if isinstance(update, Task) else update

    @override
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Yield a task that has not ended, and then its updates."""
        with _checked(params):
            tasks = self._tasks(context)
            task = await tasks.find(params.id)
            if (await tasks.view(task)).state in TERMINAL:
                raise UnsupportedOperationError(f"task {params.id!r} has ended: read it with GetTask")
            async with aclosing(tasks.updates(task, from_start=False)) as updates:
                async for update in updates:
                    yield update

    @override
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """Return a task of the caller."""
        with _checked(params):
            validate_history_length(params)
            tasks = self._tasks(context)
            return apply_history_length((await tasks.view(await tasks.find(params.id))).task, params)

    @override
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks, the one that changed last first."""
        with _checked(params):
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else _PAGE
            validate_page_size(size)
            call = self._open_call(context)
            _check_status(params, await call.given_status(params))
            return await call.tasks.page(params, size)

    @override
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Stop a task; return it as it ended."""
        with _checked(params):
            tasks = self._tasks(context)
            task = await tasks.find(params.id)
            if (await tasks.view(task)).state in TERMINAL:
                raise TaskNotCancelableError(f"task {params.id!r} has ended")
            return (await tasks.cancel(task)).task

    @override
    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """Return the card that callers with access read; there is none where everybody has access."""
        with _checked(params):
            call = self._open_call(context)
            if call.user.settings.server.auth == "none":
                raise UnsupportedOperationError("the server asks for no keys: all there is to read is the public card")
            return await make_extended_card(call.user.context, call.reached_at)

    @override
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Notify an address each time that a task ends or waits."""
        async with self._notifications(params, context) as (notifications, task):
            return await notifications.add(task, params)

    @override
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a configuration of a task."""
        async with self._notifications(params, context) as (notifications, task):
            for config in await notifications.list(task):
                if config.id == params.id:
                    return config
            raise TaskNotFoundError(f"the task has no push notification configuration {params.id!r}")

    @override
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return the configurations of a task: they are few, and fit one page."""
        async with self._notifications(params, context) as (notifications, task):
            return ListTaskPushNotificationConfigsResponse(configs=await notifications.list(task))

    @override
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a configuration; one that is gone already is no error."""
        async with self._notifications(params, context) as (notifications, task):
            await notifications.delete(task, params.id)

    def _tasks(self, context: ServerCallContext) -> Tasks:
        return self._open_call(context).tasks

    @asynccontextmanager
    async def _notifications(
        self, params: _OfTask, context: ServerCallContext
    ) -> AsyncGenerator[tuple[PushNotifications, TaskTurns]]:
        """Check a request about the configurations of a task; yield those and the task."""
        with _checked(params):
            tasks = self._tasks(context)
            yield tasks.notifications, await tasks.find(params.task_id)

    async def _submit(self, params: SendMessageRequest, context: ServerCallContext) -> tuple[Tasks, TaskTurns]:
        """Submit a message, and notify the address that came with it."""
        validate_history_length(params.configuration)
        tasks, config = self._tasks(context), params.configuration.task_push_notification_config
        if not params.configuration.HasField("task_push_notification_config"):
            return tasks, await tasks.submit(params)
        tasks.notifications.check(config)
        submitted = await tasks.submit(params)
        await tasks.notifications.add(submitted, config)
        return tasks, submitted


def _check_status(params: ListTasksRequest, given: Any) -> None:
    """Raise `InvalidParamsError` for a status filter that names no state of a task."""
    states = {name: number for name, number in TaskState.items() if number != TaskState.TASK_STATE_UNSPECIFIED}
    is_filter = given and given != TaskState.Name(TaskState.TASK_STATE_UNSPECIFIED)
    if is_filter and params.status not in states.values():
        raise InvalidParamsError(f"status: {given!r} is not a state of a task; the states are {', '.join(states)}")


@contextmanager
def _checked(params: ProtoMessage) -> Generator[None]:
    """Refuse a request without its required fields, and raise Lango's errors as those of A2A."""
    try:
        validate_proto_required_fields(params)
        yield
    except A2AError:
        raise
    except (WaitNotOpen, Conflict) as error:
        raise UnsupportedOperationError(str(error)) from error
    except Exception as error:
        refused = to_api_error(error)
        if refused.status == 500:
            _log.error("%s of A2A failed", type(params).__name__, exc_info=error)
        kind = InvalidParamsError if refused.status < 500 and refused.status != 429 else InternalError
        raise kind(str(refused), data={"error": refused.type}) from error
