"""`/healthz`, `/readyz` and `/metrics`."""

import asyncio

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from lango.errors import StoreError
from lango.server.context import Context, ServerContext
from lango.server.json_body import JsonResponse
from lango.server.security.auth import CurrentCaller
from lango.server.security.authenticated_route import AuthenticatedRoute
from lango.server.streaming.metrics import CONTENT_TYPE
from lango.store.turns.lease import LeaseCounts, count_leases

router = APIRouter(tags=["operating"], route_class=AuthenticatedRoute)

_PROBE_TIMEOUT_S = 5.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process lives."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Not ready; the body says what is not."}})
async def readyz(context: Context) -> JsonResponse:
    """Say whether messages can be answered: the agent is built and the database can be read."""
    checks = {
        "agent": "ok",
        "database": await _probe_database(context),
        "accepting": "no" if context.turns.is_closing else "ok",
    }
    ready = set(checks.values()) == {"ok"}
    return JsonResponse({"status": "ok" if ready else "unavailable", "checks": checks}, 200 if ready else 503)


async def _probe_database(context: ServerContext) -> str:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            await context.store.probe()
    except (StoreError, TimeoutError) as error:
        return type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(context: Context, caller: CurrentCaller) -> Response:
    """Tell Prometheus what was counted. Where keys are needed, one is needed here too."""
    del caller
    return Response(
        context.metrics.render(context.turns.recorders, context.runtime.queued_turns, await _read_leases(context)),
        media_type=CONTENT_TYPE,
    )


async def _read_leases(context: ServerContext) -> LeaseCounts | None:
    """Count what the store says of turns; None: it cannot say it now."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            return await context.store.read(count_leases)
    except (StoreError, TimeoutError):
        return None
