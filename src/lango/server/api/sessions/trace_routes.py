"""Show what happened in the turns of a session: agents, model calls, tools, requests."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec
from fastapi import Path, Query, Response
from pydantic import BaseModel

from lango.json_values import to_client_json
from lango.runtime.trace.session_trace import DEFAULT_TURNS, SessionTrace
from lango.runtime.trace.steps import Step, StepKind, StepStatus, TurnTrace
from lango.server.api.sessions.usage_routes import Resumption, TokenUsage
from lango.server.context import CurrentUser
from lango.server.json_body import large_response
from lango.server.schemas import COMMON_ERRORS, MAX_INTEGER, RecordView, SessionIdPath, error_responses
from lango.server.security.auth import AuthenticatedRouter
from lango.sessions import as_datetime, without_app_state

router = AuthenticatedRouter("/v1/sessions", tags=["sessions"], responses=COMMON_ERRORS)

_OPERATORS_ONLY = error_responses({403: "Only the users in the setting `server.operators` may read requests."})

TurnNumber = Annotated[int | None, Query(ge=1, le=MAX_INTEGER)]


class TraceAttempt(RecordView):
    """One request of a model call. An attempt that failed was retried, or ended the call."""

    provider: str
    model: str
    started_at: datetime
    duration_s: float | None
    error: str
    status: int | None
    """The HTTP status of the response."""
    request_id: str | None
    """Read it at `/trace/requests/{request_id}`; null if requests are not kept (setting `trace.requests`)."""
    size: int


class StepTokens(RecordView):
    """The tokens and the cost of a model call; other steps have none."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class TraceStep(StepTokens):
    """An agent, a model call, a tool call, a node of a workflow, or a message that code made."""

    id: str
    """Unique in its turn, and the same each time the trace is read."""
    kind: StepKind
    name: str
    status: StepStatus
    started_at: datetime
    duration_s: float | None
    """Null: it runs, or waits."""
    is_estimated: bool
    """The times follow from those of the messages around it."""
    is_replayed: bool
    """Answered from the record when the turn was resumed: the model was called before that."""
    agent: str
    branch: str
    call_id: str
    seq: int | None
    """The message with the response; of a tool, the message that made the call."""
    result_seq: int | None
    """Of a tool, the message with its result."""
    approved_by: str | None
    model: str
    attempts: list[TraceAttempt]
    steps: list["TraceStep"]


class TraceTurn(RecordView):
    """What happened in one turn."""

    turn: int
    status: str
    started_at: datetime
    duration_s: float | None
    first_seq: int | None
    last_seq: int | None
    is_rewound: bool
    error: str
    usage: TokenUsage
    resumptions: list[Resumption]
    steps: list[TraceStep]


class TraceReport(BaseModel):
    """The newest turns of a session, in order."""

    keeps_requests: bool
    """Whether requests to models are kept now (setting `trace.requests`), and the caller may read them."""
    turns: Sequence[TraceTurn]
    before: int | None
    """Pass it as `before` for earlier turns; null if there are none."""


class TracedRequest(BaseModel):
    """A request to a model and its response, without secrets; long texts are shortened."""

    id: str
    turn: int
    provider: str
    model: str
    url: str
    """Empty: the model runs in the server's process."""
    started_at: datetime
    duration_s: float | None
    status: int | None
    error: str
    request: Any
    response: Any
    """Of a stream, the list of its events."""


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


def trace_to_json(trace: SessionTrace, *, keeps_requests: bool, with_requests: bool = True) -> dict[str, Any]:
    """Return a trace as the JSON that the server sends: thousands of steps, so without pydantic.

    Without `with_requests`, the ids of requests are left out: the caller may not read them.
    """
    turns = [_turn_to_json(turn, with_requests) for turn in trace.turns]
    return {"keeps_requests": keeps_requests, "turns": turns, "before": trace.before}


def _turn_to_json(turn: TurnTrace, with_requests: bool) -> dict[str, Any]:
    resumptions = [{"at": _time(one["at"]), "reason": one["reason"]} for one in turn.resumptions]
    fields = msgspec.structs.asdict(turn)
    return fields | {
        "started_at": _time(turn.started_at),
        "usage": msgspec.to_builtins(turn.usage),
        "resumptions": resumptions,
        "error": to_client_json(turn.error),
        "steps": [_step_to_json(step, with_requests) for step in turn.steps],
    }


def _step_to_json(step: Step, with_requests: bool) -> dict[str, Any]:
    hidden = {} if with_requests else {"request_id": None}
    attempts = [
        to_client_json(msgspec.to_builtins(one)) | {"started_at": _time(one.started_at)} | hidden
        for one in step.attempts
    ]
    texts = ("id", "name", "agent", "branch", "call_id", "model")
    fields = msgspec.structs.asdict(step) | {name: to_client_json(getattr(step, name)) for name in texts}
    del fields["usage"]
    fields |= {name: getattr(step.usage, name) for name in StepTokens.model_fields}
    steps = [_step_to_json(inner, with_requests) for inner in step.steps]
    return fields | {"started_at": _time(step.started_at), "attempts": attempts, "steps": steps}


def _time(seconds: float) -> str:
    return as_datetime(seconds).isoformat().replace("+00:00", "Z")


@router.get("/{session_id}/trace", response_model=TraceReport)
async def read_trace(
    session_id: SessionIdPath,
    user: CurrentUser,
    turn: TurnNumber = None,
    before: TurnNumber = None,
    limit: Annotated[int, Query(ge=1, le=100)] = DEFAULT_TURNS,
) -> Response:
    """Read what happened in the newest turns, in those before a turn, or in one, also while it runs."""
    trace = await user.runtime.sessions.trace(session_id, user_id=user.id, turn=turn, before=before, limit=limit)
    keeps = user.settings.trace.requests and user.is_operator
    return await large_response(lambda: trace_to_json(trace, keeps_requests=keeps, with_requests=user.is_operator))


@router.get("/{session_id}/trace/requests/{request_id}", response_model=TracedRequest, responses=_OPERATORS_ONLY)
async def read_traced_request(
    session_id: SessionIdPath,
    request_id: Annotated[str, Path(pattern=r"^[0-9a-f]{1,40}$", examples=["0643c5a2b1f0d0a1b2c3"])],
    user: CurrentUser,
) -> Response:
    """Read a request to a model and its response, as they went over the wire; for operators only."""
    user.require_operator("read it", "a request contains the agent's instructions")
    found = await user.runtime.sessions.traced_request(session_id, request_id, user_id=user.id)

    def view() -> dict[str, Any]:
        about = msgspec.structs.asdict(found) | {"started_at": _time(found.started_at)}
        return {name: value for name, value in (about | found.bodies()).items() if name not in ("step", "size")}

    return await large_response(view)


@router.get("/{session_id}/trace/events/{seq}", response_model=StoredEventView)
async def read_stored_event(
    session_id: SessionIdPath, seq: Annotated[int, Path(ge=1, le=MAX_INTEGER, examples=[1])], user: CurrentUser
) -> Response:
    """Read a message as it is stored, also one that was rewound."""
    stored = await user.runtime.sessions.traced_event(session_id, seq, user_id=user.id)
    if not user.is_operator:
        stored = stored | {"state_delta": without_app_state(stored["state_delta"])}
    return await large_response(lambda: StoredEventView.from_stored(stored).model_dump(mode="json"))
