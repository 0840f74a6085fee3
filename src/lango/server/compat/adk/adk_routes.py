"""Serve ADK's REST API: a client of `adk api_server` only has to change the address.

`/list-apps`, `/apps/{app}/users/{user}/sessions...`, `/run` and `/run_sse`, as ADK documents them. There is one app.
With keys, the user in a path or body must be the user of the key: any other gets 404. Without keys, any name is a user.

Differences to ADK: turns of a session run one at a time, and continue when their client leaves; a client cannot add
events; messages are text, files as `inlineData`, or answers to `adk_request_confirmation`; there are no artifacts;
memory and evaluation are answered with 501. An error is in `detail`, and with its type in `error`.
"""

import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from lango.adk.services import adk_server
from lango.errors import StaleSession, UsageError
from lango.events import TextDelta, ThoughtDelta, TurnError
from lango.server.context import Context, ServerContext
from lango.server.errors import ApiError, error_body, turn_api_error
from lango.server.json_body import JsonResponse, large_response
from lango.server.schemas import SESSION_ID, IdempotencyKey, refuse_app_state
from lango.server.security.auth import Caller, CurrentCaller, current_caller, route_with_error_body
from lango.server.streaming.sse import FrameStreamResponse
from lango.server.streaming.turn_streams import TurnRef
from lango.store import NewEvent, SessionId, SessionRecord
from lango.store.sessions import sessions
from lango.store.sessions.window import read_session_events
from lango.store.turns.queue import find_newest_turn
from lango.store.turns.turns import TurnRecord, read_turn

# ADK's clients read errors in `detail`
_AdkRoute = route_with_error_body(lambda refused: {"detail": str(refused)} | error_body(refused))
router = APIRouter(include_in_schema=False, route_class=_AdkRoute)

_RECENT_EVENTS = 500

IdPath = Annotated[str, Path(pattern=SESSION_ID)]


class AdkRequestBody(BaseModel):
    """A request body with camelCase or snake_case names, as ADK accepts it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class NewAdkSession(AdkRequestBody):
    """A session to create."""

    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    state: dict[str, Any] | None = None
    events: list[Any] | None = None

    _check_state = field_validator("state")(refuse_app_state)


class StateChange(AdkRequestBody):
    """A change of a session's state."""

    state_delta: dict[str, Any]

    _check_state = field_validator("state_delta")(refuse_app_state)


class RunRequest(AdkRequestBody):
    """A message for the agent."""

    app_name: str | None = None
    user_id: Annotated[str, Field(pattern=SESSION_ID)]
    session_id: Annotated[str, Field(pattern=SESSION_ID)]
    new_message: dict[str, Any] | None = None
    streaming: bool = False
    state_delta: dict[str, Any] | None = None

    _check_state = field_validator("state_delta")(refuse_app_state)


def _caller_as_user(context: ServerContext, caller: Caller, app: str, user_id: str) -> Caller:
    """Return the caller as the user that a request names; raise `ApiError` for another user."""
    if app != context.runtime.app_name:
        raise ApiError(404, "NotFound", f"there is no app {app!r}")
    if context.authenticator.is_single_user:
        return Caller(user_id)
    if user_id != caller.user_id:
        raise ApiError(404, "NotFound", f"there is no user {user_id!r}")
    return caller


async def _path_user(app: str, user_id: IdPath, caller: CurrentCaller, context: Context) -> Caller:
    return _caller_as_user(context, caller, app, user_id)


PathUser = Annotated[Caller, Depends(_path_user)]
"""The caller as the user that the path names."""


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the process is alive, like `/healthz`."""
    return {"status": "ok"}


@router.get("/list-apps", dependencies=[Depends(current_caller)])
async def list_apps(context: Context, detailed: bool = False) -> Any:
    """List the only app."""
    if not detailed:
        return [context.runtime.app_name]
    root = context.runtime.agents()
    app = {"name": context.runtime.app_name, "rootAgentName": root["name"], "description": root["description"]}
    return {"apps": [app | {"language": "python", "isComputerUse": False}]}


@router.get("/version", dependencies=[Depends(current_caller)])
async def version() -> dict[str, str]:
    """Return the version of ADK."""
    return {"version": adk_server.ADK_VERSION, "language": "python"}


# -- sessions -----------------------------------------------------------------------------------------------------


_SESSIONS = "/apps/{app}/users/{user_id}/sessions"
_SESSION = _SESSIONS + "/{session_id}"


@router.get(_SESSIONS)
async def list_sessions(caller: PathUser, context: Context) -> Response:
    """List a user's sessions, without their events."""
    app = context.runtime.app_name
    records = await context.store.read(sessions.list_sessions, app, caller.user_id)
    return await large_response(lambda: [adk_server.session_to_json(record, [], app) for record in records])


@router.post(_SESSIONS)
async def create_session(caller: PathUser, context: Context, new: NewAdkSession | None = None) -> Response:
    """Create a session."""
    new = new or NewAdkSession()
    if new.events:
        raise ApiError(400, "BadRequest", "events: a session begins empty; only its turns write events")
    return await _create(context, caller, new)


@router.post(_SESSION)
async def create_session_with_id(
    session_id: IdPath,
    caller: PathUser,
    context: Context,
    state: Annotated[dict[str, Any] | None, Body()] = None,
) -> Response:
    """Create a session with that id; the body is its state."""
    try:
        refuse_app_state(state)
    except ValueError as error:
        raise ApiError(400, "BadRequest", str(error)) from error
    return await _create(context, caller, NewAdkSession(session_id=session_id, state=state))


async def _create(context: ServerContext, caller: Caller, new: NewAdkSession) -> Response:
    name = SessionId(context.runtime.app_name, caller.user_id, (new.session_id or "").strip() or str(uuid.uuid4()))
    record = await context.store.write(sessions.create_session, name, new.state, time.time())
    return await _session_response(context, record)


async def _session_response(context: ServerContext, record: SessionRecord) -> Response:
    return await large_response(lambda: adk_server.session_to_json(record, [], context.runtime.app_name))


@router.get(_SESSION)
async def get_session(session_id: IdPath, caller: PathUser, context: Context) -> Response:
    """Read a session with all events."""
    session = await context.get_session(caller, session_id)
    found = await context.store.read(read_session_events, session.name)
    record, stored = found or (session, [])
    return await large_response(lambda: adk_server.session_to_json(record, stored, context.runtime.app_name))


@router.patch(_SESSION)
async def update_session(session_id: IdPath, change: StateChange, caller: PathUser, context: Context) -> Response:
    """Change a session's state, between its turns."""
    # read first: a turn that starts later makes the write below stale
    session = await context.get_session(caller, session_id)
    newest = await context.store.read(find_newest_turn, session)
    turn = None if newest is None else await context.store.read(read_turn, session.key, newest)
    if turn and turn.status in ("queued", "running"):
        raise StaleSession(f"a turn of session {session_id!r} runs: change its state when it is done")
    entry = NewEvent(f"p-{uuid.uuid4()}", time.time(), state_delta=change.state_delta, extra={"author": "user"})
    await context.store.append(session.key, session.name, session.revision, entry)
    return await _session_response(context, await context.get_session(caller, session_id))


@router.delete(_SESSION)
async def delete_session(session_id: IdPath, caller: PathUser, context: Context) -> None:
    """Cancel the running turn of a session, and delete the session if it exists."""
    await context.runtime.cancel(session_id, user_id=caller.user_id)
    await context.store.delete_session(SessionId(context.runtime.app_name, caller.user_id, session_id))


# -- not supported -----------------------------------------------------------------------------------------------


@router.get(_SESSION + "/artifacts")
async def list_artifacts(session_id: IdPath, caller: PathUser, context: Context) -> list[str]:
    """Return an empty list of artifacts."""
    await context.get_session(caller, session_id)
    return []


@router.api_route(_SESSION + "/artifacts{rest:path}", methods=["GET", "POST", "DELETE"])
async def refuse_artifacts(session_id: IdPath, rest: str, caller: PathUser, context: Context) -> None:
    """Refuse to read or store an artifact."""
    await context.get_session(caller, session_id)
    if rest in ("", "/"):
        raise ApiError(501, "NotImplemented", "artifacts are not kept here")
    raise ApiError(404, "NotFound", "there are no artifacts here")


@router.patch("/apps/{app}/users/{user_id}/memory", dependencies=[Depends(_path_user)])
async def refuse_memory() -> None:
    """Refuse changes through ADK's memory service."""
    raise ApiError(
        501, "NotImplemented", "memory is made by Lango itself, from the conversation ([memory] in lango.toml)"
    )


@router.api_route(
    "/apps/{app}/eval{rest:path}", methods=["GET", "POST", "PUT", "DELETE"], dependencies=[Depends(current_caller)]
)
async def refuse_evaluation() -> None:
    """Refuse evaluation."""
    raise ApiError(501, "NotImplemented", "evaluation is not here: use `adk eval` on the same agent")


# -- turns --------------------------------------------------------------------------------------------------------


@router.post("/run")
async def run(
    request: RunRequest, authenticated: CurrentCaller, context: Context, key: IdempotencyKey = None
) -> Response:
    """Run a turn and return its events."""
    running = await _submit(context, authenticated, request, key)
    events: list[dict[str, Any]] = []
    async with aclosing(running.events(streaming=False)) as items:
        async for event in items:
            if isinstance(event, TurnError):
                raise turn_api_error(event)
            if event:
                events.append(event)
    return JsonResponse(events)


@router.post("/run_sse")
async def run_sse(
    request: RunRequest, authenticated: CurrentCaller, context: Context, key: IdempotencyKey = None
) -> Response:
    """Run a turn and stream its events as they are stored; with `streaming`, text deltas before them."""
    running = await _submit(context, authenticated, request, key)

    async def frames() -> AsyncGenerator[str | None, None]:
        async with aclosing(running.events(streaming=request.streaming)) as items:
            async for event in items:
                if isinstance(event, TurnError):
                    yield _encode_error(turn_api_error(event))
                else:
                    yield f"data: {json.dumps(event)}\n\n" if event else None

    return FrameStreamResponse(frames(), context.settings.server.write_timeout_s, _encode_error)


def _encode_error(error: ApiError) -> str:
    details = {"error_type": error.type, "error_message": str(error), "timestamp": time.time()}
    return f"data: {json.dumps({'error': f'{error.type}: {error}', 'error_details': details})}\n\n"


async def _submit(context: ServerContext, authenticated: Caller, request: RunRequest, key: str | None) -> "_RunEvents":
    """Submit a message, or answers to approval requests."""
    caller = _caller_as_user(context, authenticated, request.app_name or context.runtime.app_name, request.user_id)
    try:
        message = adk_server.read_message(request.new_message or {})
    except UsageError as error:
        raise ApiError(400, "BadRequest", str(error)) from error
    await context.authenticator.check_token_quota(caller)
    session = await context.get_session(caller, request.session_id)
    if message.text or message.files:
        turn = await context.turns.submit(
            caller, request.session_id, message.text, key, message.files, request.state_delta
        )
        return _RunEvents(context, [turn])
    if request.state_delta:
        raise ApiError(400, "BadRequest", "stateDelta: send it with a text, or by PATCH between two turns")
    found = await context.store.read(read_session_events, session.name, _RECENT_EVENTS)
    stored = found[1] if found else []
    turns = [
        await context.turns.submit_approval(
            caller,
            request.session_id,
            adk_server.call_of_approval_request(stored, request_call_id) or request_call_id,
            approved=approved,
        )
        for request_call_id, approved in message.answers
    ]
    # an answer continues the invocation that asked, whose earlier events the client knows
    return _RunEvents(context, turns, {event.event_id for event in stored})


class _RunEvents:
    """The events that turns store, in ADK's form."""

    def __init__(self, context: ServerContext, turns: Sequence[TurnRef], known: Iterable[str] = ()) -> None:
        self._context = context
        self._turns = turns
        self._sent_ids = set(known)

    async def events(self, *, streaming: bool) -> AsyncGenerator[dict[str, Any] | TurnError | None, None]:
        """Yield ADK's events; None whenever no event came for a heartbeat. A fatal `TurnError` comes last."""
        for turn in self._turns:
            record = await self._read_turn(turn)
            invocation_id = record.invocation_id if record else ""
            async with aclosing(self._context.turns.follow(turn)) as items:
                async for item in items:
                    event = item and item.event
                    if event is None:
                        yield None
                    elif isinstance(event, TextDelta | ThoughtDelta):
                        if streaming:
                            thought = isinstance(event, ThoughtDelta)
                            yield adk_server.partial_event(event.text, event.author, invocation_id, thought=thought)
                    else:
                        for stored in await self._new_events(turn):
                            yield stored
                    if isinstance(event, TurnError) and event.fatal:
                        yield event
                        return

    async def _read_turn(self, turn: TurnRef) -> TurnRecord | None:
        return await self._context.store.read(read_turn, turn.session.key, turn.turn)

    async def _new_events(self, turn: TurnRef) -> list[dict[str, Any]]:
        """Return the events of a turn that were stored since the last call, without the user's message."""
        record = await self._read_turn(turn)
        found = await self._context.store.read(read_session_events, turn.session.name, _RECENT_EVENTS)
        if record is None or found is None:
            return []
        invocations = {record.invocation_id, *record.extra.get("invocations", ())}
        new_ids = {
            stored_event.event_id for stored_event in found[1] if stored_event.invocation_id in invocations
        } - self._sent_ids
        self._sent_ids |= new_ids
        events = adk_server.stored_to_json(found[1], self._context.runtime.app_name)
        return [event for event in events if event["id"] in new_ids and event["author"] != "user"]
