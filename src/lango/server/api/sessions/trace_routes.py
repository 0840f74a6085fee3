"""Show what happened in the turns of a session: agents, model calls, tools, requests."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import Path, Query, Response
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel

from lango.development.failures import Failure
from lango.json_values import to_client_json
from lango.runtime.trace.session_trace import DEFAULT_TURNS, ReadableRequest
from lango.runtime.trace.steps import Step, TurnTrace
from lango.server.context import CurrentUser
from lango.server.json_body import large_response
from lango.server.openapi import reference_to, shown
from lango.server.schemas import COMMON_ERRORS, MAX_INTEGER, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import as_datetime, without_app_state

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_OPERATORS_ONLY = error_responses({403: "Only the users in the setting `server.operators` may read it."})

_WHY_OPERATORS = "a request contains the agent's instructions"

RequestId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,40}$", examples=["0643c5a2b1f0d0a1b2c3"])]
TurnNumber = Annotated[int | None, Query(ge=1, le=MAX_INTEGER)]


class TraceReport(Struct, frozen=True):
    """The newest turns of a session, in order."""

    keeps_requests: bool
    """Whether requests to models are kept now (setting `trace.requests`), and the caller may read them."""
    turns: Sequence[TurnTrace]
    before: int | None
    """Pass it as `before` for earlier turns; null if there are none."""


class RawRequest(BaseModel):
    """A request to a model and its response as they went over the wire, without secrets; long texts are shortened."""

    request: Any
    response: Any
    """Of a stream, the list of its events."""


class FailureList(Struct, frozen=True):
    """The newest failures in a session, the oldest first."""

    failures: Sequence[Failure]


class StoredEventView(BaseModel):
    """A message as it is stored, with everything that the event had."""

    seq: int
    event_id: str
    invocation_id: str
    created_at: datetime
    role: str
    author: str
    content: str
    tool_calls: list[dict[str, Any]]
    tokens: int
    state_delta: dict[str, Any]
    extra: dict[str, Any]

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """Convert a stored event."""
        return cls.model_validate({**to_client_json(stored), "created_at": as_datetime(stored["created_at"])})


def _without_requests(step: Step) -> Step:
    """Return a step without the ids of its requests, for a caller who may not read them."""
    attempts = [replace(attempt, request_id=None) for attempt in step.attempts]
    return replace(step, attempts=attempts, steps=[_without_requests(inner) for inner in step.steps])


@router.get("/{session_id}/trace", responses=reference_to(TraceReport))
async def read_trace(
    session_id: SessionIdPath,
    user: CurrentUser,
    turn: TurnNumber = None,
    before: TurnNumber = None,
    limit: Annotated[int, Query(ge=1, le=100)] = DEFAULT_TURNS,
) -> Response:
    """Read what happened in the newest turns, in those before a turn, or in one, also while it runs."""
    trace = await user.runtime.sessions.trace(session_id, user_id=user.id, turn=turn, before=before, limit=limit)
    keeps = bool(user.settings.trace.requests) and user.is_operator

    def view() -> Any:
        turns = trace.turns
        if not user.is_operator:
            turns = [replace(turn, steps=[_without_requests(step) for step in turn.steps]) for turn in turns]
        return shown(TraceReport(keeps, turns, trace.before))

    return await large_response(view)


@router.get("/{session_id}/trace/requests/{request_id}", responses=_OPERATORS_ONLY)
async def read_traced_request(session_id: SessionIdPath, request_id: RequestId, user: CurrentUser) -> ReadableRequest:
    """Read what was sent to a model, its merged answer, and what differs from the request before; for operators."""
    user.require_operator("read it", _WHY_OPERATORS)
    return await user.runtime.sessions.readable_request(session_id, request_id, user_id=user.id)


@router.get("/{session_id}/trace/requests/{request_id}/raw", response_model=RawRequest, responses=_OPERATORS_ONLY)
async def read_raw_request(session_id: SessionIdPath, request_id: RequestId, user: CurrentUser) -> Response:
    """Read a request to a model and its response, token by token, as they went over the wire; for operators only."""
    user.require_operator("read it", _WHY_OPERATORS)
    found = await user.runtime.sessions.traced_request(session_id, request_id, user_id=user.id)

    def view() -> dict[str, Any]:
        bodies = found.bodies()
        return {name: bodies[name] for name in RawRequest.model_fields}

    return await large_response(view)


@router.get("/{session_id}/trace/failures", responses=_OPERATORS_ONLY)
async def read_failures(session_id: SessionIdPath, user: CurrentUser) -> FailureList:
    """Read the newest errors of tools, nodes and callbacks, with their tracebacks; for operators only."""
    user.require_operator("read it", "a traceback contains source code")
    return FailureList(await user.runtime.sessions.failures(session_id, user_id=user.id))


@router.get("/{session_id}/trace/events/{seq}", response_model=StoredEventView)
async def read_stored_event(
    session_id: SessionIdPath, seq: Annotated[int, Path(ge=1, le=MAX_INTEGER, examples=[1])], user: CurrentUser
) -> Response:
    """Read a message as it is stored, also one that was rewound."""
    stored = await user.runtime.sessions.traced_event(session_id, seq, user_id=user.id)
    if not user.is_operator:
        stored = stored | {"state_delta": without_app_state(stored["state_delta"])}
    return await large_response(lambda: StoredEventView.from_stored(stored).model_dump(mode="json"))
