"""Add, list and delete webhooks, and send again what was given up."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path
from msgspec import Struct
from pydantic import Field

from lango.config.webhook_sections import REPORTED, WebhookEvent
from lango.errors import CredentialKeyError, WebhookRefused
from lango.runtime.webhooks import AddedWebhook, DeadDelivery, StoredWebhook
from lango.server.context import AgentUser, CurrentUser
from lango.server.errors import not_found
from lango.server.schemas import COMMON_ERRORS, SESSION_ID, RequestBody, error_responses
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1", tags=["webhooks"], responses=COMMON_ERRORS)

_REFUSED = error_responses(
    {
        403: "Only operators add webhooks of the whole app.",
        422: "The address is no URL, the caller has too many webhooks or no API key, or the server keeps no secrets.",
    }
)


class NewWebhook(RequestBody):
    """A webhook to add: of a session, of the caller's API key, or of the whole app."""

    url: Annotated[str, Field(pattern=r"^https?://", max_length=2000, examples=["https://app.example/lango"])]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=4)] = REPORTED
    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    """Only turns of this session of the caller."""
    of_key: bool = False
    """Only turns that the caller's API key, or user of the token issuer, starts."""
    include_text: bool = False
    """Whether the text of the answer, or of the error, is sent, too."""


class WebhookList(Struct, frozen=True):
    """The webhooks that the caller may see, the oldest first."""

    webhooks: Sequence[StoredWebhook]


class DeadDeliveries(Struct, frozen=True):
    """The newest deliveries that were given up."""

    dead: Sequence[DeadDelivery]


def _owner(user: AgentUser) -> str | None:
    """Return whose webhooks a caller may see and change: None is everybody's, for operators."""
    return None if user.is_operator else user.id


@router.post("/webhooks", status_code=201, responses=_REFUSED)
async def add_webhook(new: NewWebhook, user: CurrentUser) -> AddedWebhook:
    """Add a webhook. Its secret is in the answer, and nowhere else."""
    if new.of_key and user.caller.quota.id is None:
        raise WebhookRefused("of_key: the request came without an API key")
    if new.session_id is None and not new.of_key:
        user.require_operator("add it", "a webhook of the whole app is notified of the turns of all users")
    if new.session_id is not None:
        await user.get_session(new.session_id)
    is_own = new.session_id is not None or new.of_key
    try:
        return await user.runtime.webhooks.add(
            new.url,
            events=new.events,
            session_id=new.session_id,
            user_id=user.id if is_own else None,
            quota_id=user.caller.quota.id if new.of_key else None,
            include_text=new.include_text,
        )
    except CredentialKeyError as error:
        raise WebhookRefused(f"the server cannot keep the secret of a webhook: {error}") from error


@router.get("/webhooks")
async def list_webhooks(user: CurrentUser) -> WebhookList:
    """List the webhooks that the caller added; for an operator all, also those of the settings."""
    return WebhookList(await user.runtime.webhooks.list(user_id=_owner(user)))


@router.get("/dead-deliveries")
async def list_dead(user: CurrentUser) -> DeadDeliveries:
    """List what could not be sent within a day, the newest first, and why."""
    return DeadDeliveries(await user.runtime.webhooks.dead(user_id=_owner(user)))


@router.post("/dead-deliveries/{delivery_id}/resend", status_code=204)
async def resend(delivery_id: Annotated[str, Path(max_length=100, examples=["msg_1"])], user: CurrentUser) -> None:
    """Send a delivery that was given up again."""
    if not await user.runtime.webhooks.resend(delivery_id, user_id=_owner(user)):
        raise not_found(f"there is no delivery {delivery_id!r} that was given up")


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=_REFUSED)
async def delete_webhook(
    webhook_id: Annotated[str, Path(max_length=100, examples=["wh_1"])], user: CurrentUser
) -> None:
    """Delete a webhook, with what was still to be sent to it; one of the settings is deleted there."""
    found = [one for one in await user.runtime.webhooks.list(user_id=_owner(user)) if one.id == webhook_id]
    if any(one.from_settings for one in found):
        raise WebhookRefused(f"the webhook {webhook_id!r} is in the settings of the server: delete it there")
    if not await user.runtime.webhooks.delete(webhook_id, user_id=_owner(user)):
        raise not_found(f"there is no webhook {webhook_id!r}")
