"""Serve ADK's REST API: a client of `adk api_server` only has to change the address.

Each agent is an app. docs/howto/adk-web.md lists what differs from ADK's own server.
"""

import json
import platform
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib.metadata import version as package_version
from typing import Annotated, Any

from fastapi import Body, Depends, WebSocket
from pydantic import Field
from starlette.responses import Response

from lango.errors import UsageError
from lango.events import TurnError
from lango.server.compat.adk.adk_paths import (
    SESSION_PATH,
    SESSIONS_PATH,
    AdkRequestBody,
    IdPath,
    PathUser,
    check_app,
    check_may_set_state,
    named_user,
)
from lango.server.compat.adk.run_events import RunEvents
from lango.server.context import AgentUser, Context, CurrentUser, ServerContext
from lango.server.errors import ApiError, bad_request, turn_api_error
from lango.server.json_body import JsonResponse, large_response
from lango.server.schemas import SESSION_ID, IdempotencyKey
from lango.server.security.auth import AuthenticatedRouter, current_caller
from lango.server.streaming.sse import EventStreamResponse
from lango.submissions import (
    SubmittedAnswer,
    SubmittedMessage,
    SubmittedResults,
    TurnRequest,
)
from lango.waits import InputWait

router = AuthenticatedRouter(include_in_schema=False)


class NewAdkSession(AdkRequestBody):
    """A session to create."""

    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    state: dict[str, Any] | None = None
    events: list[Any] | None = None
    options: dict[str, Any] | None = None


class StateChange(AdkRequestBody):
    """A change of a session's state."""

    state_delta: dict[str, Any]


class MemoryUpdate(AdkRequestBody):
    """The session to add to memory."""

    session_id: Annotated[str, Field(pattern=SESSION_ID)]


class RunRequest(AdkRequestBody):
    """A message for the agent."""

    app_name: str | None = None
    user_id: Annotated[str, Field(pattern=SESSION_ID)]
    session_id: Annotated[str, Field(pattern=SESSION_ID)]
    new_message: dict[str, Any] | None = None
    streaming: bool = False
    state_delta: dict[str, Any] | None = None
    function_call_event_id: str | None = None
    """Sent by ADK's page with an answer; the answer's call is found by its id."""
    invocation_id: str | None = None
    custom_metadata: dict[str, Any] | None = None
    service_tier: str | None = None

    def check_supported(self, *, is_answer: bool) -> None:
        """Raise `ApiError` for fields that would have no effect."""
        if self.invocation_id and not is_answer:
            message = "send it only with answers or results: the server resumes interrupted turns by itself"
            raise bad_request(f"invocationId: {message}")
        if self.custom_metadata:
            raise bad_request("customMetadata: not supported; use stateDelta")
        if self.service_tier:
            raise bad_request("serviceTier: not supported; set it in the agent's model")


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process is alive, like `/healthz`."""
    return {"status": "ok"}


@router.get("/list-apps", dependencies=[Depends(current_caller)])
async def list_apps(context: Context, detailed: bool = False) -> Any:
    """List the apps, one for each agent."""
    if not detailed:
        return [*context.agents.contexts]
    return {"apps": [_describe_app(one) for one in context.agents.contexts.values()]}


def _describe_app(context: ServerContext) -> dict[str, Any]:
    runtime = context.runtime
    app = {"name": runtime.app_name, "rootAgentName": runtime.root_name, "description": runtime.description}
    return app | {"language": "python", "isComputerUse": False, "agents": None}


@router.get("/version", dependencies=[Depends(current_caller)])
async def version() -> dict[str, str]:
    """Return the version of ADK."""
    return {
        "version": package_version("google-adk"),
        "language": "python",
        "language_version": platform.python_version().rstrip("+"),
    }


@router.get("/apps/{app}/app-info")
async def read_app_info(app: str, user: CurrentUser) -> Response:
    """Describe the app, its agents, and their instructions and tools."""
    check_app(user.context, app)
    user.require_operator("read it", "app-info contains the agent's instructions")
    try:
        info = await user.runtime.adk_rest.app_info()
    except UsageError as error:
        raise bad_request(str(error)) from error
    return await large_response(lambda: info)


# -- sessions -----------------------------------------------------------------------------------------------------


@router.get(SESSIONS_PATH)
async def list_sessions(user: PathUser) -> Response:
    """List a user's sessions, without their events."""
    found = await user.runtime.adk_rest.sessions(user.id, with_app_state=user.is_operator)
    return await large_response(lambda: found)


@router.post(SESSIONS_PATH)
async def create_session(user: PathUser, new: NewAdkSession | None = None) -> Response:
    """Create a session."""
    new = new or NewAdkSession()
    if new.events:
        raise bad_request("events: a session starts empty; only turns add events")
    if new.options:
        raise bad_request("options: not supported")
    return await _create(user, new)


@router.post(SESSION_PATH)
async def create_session_with_id(
    session_id: IdPath, user: PathUser, state: Annotated[dict[str, Any] | None, Body()] = None
) -> Response:
    """Create a session with that id; the body is its state."""
    return await _create(user, NewAdkSession(session_id=session_id, state=state))


async def _create(user: AgentUser, new: NewAdkSession) -> Response:
    check_may_set_state(user, new.state)
    id_ = (new.session_id or "").strip() or str(uuid.uuid4())  # ADK's ids have dashes
    record = await user.sessions.create(id_, user_id=user.id, state=new.state)
    return await large_response(lambda: user.runtime.adk_rest.session(record, with_app_state=user.is_operator))


@router.get(SESSION_PATH)
async def get_session(session_id: IdPath, user: PathUser) -> Response:
    """Read a session with all events."""
    return await _session_with_events(user, session_id)


async def _session_with_events(user: AgentUser, session_id: str, temporary_state: Mapping[str, Any] = {}) -> Response:
    session = await user.get_session(session_id)
    shown = await user.runtime.adk_rest.session_with_events(
        session, with_app_state=user.is_operator, temporary_state=temporary_state
    )
    return await large_response(lambda: shown)


@router.patch(SESSION_PATH)
async def update_session(session_id: IdPath, change: StateChange, user: PathUser) -> Response:
    """Change a session's state, between its turns, and read the session with all events."""
    check_may_set_state(user, change.state_delta)
    # ADK's answer shows temporary state, which is not stored
    temporary = {name: value for name, value in change.state_delta.items() if name.startswith("temp:")}
    await user.sessions.change_state(session_id, change.state_delta, user_id=user.id)
    return await _session_with_events(user, session_id, temporary)


@router.delete(SESSION_PATH)
async def delete_session(session_id: IdPath, user: PathUser) -> None:
    """Cancel the running turn of a session, and delete the session if it exists."""
    await user.runtime.cancel(session_id, user_id=user.id)
    await user.sessions.delete(session_id, user_id=user.id)


@router.patch("/apps/{app}/users/{user_id}/memory")
async def add_session_to_memory(update: MemoryUpdate, user: PathUser) -> None:
    """Check that a session exists: every stored session is memory already."""
    await user.get_session(update.session_id)


# -- not supported -----------------------------------------------------------------------------------------------


@router.post("/agent-identity/finalize", dependencies=[Depends(current_caller)])
async def refuse_agent_identity() -> None:
    """Refuse the consent of Google Cloud's Agent Identity."""
    message = "Agent Identity is not supported: answer the turn's request for a credential instead"
    raise ApiError(501, "NotImplemented", message)


@router.websocket("/run_live")
async def refuse_live(socket: WebSocket) -> None:
    """Refuse ADK's Live mode."""
    await socket.accept()  # a reason can only be given to an open socket
    await socket.close(
        1003, "Live (bidirectional audio and video) is not supported: use /run_sse, or `adk web` for Live"
    )


# -- turns --------------------------------------------------------------------------------------------------------


@router.post("/run")
async def run(request: RunRequest, user: CurrentUser, key: IdempotencyKey = None) -> Response:
    """Run a turn and return its events."""
    running = await _submit(user, request, key)
    events: list[dict[str, Any]] = []
    async with aclosing(running.events(streaming=False)) as items:
        async for event in items:
            if isinstance(event, TurnError):
                raise turn_api_error(event)
            if event:
                events.append(event)
    return JsonResponse(events)


@router.post("/run_sse")
async def run_sse(request: RunRequest, user: CurrentUser, key: IdempotencyKey = None) -> Response:
    """Run a turn and stream its events as they are stored; with `streaming`, text deltas before them."""
    running = await _submit(user, request, key)

    async def frames() -> AsyncGenerator[str | None, None]:
        async with aclosing(running.events(streaming=request.streaming)) as items:
            async for event in items:
                if isinstance(event, TurnError):
                    yield _encode_error(turn_api_error(event))
                elif event is None:
                    yield None
                else:
                    sent = [event] if request.function_call_event_id else _without_artifacts(event)
                    yield "".join(f"data: {json.dumps(one)}\n\n" for one in sent)

    return EventStreamResponse(frames(), user.settings.server.write_timeout_s, _encode_error)


def _without_artifacts(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Split an event with parts and new artifacts in two, as ADK's stream does for its page."""
    if not (event.get("content", {}).get("parts") and event["actions"].get("artifactDelta")):
        return [event]
    parts = event | {"actions": event["actions"] | {"artifactDelta": {}}}
    return [parts, {name: value for name, value in event.items() if name != "content"}]


def _encode_error(error: ApiError) -> str:
    details = {"error_type": error.type, "error_message": str(error), "timestamp": time.time()}
    return f"data: {json.dumps({'error': f'{error.type}: {error}', 'error_details': details})}\n\n"


async def _submit(user: AgentUser, request: RunRequest, key: str | None) -> RunEvents:
    """Submit a message, answers to requests for approval, input or credentials, or results of calls."""
    agents, app = user.context.agents, request.app_name or user.runtime.app_name
    agents.check_runs(app)
    user = named_user(agents.contexts.get(app, user.context), user.caller, app, request.user_id, user.when_busy)
    try:
        message = user.runtime.adk_rest.read_message(request.new_message or {})
    except UsageError as error:
        raise bad_request(str(error)) from error
    request.check_supported(is_answer=not (message.text or message.files))
    check_may_set_state(user, request.state_delta)
    await user.check_token_quota()
    session = await user.get_session(request.session_id)
    stored = await user.runtime.adk_rest.recent_events(session)
    # an answer continues the invocation that asked, whose earlier events the client knows
    known = {event.event_id for event in stored}
    if message.text or message.files:
        waits = await user.waits(request.session_id)
        answers_input = any(isinstance(wait, InputWait) for wait in waits)
        files = await user.load_files(request.session_id, message.files)
        submitted = SubmittedMessage(message.text, files, request.state_delta or {}, request=TurnRequest(key))
        turn = await user.submit(request.session_id, submitted)
        return RunEvents(user, [turn], known if answers_input else ())
    if request.state_delta:
        raise bad_request("stateDelta: send it with a text, or with PATCH between turns")
    if message.results:
        will_continue = {result.will_continue for result in message.results}
        results = SubmittedResults(
            {result.call_id: result.result for result in message.results},
            will_continue.pop() if len(will_continue) == 1 else None,
            request=TurnRequest(key),
        )
        return RunEvents(user, [await user.submit(request.session_id, results)], known)
    keys = [key and (f"{key} {number}" if number else key) for number in range(len(message.answers))]
    turns = [
        await user.submit(request.session_id, SubmittedAnswer(*answer, TurnRequest(own_key)))
        for answer, own_key in zip(message.answers, keys, strict=True)
    ]
    return RunEvents(user, turns, known)
