"""Answer the operations of A2A: messages, tasks and the extended card. Imports `a2a`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Any, cast

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
from typing_extensions import override

from lango.errors import Conflict, LangoError, WaitNotOpen
from lango.server.compat.a2a.push_notifications import PushNotifications
from lango.server.compat.a2a.task_view import TERMINAL
from lango.server.compat.a2a.tasks import Tasks, TaskTurns
from lango.server.errors import ApiError, to_api_error

TASKS = "tasks"
"""Where the state of a call has the tasks of its caller."""
CARD = "card"
"""Where the state of a call has the function that makes the extended card."""
GIVEN_STATUS = "given_status"
"""Where the state of a call has the function that returns the status filter of the request, as it was sent."""
_PAGE = 50


class TaskHandler(RequestHandler):
    """Answers every operation from the store: no task lives in the memory of one process."""

    @override
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        """Submit a message; return its task when that has ended or waits for the client, or at once if asked to."""
        with _checked(params):
            tasks, submitted = await _submit(params, context)
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
            tasks, submitted = await _submit(params, context)
            async with aclosing(tasks.updates(submitted, from_start=True)) as updates:
                async for update in updates:
                    yield apply_history_length(update, params.configuration) if isinstance(update, Task) else update

    @override
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Yield a task that has not ended, and then its updates."""
        with _checked(params):
            tasks = _tasks(context)
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
            tasks = _tasks(context)
            return apply_history_length((await tasks.view(await tasks.find(params.id))).task, params)

    @override
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks, the one that changed last first."""
        with _checked(params):
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else _PAGE
            validate_page_size(size)
            await _check_status(params, context)
            return await _tasks(context).page(params, size)

    @override
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Stop a task; return it as it ended."""
        with _checked(params):
            tasks = _tasks(context)
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
            card = cast("Callable[[], AgentCard]", context.state[CARD])()
            if not card.capabilities.extended_agent_card:
                raise UnsupportedOperationError("the server asks for no keys: all there is to read is the public card")
            return card

    @override
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Notify an address each time that a task ends or waits."""
        with _checked(params):
            notifications = _notifications(context)
            return await notifications.add(await _tasks(context).find(params.task_id), params)

    @override
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return a configuration of a task."""
        with _checked(params):
            notifications = _notifications(context)
            for config in await notifications.list(await _tasks(context).find(params.task_id)):
                if config.id == params.id:
                    return config
            raise TaskNotFoundError(f"the task has no push notification configuration {params.id!r}")

    @override
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return the configurations of a task: they are few, and fit one page."""
        with _checked(params):
            notifications = _notifications(context)
            found = await notifications.list(await _tasks(context).find(params.task_id))
            return ListTaskPushNotificationConfigsResponse(configs=found)

    @override
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Delete a configuration; one that is gone already is no error."""
        with _checked(params):
            await _notifications(context).delete(await _tasks(context).find(params.task_id), params.id)


def _tasks(context: ServerCallContext) -> Tasks:
    return context.state[TASKS]


async def _submit(params: SendMessageRequest, context: ServerCallContext) -> tuple[Tasks, TaskTurns]:
    """Submit a message, and notify the address that came with it."""
    validate_history_length(params.configuration)
    tasks, config = _tasks(context), params.configuration.task_push_notification_config
    if not params.configuration.HasField("task_push_notification_config"):
        return tasks, await tasks.submit(params)
    tasks.notifications.check(config)
    submitted = await tasks.submit(params)
    await tasks.notifications.add(submitted, config)
    return tasks, submitted


def _notifications(context: ServerCallContext) -> PushNotifications:
    return _tasks(context).notifications


async def _check_status(params: ListTasksRequest, context: ServerCallContext) -> None:
    """Raise `InvalidParamsError` for a status filter that names no state of a task."""
    read = cast("Callable[[], Awaitable[Any]]", context.state[GIVEN_STATUS])
    states = {name: number for name, number in TaskState.items() if number != TaskState.TASK_STATE_UNSPECIFIED}
    given = await read()
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
    except (LangoError, ApiError) as error:
        refused = to_api_error(error)
        kind = InvalidParamsError if refused.status < 500 and refused.status != 429 else InternalError
        raise kind(str(error), data={"error": refused.type}) from error
