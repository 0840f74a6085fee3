"""Receive the events of other systems, which start turns. A trigger has a secret of its own and needs no API key."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Path, Request, Response
from pydantic import BaseModel

from lango.errors import Stopping, TriggerRefused
from lango.runtime.submissions.triggers import Delivery, TriggerOutcome
from lango.server.context import ServedAgents
from lango.server.errors import to_api_error
from lango.server.json_body import JsonResponse
from lango.server.schemas import Responses, error_responses
from lango.server.security.auth import AuthenticatedRouter, discard_short_body

_RESPONSES: Responses = {
    200: {"description": "No turn starts: the trigger's filter excludes the event, or Slack checks the address."}
} | error_responses(
    {
        401: "There is no such trigger, or its secret or signature is not valid, or the request is too old.",
        413: "The body is larger than the trigger allows.",
        422: "The payload is not JSON, or lacks a value that the trigger needs.",
        429: "The trigger received more events this minute than it may: repeat it later.",
    }
)
_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": {}}}}}

router = AuthenticatedRouter("/v1", tags=["triggers"])

Name = Annotated[str, Path(examples=["github"])]


class TriggeredTurn(BaseModel):
    """The turn of an event."""

    status: Literal["accepted"] = "accepted"
    session_id: str
    turn: int
    repeated: bool
    """The event was received before."""
    stream: str
    """Where the session's events are read, with an API key."""


class SentToWaits(BaseModel):
    """An event that was sent to the turns that wait for it."""

    status: Literal["sent"] = "sent"
    answered: int
    """How many waits it ended; it is kept for those that open later."""
    repeated: bool


class IgnoredEvent(BaseModel):
    """An event that starts no turn."""

    status: Literal["ignored"] = "ignored"


@router.post(
    "/triggers/{name}",
    status_code=202,
    response_model=TriggeredTurn | SentToWaits,
    responses=_RESPONSES,
    openapi_extra=_BODY,
)
async def receive_signed(name: Name, request: Request) -> Response:
    """Start the turn of an event that its sender has signed; the same event again returns the same turn."""
    return await _receive(name, "", request)


@router.post(
    "/triggers/{name}/{secret}",
    status_code=202,
    response_model=TriggeredTurn | SentToWaits,
    responses=_RESPONSES,
    openapi_extra=_BODY,
)
async def receive_with_secret(name: Name, secret: str, request: Request) -> Response:
    """Start the turn of an event of a sender that cannot sign: the address holds the secret."""
    return await _receive(name, secret, request)


async def _receive(name: str, secret: str, request: Request) -> Response:
    agents: ServedAgents = request.app.state.context.agents
    triggers = agents.default.runtime.triggers  # all agents have the same
    headers = {key.lower(): value for key, value in request.headers.items()}
    try:
        triggers.check_head(name, headers, secret)
    except TriggerRefused as refused:
        error = to_api_error(refused)
        if not await discard_short_body(request):
            error.headers["Connection"] = "close"
        raise error from refused
    outcome = await _accept(agents, triggers.verify(name, headers, await request.body(), secret))
    if outcome.status == "challenge":
        return Response(outcome.challenge, media_type="text/plain")
    if outcome.status == "sent":
        return JsonResponse(SentToWaits(answered=outcome.answered, repeated=outcome.repeated).model_dump(), 202)
    if outcome.session is None or outcome.turn is None:
        return JsonResponse(IgnoredEvent().model_dump())
    stream = f"/v1/sessions/{quote(outcome.session.id, safe='')}/stream"
    turn = TriggeredTurn(session_id=outcome.session.id, turn=outcome.turn, repeated=outcome.repeated, stream=stream)
    return JsonResponse(turn.model_dump(), 202, {"Location": stream})


async def _accept(agents: ServedAgents, delivery: Delivery) -> TriggerOutcome:
    """Give a verified request to the agent that its trigger names."""
    named = agents.default.runtime.triggers.agents.get(delivery.trigger)
    context = agents.default if named is None else agents.named(named)
    if context.turns.is_closing:
        raise Stopping("the server is shutting down: try again in a moment")
    outcome = await context.runtime.triggers.accept(delivery)
    if outcome.running is not None:
        context.turns.observe(outcome.running)
    return outcome
