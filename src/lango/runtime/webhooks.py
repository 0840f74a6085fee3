"""Manage webhooks: the addresses that are notified when turns end, and the deliveries that were given up."""

import base64
import secrets
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from lango.config import WebhookSettings
from lango.config.webhook_sections import REPORTED, WebhookEvent
from lango.errors import CredentialKeyError, ToolError, WebhookRefused
from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.credentials.secret_box import SecretBox
from lango.store.sessions.sessions import get_session
from lango.store.webhooks import deliveries, webhooks
from lango.store.webhooks.deliveries import DeadDelivery
from lango.store.webhooks.webhooks import NewWebhook, StoredWebhook
from lango.tools.builtin.public_fetch import parse_url

__all__ = [
    "TASK_KEY_PREFIX",
    "TASK_MEMBER",
    "TOKEN_HEADER",
    "AddedWebhook",
    "DeadDelivery",
    "StoredWebhook",
    "TaskEnd",
    "TaskWebhook",
    "Webhooks",
    "store_configured_webhooks",
]

TASK_KEY_PREFIX = "a2a "
"""How the idempotency keys of tasks begin; the id of the task follows."""
TASK_MEMBER = "a2a_task"
"""The member of a turn's `client_request` with the id of its task."""
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - a name
"""The header with the token that the client gave; the token signs each request, too."""
_MOST_OF_A_USER = 100
_MOST_OF_A_TASK = 10


class AddedWebhook(Struct, frozen=True):
    """A webhook that was added."""

    id: str
    secret: str
    """Signs what is sent to it, as in Standard Webhooks. It cannot be read again; empty if a variable holds it."""


class TaskEnd(Struct, frozen=True):
    """How the newest turn of a task ended."""

    turn: int
    event: WebhookEvent


class TaskWebhook(Struct, frozen=True):
    """A webhook of a task."""

    id: str
    url: str
    headers: Mapping[str, str]


def _task_webhook(task_id: str, id_: str) -> str:
    return f"task {task_id} {id_}"


def _checked_address(url: str) -> str:
    """Return the address of a webhook. Raise `WebhookRefused` if it is not a URL."""
    try:
        return str(parse_url(url))
    except ToolError as error:
        raise WebhookRefused(str(error)) from error


class Webhooks:
    """The webhooks of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    @property
    def can_keep_secrets(self) -> bool:
        """Whether this process has the key that encrypts what webhooks sign with."""
        try:
            SecretBox.from_environment().check()
        except CredentialKeyError:
            return False
        return True

    async def add(
        self,
        url: str,
        *,
        events: Sequence[WebhookEvent] = REPORTED,
        session_id: str | None = None,
        user_id: str | None = None,
        quota_id: str | None = None,
        include_text: bool = False,
        secret_env: str | None = None,
    ) -> AddedWebhook:
        """Add a webhook of every turn of the app; of a session, or of an API key with `quota_id`.

        `user_id` is the owner of the session, and of the webhook; None is an operator. The secret is generated, and
        stored encrypted, or an environment variable holds it. Raise `WebhookRefused` for an address that is not a URL.
        """
        address = _checked_address(url)
        if user_id is not None:
            count = await self._store.read(webhooks.count_webhooks, self._app_name, user_id)
            if count >= _MOST_OF_A_USER:
                raise WebhookRefused(f"a user may have {_MOST_OF_A_USER} webhooks: delete one first")
        session_key = 0
        if session_id is not None:
            session = await self._store.read(get_session, SessionId(self._app_name, user_id or "user", session_id))
            session_key = session.key
        id_, secret, sealed = f"wh_{secrets.token_hex(8)}", "", None
        if secret_env is None:
            secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
            sealed = SecretBox.from_environment().seal(secret, "webhook", self._app_name, id_)
        new = NewWebhook(
            self._app_name, id_, address, events, include_text, session_key, quota_id, user_id, secret_env, sealed
        )
        await self._store.write(webhooks.add_webhook, new, time.time())
        return AddedWebhook(id_, secret)

    async def add_for_task(
        self, session: SessionInfo, task_id: str, id_: str, url: str, headers: Mapping[str, str], ended: TaskEnd | None
    ) -> None:
        """Send the status of an A2A task to an address each time that it ends or waits, with some headers.

        `ended` is the turn that has ended already, which is sent at once. The same id replaces an earlier webhook.
        Raise `WebhookRefused` for an address that is not a URL, or for too many.
        """
        address = _checked_address(url)
        known = await self.of_task(session, task_id)
        if len(known) >= _MOST_OF_A_TASK and id_ not in [one.id for one in known]:
            raise WebhookRefused(f"a task may have {_MOST_OF_A_TASK} of them: delete one first")
        name = _task_webhook(task_id, id_)
        sealed = SecretBox.from_environment().seal(dict(headers), "webhook", self._app_name, name)
        reported: list[WebhookEvent] = [*REPORTED, "cancelled"]
        new = NewWebhook(
            *(self._app_name, name, address, reported, False, session.key),
            user_id=session.name.user_id,
            secret=sealed,
            task_id=task_id,
        )
        await self._store.write(webhooks.add_webhook, new, time.time())
        if ended is not None:
            await self._store.write(deliveries.report_to, self._app_name, name, session.key, ended.turn, ended.event)
            self._store.notify_due()

    async def of_task(self, session: SessionInfo, task_id: str) -> Sequence[TaskWebhook]:
        """List the webhooks of a task of A2A, with the headers that they send."""
        box = SecretBox.from_environment()
        return [
            TaskWebhook(id_.rpartition(" ")[2], url, box.open(secret, "webhook", self._app_name, id_))
            for id_, url, secret in await self._store.read(
                webhooks.list_task_webhooks, self._app_name, session.key, task_id
            )
        ]

    async def delete_of_task(self, session: SessionInfo, task_id: str, id_: str) -> bool:
        """Delete a webhook of a task; return False if there is none."""
        return await self.delete(_task_webhook(task_id, id_), user_id=session.name.user_id)

    async def list(self, *, user_id: str | None = None) -> Sequence[StoredWebhook]:
        """List the webhooks of the app, those of the settings too, or only those that a user added."""
        return await self._store.read(webhooks.list_webhooks, self._app_name, user_id or "")

    async def delete(self, webhook_id: str, *, user_id: str | None = None) -> bool:
        """Delete a webhook, with what is still to be sent; return False if there is none, or none of the user."""
        return await self._store.write(webhooks.delete_webhook, self._app_name, webhook_id, user_id or "")

    async def dead(self, *, user_id: str | None = None, limit: int = 100) -> Sequence[DeadDelivery]:
        """List the deliveries that were given up, or only those of a user's webhooks, the newest first."""
        return await self._store.read(deliveries.list_dead, self._app_name, user_id or "", limit)

    async def resend(self, delivery_id: str, *, user_id: str | None = None) -> bool:
        """Send a delivery that was given up again, for another day; return False if there is none."""
        return await self._store.write(deliveries.resend, self._app_name, delivery_id, user_id or "")


async def store_configured_webhooks(
    store: Store, app_name: str, settings: Mapping[str, WebhookSettings], *, is_complete: bool
) -> None:
    """Store the webhooks of the settings, where they changed; if these are all, delete those of earlier settings."""
    wanted = {
        name: NewWebhook(
            app_name, name, one.url, [*one.events], one.include_text, secret_env=one.secret_env, from_settings=True
        )
        for name, one in settings.items()
    }
    if not wanted and not is_complete:
        return
    known = await store.read(webhooks.read_configured, app_name)
    is_outdated = any(known.get(name) != new for name, new in wanted.items())
    if is_outdated or (is_complete and known.keys() - wanted.keys()):
        new = [*wanted.values()]
        await store.write(webhooks.store_configured, app_name, new, time.time(), is_complete=is_complete)
