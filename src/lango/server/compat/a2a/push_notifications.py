"""Keep the push notification configurations of tasks: webhooks of A2A's form. Imports `a2a`."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from a2a.types import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, PushNotificationNotSupportedError

from lango.runtime.turns import StoredTurn
from lango.runtime.webhooks import TOKEN_HEADER, TaskEnd, TaskWebhook, Webhooks

if TYPE_CHECKING:
    from lango.server.compat.a2a.tasks import TaskTurns

_MAX_CHARACTERS = 2_000
_AUTHORIZATION = "Authorization"


class PushNotifications:
    """The push notification configurations of one user's tasks."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def check(self, config: TaskPushNotificationConfig) -> None:
        """Raise an error for a configuration that cannot be kept."""
        self._require_key()
        values = (config.id, config.url, config.token, config.authentication.scheme, config.authentication.credentials)
        if any(len(value) > _MAX_CHARACTERS or not value.isprintable() for value in values):
            raise InvalidParamsError(f"the configuration has texts of at most {_MAX_CHARACTERS} printable characters")
        if not config.url:
            raise InvalidParamsError("url: it is missing")
        if any(not value.isascii() for value in values) or " " in config.id:
            raise InvalidParamsError("the configuration has ASCII characters only, and no space in its id")

    def _require_key(self) -> None:
        if not self._webhooks.can_keep_secrets:
            raise PushNotificationNotSupportedError(
                "the server has no key to keep tokens with: set LANGO_CREDENTIAL_KEY"
            )

    async def add(self, task: "TaskTurns", config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Notify an address each time that a task ends or waits, also if it has already; the same id replaces one."""
        self.check(config)
        id_ = config.id or uuid.uuid4().hex
        headers = {TOKEN_HEADER: config.token} if config.token else {}
        if config.authentication.credentials:
            headers[_AUTHORIZATION] = f"{config.authentication.scheme} {config.authentication.credentials}"
        number, row = task.turns[-1]
        await self._webhooks.add_for_task(task.session, task.task_id, id_, config.url, headers, _end(number, row))
        return _shown(task, TaskWebhook(id_, config.url, headers))

    async def list(self, task: "TaskTurns") -> Sequence[TaskPushNotificationConfig]:
        """List the configurations of a task."""
        self._require_key()
        return [_shown(task, one) for one in await self._webhooks.of_task(task.session, task.task_id)]

    async def delete(self, task: "TaskTurns", id_: str) -> None:
        """Delete a configuration."""
        self._require_key()
        await self._webhooks.delete_of_task(task.session, task.task_id, id_)


def _end(number: int, row: StoredTurn) -> TaskEnd | None:
    """Return how a turn ended; None if it has not."""
    match row.status:
        case "done":
            return TaskEnd(number, "waiting" if row.result.status == "waiting" else "done")
        case "cancelled":
            return TaskEnd(number, "cancelled")
        case "failed" | "interrupted":
            return TaskEnd(number, "failed")
        case _:
            return None


def _shown(task: "TaskTurns", webhook: TaskWebhook) -> TaskPushNotificationConfig:
    scheme, _, credentials = webhook.headers.get(_AUTHORIZATION, "").partition(" ")
    return TaskPushNotificationConfig(
        id=webhook.id,
        task_id=task.task_id,
        url=webhook.url,
        token=webhook.headers.get(TOKEN_HEADER, ""),
        authentication=AuthenticationInfo(scheme=scheme, credentials=credentials) if credentials else None,
    )
