"""Receive events of other systems, for the turns of the caller that wait for them."""

from typing import Annotated

from fastapi import Body, Path
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from lango.runtime.runtime import EVENTS_KEPT_S, SentEvent
from lango.server.context import CurrentUser
from lango.server.schemas import COMMON_ERRORS, IdempotencyKey, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.waits.pauses import EVENT_NAME, MAX_SECONDS

_REFUSED = error_responses({422: "The Idempotency-Key was used for an event with other data; nothing is stored."})

router = AuthenticatedRouter("/v1", tags=["waits"], responses=COMMON_ERRORS)


class NewEvent(BaseModel):
    """An event of another system."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"data": {"order": 7}}]})

    data: JsonValue = Field(
        None, description="What a wait's `match` is compared with; the waiting tool or node gets it."
    )
    session_id: str | None = Field(None, max_length=512, description="Only waits of this session count.")
    keep_s: float = Field(
        EVENTS_KEPT_S,
        strict=True,
        ge=0,
        le=MAX_SECONDS,
        description="How long it is kept, for waits whose window reaches back.",
    )


@router.post("/events/{name}", status_code=202, responses=_REFUSED)
async def send_event(
    name: Annotated[str, Path(pattern=f"^{EVENT_NAME}$", examples=["payment"])],
    event: Annotated[NewEvent, Body()],
    user: CurrentUser,
    key: IdempotencyKey = None,
) -> SentEvent:
    """Send an event to the turns of the caller that wait for it; it is stored before this answers.

    The same Idempotency-Key again changes nothing, as long as the event is kept.
    """
    return await user.runtime.send_event(
        name,
        event.data,
        user_id=user.id,
        session_id=event.session_id,
        idempotency_key=key,
        keep_s=event.keep_s,
    )
