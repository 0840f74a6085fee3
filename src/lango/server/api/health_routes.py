"""`/healthz`, `/readyz` and `/metrics`."""

import asyncio

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from lango.errors import StoreError
from lango.server.context import Here, Served
from lango.server.json_body import JsonResponse
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.metrics import CONTENT_TYPE
from lango.store.turns.lease import Leases, leases

router = APIRouter(tags=["operating"], route_class=AuthenticatedRoute)

_PATIENCE_S = 5.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process lives."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Not ready; the body says what is not."}})
async def readyz(here: Here) -> JsonResponse:
    """Say whether messages can be answered: the agent is built and the database can be read."""
    checks = {"agent": "ok", "database": await _database(here), "accepting": "no" if here.turns.closing else "ok"}
    ready = set(checks.values()) == {"ok"}
    return JsonResponse({"status": "ok" if ready else "unavailable", "checks": checks}, 200 if ready else 503)


async def _database(here: Served) -> str:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await here.store.probe()
    except (StoreError, TimeoutError) as error:
        return type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(here: Here, user: User) -> Response:
    """Tell Prometheus what was counted. Where keys are needed, one is needed here too."""
    del user
    return Response(
        here.metrics.text(here.turns.running, here.runtime.queued_turns, await _leases(here)), media_type=CONTENT_TYPE
    )


async def _leases(here: Served) -> Leases | None:
    """Count what the store says of turns; None: it cannot say it now."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await here.store.read(leases)
    except (StoreError, TimeoutError):
        return None
