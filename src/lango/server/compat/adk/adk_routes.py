"""ADK's own REST, so that a client of `adk api_server` moves over by changing the address.

`/list-apps`, `/apps/{app}/users/{user}/sessions...`, `/run` and `/run_sse`, as ADK documents them. There is one app.
With keys, the user in a path or body must be the key's: any other is not there. Without keys, any name is a user.

What is different: turns of a session run one at a time, and go on when their client leaves; events that a client made
up are refused; messages are text, files as `inlineData`, or answers to `adk_request_confirmation`; there are no
artifacts; memory and evaluation are not here, and say so. An error stands in `detail`, and with its type beside it.
"""

import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from lango.adk.services import adk_server
from lango.errors import StaleSession, UsageError
from lango.server.context import Here, Served
from lango.server.errors import Refused, error_body
from lango.server.json_body import JsonResponse, large_response
from lango.server.schemas import SESSION_ID
from lango.server.security.auth import Caller, User
from lango.server.security.authenticated_route import route_with_errors
from lango.server.streaming.sse import FrameStream, read, status_of
from lango.server.streaming.turn_streams import TurnOf
from lango.store import Entry, SessionId, SessionRecord
from lango.store.turns.turns import TurnRecord

# how it looks is ADK's to say; its clients read errors in `detail`
_AdkRoute = route_with_errors(lambda refused: {"detail": str(refused)} | error_body(refused))
router = APIRouter(include_in_schema=False, route_class=_AdkRoute)

_RECENT = 500
_NO_EVENTS = 2**62  # after this id there are none

App = Annotated[str, Path()]
Named = Annotated[str, Path(pattern=SESSION_ID)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")]


class AdkBody(BaseModel):
    """A request in either spelling, as ADK takes it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def _not_of_others(state: dict[str, Any] | None) -> dict[str, Any] | None:
    if any(name.startswith("app:") for name in state or {}):
        raise ValueError("app: state belongs to every user and is not a client's to set")
    return state


class NewAdkSession(AdkBody):
    """A session to be made."""

    session_id: Annotated[str, Field(pattern=SESSION_ID)] | None = None
    state: dict[str, Any] | None = None
    events: list[Any] | None = None

    _check_state = field_validator("state")(_not_of_others)


class StateChange(AdkBody):
    """A change of a session's state."""

    state_delta: dict[str, Any]

    _check_state = field_validator("state_delta")(_not_of_others)


class RunRequest(AdkBody):
    """A message for the agent."""

    app_name: str | None = None
    user_id: Annotated[str, Field(pattern=SESSION_ID)]
    session_id: Annotated[str, Field(pattern=SESSION_ID)]
    new_message: dict[str, Any] | None = None
    streaming: bool = False
    state_delta: dict[str, Any] | None = None

    _check_state = field_validator("state_delta")(_not_of_others)


def _as_user(here: Served, caller: Caller, app: str, user_id: str) -> Caller:
    """Return the caller as the user that a request names."""
    if app != here.runtime.app_name:
        raise Refused(404, "NotFound", f"there is no app {app!r}")
    if here.door.one_user:
        return Caller(user_id)
    if user_id != caller.user_id:
        raise Refused(404, "NotFound", f"there is no user {user_id!r}")
    return caller


@router.get("/health")
async def health() -> dict[str, str]:
    """Say that the process lives, as `/healthz` does."""
    return {"status": "ok"}


@router.get("/list-apps")
async def list_apps(user: User, here: Here, detailed: bool = False) -> Any:
    """List the one app there is."""
    if not detailed:
        return [here.runtime.app_name]
    root = here.runtime.agents()
    told = {"name": here.runtime.app_name, "rootAgentName": root["name"], "description": root["description"]}
    return {"apps": [told | {"language": "python", "isComputerUse": False}]}


@router.get("/version")
async def version(user: User) -> dict[str, str]:
    """Say which ADK this is."""
    return {"version": adk_server.ADK_VERSION, "language": "python"}


# -- sessions -----------------------------------------------------------------------------------------------------


_SESSIONS = "/apps/{app}/users/{user_id}/sessions"
_SESSION = _SESSIONS + "/{session_id}"


@router.get(_SESSIONS)
async def list_sessions(app: App, user_id: Named, user: User, here: Here) -> Response:
    """List a user's sessions, without their events."""
    caller = _as_user(here, user, app, user_id)
    found = await here.store.sessions(app, caller.user_id)
    return await large_response(lambda: [adk_server.session_to_json(record, [], app) for record in found])


@router.post(_SESSIONS)
async def create_session(
    app: App, user_id: Named, user: User, here: Here, new: NewAdkSession | None = None
) -> Response:
    """Make a session."""
    new = new or NewAdkSession()
    if new.events:
        raise Refused(400, "BadRequest", "events: a session begins empty; only its turns write events")
    return await _create(here, _as_user(here, user, app, user_id), new)


@router.post(_SESSION)
async def create_session_with_id(
    app: App,
    user_id: Named,
    session_id: Named,
    user: User,
    here: Here,
    state: Annotated[dict[str, Any] | None, Body()] = None,
) -> Response:
    """Make a session of that id; the body is its state."""
    caller = _as_user(here, user, app, user_id)
    try:
        _not_of_others(state)
    except ValueError as error:
        raise Refused(400, "BadRequest", str(error)) from error
    return await _create(here, caller, NewAdkSession(session_id=session_id, state=state))


async def _create(here: Served, caller: Caller, new: NewAdkSession) -> Response:
    name = SessionId(here.runtime.app_name, caller.user_id, (new.session_id or "").strip() or str(uuid.uuid4()))
    return await _shown(here, await here.store.create_session(name, new.state))


async def _shown(here: Served, record: SessionRecord) -> Response:
    return await large_response(lambda: adk_server.session_to_json(record, [], here.runtime.app_name))


@router.get(_SESSION)
async def get_session(app: App, user_id: Named, session_id: Named, user: User, here: Here) -> Response:
    """Read a session with every event."""
    session = await here.session(_as_user(here, user, app, user_id), session_id)
    found = await here.store.events(session.name)
    record, stored = found or (session, [])
    return await large_response(lambda: adk_server.session_to_json(record, stored, app))


@router.patch(_SESSION)
async def update_session(
    app: App, user_id: Named, session_id: Named, change: StateChange, user: User, here: Here
) -> Response:
    """Change a session's state, between its turns."""
    caller = _as_user(here, user, app, user_id)
    # read first: a turn that begins after this makes the write below stale
    session = await here.session(caller, session_id)
    newest = await here.store.newest_turn(session)
    turn = (await here.store.told(session.key, newest, _NO_EVENTS)).turn if newest is not None else None
    if turn and turn.status in ("waiting", "running"):
        raise StaleSession(f"a turn of session {session_id!r} runs: change its state when it is done")
    entry = Entry(f"p-{uuid.uuid4()}", time.time(), state_delta=change.state_delta, extra={"author": "user"})
    await here.store.append(session.key, session.name, session.revision, entry)
    return await _shown(here, await here.session(caller, session_id))


@router.delete(_SESSION)
async def delete_session(app: App, user_id: Named, session_id: Named, user: User, here: Here) -> None:
    """Stop what runs in a session, and delete it; one that is not there is deleted already."""
    caller = _as_user(here, user, app, user_id)
    await here.runtime.cancel(session_id, user_id=caller.user_id)
    await here.store.delete_session(SessionId(app, caller.user_id, session_id))


# -- what is not here ---------------------------------------------------------------------------------------------


@router.get(_SESSION + "/artifacts")
async def list_artifacts(app: App, user_id: Named, session_id: Named, user: User, here: Here) -> list[str]:
    """List no artifacts."""
    await here.session(_as_user(here, user, app, user_id), session_id)
    return []


@router.api_route(_SESSION + "/artifacts{rest:path}", methods=["GET", "POST", "DELETE"])
async def artifacts(app: App, user_id: Named, session_id: Named, rest: str, user: User, here: Here) -> None:
    """Say that no artifact is there, and that none can be kept."""
    await here.session(_as_user(here, user, app, user_id), session_id)
    if rest in ("", "/"):
        raise Refused(501, "NotImplemented", "artifacts are not kept here")
    raise Refused(404, "NotFound", "there are no artifacts here")


@router.patch("/apps/{app}/users/{user_id}/memory")
async def add_to_memory(app: App, user_id: Named, user: User, here: Here) -> None:
    """Say that ADK's memory service is not here."""
    _as_user(here, user, app, user_id)
    raise Refused(
        501, "NotImplemented", "memory is made by Lango itself, from the conversation ([memory] in lango.toml)"
    )


@router.api_route("/apps/{app}/eval{rest:path}", methods=["GET", "POST", "PUT", "DELETE"])
async def evaluation(app: App, rest: str, user: User) -> None:
    """Say that evaluation is not here."""
    raise Refused(501, "NotImplemented", "evaluation is not here: use `adk eval` on the same agent")


# -- turns --------------------------------------------------------------------------------------------------------


@router.post("/run")
async def run(asked: RunRequest, user: User, here: Here, key: Key = None) -> Response:
    """Run a turn and return its events."""
    running = await _begin(here, user, asked, key)
    events: list[dict[str, Any]] = []
    async with aclosing(running.events(streaming=False)) as told:
        async for event in told:
            if event and "error" in event:
                failed = event["error"]
                raise Refused(status_of(failed["type"]), failed["type"], failed["message"])
            if event:
                events.append(event)
    return JsonResponse(events)


@router.post("/run_sse")
async def run_sse(asked: RunRequest, user: User, here: Here, key: Key = None) -> Response:
    """Run a turn and tell its events as they are stored; with `streaming`, pieces of text before."""
    running = await _begin(here, user, asked, key)

    async def frames() -> AsyncGenerator[str | None, None]:
        async with aclosing(running.events(streaming=asked.streaming)) as told:
            async for event in told:
                if event and "error" in event:
                    yield _failed(event["error"]["type"], event["error"]["message"])
                else:
                    yield f"data: {json.dumps(event)}\n\n" if event else None

    return FrameStream(frames(), here.settings.server.write_timeout_s, _failed)


def _failed(error: str, message: str) -> str:
    details = {"error_type": error, "error_message": message, "timestamp": time.time()}
    return f"data: {json.dumps({'error': f'{error}: {message}', 'error_details': details})}\n\n"


async def _begin(here: Served, user: Caller, asked: RunRequest, key: str | None) -> "_Run":
    """Accept a message, or answers to questions for approval."""
    caller = _as_user(here, user, asked.app_name or here.runtime.app_name, asked.user_id)
    try:
        said = adk_server.read_message(asked.new_message or {})
    except UsageError as error:
        raise Refused(400, "BadRequest", str(error)) from error
    await here.door.check_tokens(caller)
    session = await here.session(caller, asked.session_id)
    if said.text or said.files:
        turn = await here.turns.submit(caller, asked.session_id, said.text, key, said.files, asked.state_delta)
        return _Run(here, [turn])
    if asked.state_delta:
        raise Refused(400, "BadRequest", "stateDelta: send it with a text, or by PATCH between two turns")
    found = await here.store.events(session.name, _RECENT)
    stored = found[1] if found else []
    turns = [
        await here.turns.approve(
            caller, asked.session_id, adk_server.asked_about(stored, question) or question, approved=approved
        )
        for question, approved in said.answers
    ]
    # an answer goes on in the invocation that asked: what that told before is known
    return _Run(here, turns, {one.event_id for one in stored})


class _Run:
    """Turns as ADK's events: those that they store, as soon as a client may know of them."""

    def __init__(self, here: Served, turns: Sequence[TurnOf], known: Iterable[str] = ()) -> None:
        self._here = here
        self._turns = turns
        self._known = set(known)

    async def events(self, *, streaming: bool) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Tell them; None whenever nothing came for a while. `{"error": {"type", "message"}}` ends what failed."""
        for turn in self._turns:
            record = await self._record(turn)
            invocation_id = record.invocation_id if record else ""
            async with aclosing(read(self._here.turns.follow(turn))) as events:
                async for event in events:
                    if event is None:
                        yield None
                    elif event["type"] in ("text_delta", "thought_delta"):
                        if streaming:
                            thought = event["type"] == "thought_delta"
                            yield adk_server.partial_event(
                                event["text"], event["author"], invocation_id, thought=thought
                            )
                    else:
                        for stored in await self._stored(turn):
                            yield stored
                    if event and event["type"] == "error" and event["fatal"]:
                        yield {"error": {"type": event["error"], "message": event["message"]}}
                        return

    async def _record(self, turn: TurnOf) -> TurnRecord | None:
        return (await self._here.store.told(turn.session.key, turn.turn, _NO_EVENTS)).turn

    async def _stored(self, turn: TurnOf) -> list[dict[str, Any]]:
        """Return the events of a turn that were stored since the last time; its message is the client's own."""
        record = await self._record(turn)
        found = await self._here.store.events(turn.session.name, _RECENT)
        if record is None or found is None:
            return []
        invocations = {record.invocation_id, *record.extra.get("invocations", ())}
        mine = {one.event_id for one in found[1] if one.invocation_id in invocations} - self._known
        self._known |= mine
        shown = adk_server.stored_to_json(found[1], self._here.runtime.app_name)
        return [event for event in shown if event["id"] in mine and event["author"] != "user"]
