"""Report liveness and readiness, and expose metrics to Prometheus."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import PlainTextResponse, Response

from lango.errors import StoreError
from lango.runtime.execution.replicas import ListedReplica
from lango.server.context import Context, CurrentUser, ServerContext
from lango.server.json_body import JsonResponse
from lango.server.security.auth import AuthenticatedRouter
from lango.server.streaming.metrics import CONTENT_TYPE

router = AuthenticatedRouter(tags=["operating"])

_PROBE_TIMEOUT_S = 5.0


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the process is alive."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "Not ready; the body says which check failed, and why."}})
async def readyz(context: Context) -> JsonResponse:
    """Report whether the server can answer messages: the agent is built, the database can be read and written."""
    checks = {
        "agent": "ok",
        "database": await _probe_database(context),
        "accepting": "no" if context.turns.is_closing else "ok",
    }
    ready = set(checks.values()) == {"ok"}
    body = {"status": "ok" if ready else "unavailable", "version": context.runtime.version, "checks": checks}
    return JsonResponse(body, 200 if ready else 503)


class ReplicaList(Struct, frozen=True):
    """The live processes that run turns of the agent; only operators see their places."""

    replicas: Sequence[ListedReplica]


@router.get("/v1/replicas")
async def list_replicas(user: CurrentUser) -> ReplicaList:
    """List the live processes that run turns of the agent, the oldest first."""
    found = await user.runtime.replicas()
    return ReplicaList(found if user.is_operator else [replace(one, place="") for one in found])


async def _probe_database(context: ServerContext) -> str:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            await context.runtime.probe()
    except (StoreError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(user: CurrentUser) -> Response:
    """Return the metrics in Prometheus' text format. With authentication on, this needs a key, too."""
    stored = await _count_turns(user.context)
    served = [*user.context.agents.contexts.values()]
    text = user.context.metrics.render(
        [running for one in served for running in one.turns.running],
        sum(one.runtime.turns_without_slot for one in served),
        sum(one.runtime.abandoned_turns for one in served),
        stored,
    )
    return Response(text, media_type=CONTENT_TYPE)


async def _count_turns(context: ServerContext) -> tuple[int, int] | None:
    """Count running and queued turns in the store, or return None if the store is not available."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            return await context.runtime.turns.count_open()
    except (StoreError, TimeoutError):
        return None
