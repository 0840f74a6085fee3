"""Show sessions, events and artifacts in the JSON of ADK's own server, and read the messages of its clients."""

import json
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from google.adk.agents import LlmAgent
from google.adk.artifacts import artifact_util
from google.adk.auth.auth_credential import AuthCredentialTypes
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.services.artifact_service import SqlArtifactService
from lango.adk.services.credential_secrets import public_credential
from lango.errors import UsageError
from lango.json_values import as_object, to_client_json
from lango.messages import MAX_PARTS, ArtifactFile, Attachment, make_attachment
from lango.sessions import (
    CREDENTIAL_CALL,
    INPUT_CALL,
    REQUEST_CALLS,
    REQUEST_PREFIX,
    SessionInfo,
    StoredEvent,
    without_app_state,
)
from lango.store import Store
from lango.store.codec.records import wait_id
from lango.store.sessions.sessions import list_sessions
from lango.store.sessions.window import read_session_events
from lango.store.turns.turns import read_turn
from lango.threads import run_in_thread
from lango.waits import REFUSAL_REASON, Answer, Approve, Credential, Refuse, Value

_RECENT_EVENTS = 500
"""How many of a session's newest events are searched for those of a turn."""
_ADK_INTERNAL_PREFIX = "__adk_internal_"
_CREDENTIALS = {"rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential"}
_AUTH_TYPES = {name for kind in AuthCredentialTypes for name in (kind.value, kind.name, kind.name.lower())}


Json = dict[str, Any]


class CallResult(Struct, frozen=True):
    """A result of a client tool or of a long-running tool."""

    call_id: str
    result: dict[str, Any]
    will_continue: bool | None = None
    """Whether more results follow, or None if the client does not say."""


class ClientMessage(Struct, frozen=True):
    """A client's message: text and files, answers to requests to a person, or results of calls."""

    text: str = ""
    files: tuple[Attachment | ArtifactFile, ...] = ()
    """Inline files, and references to artifacts, which are to be loaded."""
    answers: tuple[tuple[str, Answer], ...] = ()
    """The ids of waits, and the answers to them."""
    results: tuple[CallResult, ...] = ()


class AdkRest:
    """The sessions and artifacts of one app, as ADK's server shows them. The state of the app is for operators only."""

    def __init__(self, store: Store, app_name: str, root: object, artifacts: SqlArtifactService) -> None:
        self._store = store
        self._app_name = app_name
        self._root = root
        self._artifacts = artifacts

    async def app_info(self) -> Json:
        """Describe the app, its agents and their tools. Toolsets are asked for their tools.

        Raise `UsageError` if the root is not an `LlmAgent`.
        """
        root_agent = self._root
        if not isinstance(root_agent, LlmAgent):
            raise UsageError("Root agent is not an LlmAgent")
        from google.adk.utils.agent_info import get_agents_dict  # imported in 13 ms, and few clients ask

        agents = await get_agents_dict(root_agent)
        return {
            "name": self._app_name,
            "rootAgentName": root_agent.name,
            "description": root_agent.description,
            "language": "python",
            "isComputerUse": False,
            "agents": {name: _to_public_json(agent) for name, agent in agents.items()},
        }

    async def sessions(self, user_id: str, *, with_app_state: bool) -> list[Json]:
        """Return all sessions of a user, without their events."""
        found = await self._store.read(list_sessions, self._app_name, user_id)
        return await run_in_thread(lambda: [self.session(one, with_app_state=with_app_state) for one in found])

    def session(self, session: SessionInfo, stored: Iterable[StoredEvent] = (), *, with_app_state: bool) -> Json:
        """Return a session with some events."""
        name, state = session.name, session.state if with_app_state else without_app_state(session.state)
        shown = Session(
            id=name.id,
            app_name=name.app_name,
            user_id=name.user_id,
            state=to_client_json(state),
            last_update_time=session.updated_at,
        )
        events = _stored_to_json(stored, self._app_name, with_app_state=with_app_state)
        return _to_public_json(shown) | {"events": events}

    async def session_with_events(
        self, session: SessionInfo, *, with_app_state: bool, temporary_state: Mapping[str, Any] = {}
    ) -> Json:
        """Return a session with all its events, and with state that is not stored."""
        newest, events = await self._store.read(read_session_events, session.name) or (session, [])
        await self._store.load_files(events)
        shown = replace(newest, state={**newest.state, **temporary_state})
        return await run_in_thread(lambda: self.session(shown, events, with_app_state=with_app_state))

    async def recent_events(self, session: SessionInfo) -> Sequence[StoredEvent]:
        """Read the newest events of a session, without the bytes of their files."""
        found = await self._store.read(read_session_events, session.name, _RECENT_EVENTS)
        return found[1] if found else []

    async def events_of_turn(
        self, session: SessionInfo, turn: int, known: Collection[str], after_seq: int, *, with_app_state: bool
    ) -> list[Json]:
        """Return the events of a turn after a message whose ids are not known, without the user's messages."""
        row = await self._store.read(read_turn, session.key, turn)
        recent = await self.recent_events(session)
        invocations = {row.invocation_id, *row.result.invocations} if row else set[str]()
        new = [
            event
            for event in recent
            if event.invocation_id in invocations and event.event_id not in known and event.seq > after_seq
        ]
        await self._store.load_files(new)
        new_ids = {event.event_id for event in new}
        shown = await run_in_thread(_stored_to_json, recent, self._app_name, with_app_state=with_app_state)
        return [event for event in shown if event["id"] in new_ids and event["author"] != "user"]

    async def save_artifact(
        self, session: SessionInfo, name: str, part: Mapping[str, Any], metadata: Json | None
    ) -> Json:
        """Save a `Part` as the next version of an artifact, and return its metadata. Raise `UsageError`.

        An address elsewhere is refused: the model's server would fetch it.
        """
        try:
            file = types.Part.model_validate(part)
            if file.file_data and not artifact_util.is_artifact_ref(file):
                raise UsageError("artifact: send the file itself as inlineData; the only URIs accepted are artifact://")
            version = await self._artifacts.save_artifact(
                **_place(session), filename=name, artifact=file, custom_metadata=metadata
            )
        except (InputValidationError, ValidationError) as error:
            message = str(error) if isinstance(error, InputValidationError) else "artifact: not a valid genai Part"
            raise UsageError(message) from error
        return next(one for one in await self.artifact_metadata(session, name) if one["version"] == version)

    async def artifact_metadata(self, session: SessionInfo, name: str) -> list[Json]:
        """Return the metadata of an artifact's versions; none for a name that no artifact can have."""
        try:
            found = await self._artifacts.list_artifact_versions(**_place(session), filename=name)
        except InputValidationError:
            return []
        return [_to_public_json(version) for version in found]

    async def load_artifact(self, session: SessionInfo, name: str, version: int | None) -> Json | None:
        """Return an artifact as a `Part`, or None if there is none or its reference leads nowhere."""
        try:
            part = await self._artifacts.load_artifact(**_place(session), filename=name, version=version)
        except InputValidationError:
            return None
        return None if part is None else _to_public_json(part)

    @staticmethod
    def read_message(message: Mapping[str, Any]) -> ClientMessage:
        """Read a `Content` of genai. Raise `UsageError` if it is none, or has parts that a turn does not accept."""
        if isinstance(sent := message.get("parts"), list) and len(cast("list[Any]", sent)) > MAX_PARTS:
            raise UsageError(f"newMessage: a message has at most {MAX_PARTS} parts")
        try:
            parts = types.Content.model_validate(message).parts or []
        except ValidationError as error:
            raise UsageError("newMessage: not a valid genai Content") from error
        responses = [part.function_response for part in parts if part.function_response]
        if responses and len(responses) == len(parts) and all(response.name in REQUEST_CALLS for response in responses):
            answers = [(wait_id(response.id or ""), _read_answer(response)) for response in responses]
            return ClientMessage(answers=tuple(answers))
        to_adk = [response for response in responses if (response.name or "").startswith(REQUEST_PREFIX)]
        if responses and len(responses) == len(parts) and not to_adk:
            return ClientMessage(results=tuple(_read_result(response) for response in responses))
        text = "".join(part.text or "" for part in parts)
        files = [part for part in parts if _is_file(part)]
        if not (text or files) or any(part.text is None and not _is_file(part) for part in parts):
            raise UsageError(
                "newMessage: send text, files as inlineData, artifacts as fileData, answers to "
                "adk_request_confirmation, adk_request_input or adk_request_credential, or results of calls"
            )
        return ClientMessage(text, tuple(_read_file(number, part) for number, part in enumerate(files, 1)))

    @staticmethod
    def partial_event(text: str, author: str, invocation_id: str, *, thought: bool) -> dict[str, Any]:
        """Write a piece of streamed text as a partial event of ADK."""
        part = types.Part(text=text, thought=True if thought else None)
        return _to_public_json(
            Event(
                id=str(uuid.uuid4()),
                invocation_id=invocation_id,
                author=author,
                content=types.Content(role="model", parts=[part]),
                partial=True,
                timestamp=time.time(),
            )
        )


def _is_file(part: types.Part) -> bool:
    return part.inline_data is not None or artifact_util.is_artifact_ref(part)


def _read_answer(response: types.FunctionResponse) -> Answer:
    """Read an answer to a request to a person: ADK's clients wrap values that are not objects as `result`."""
    given = response.response or {}
    value: Any = given["result"] if given.keys() == {"result"} else given
    if response.name == INPUT_CALL:
        return Value(value)
    return Credential(value) if response.name == CREDENTIAL_CALL else _read_confirmation(given)


def _read_confirmation(given: Any) -> Answer:
    """Read a `ToolConfirmation`, which some of ADK's clients wrap as JSON text; only `true` is an approval."""
    if given.keys() == {"response"} and isinstance(given["response"], str):
        try:
            given = json.loads(given["response"])
        except (ValueError, RecursionError):
            given = {}
    answer = as_object(given)
    payload: Any = answer.get("payload")
    if answer.get("confirmed") is True:
        return Approve(payload=payload)
    reason = as_object(payload).get(REFUSAL_REASON)
    return Refuse(reason if isinstance(reason, str) else "", payload)


def _read_file(number: int, part: types.Part) -> Attachment | ArtifactFile:
    if (blob := part.inline_data) is not None:
        return make_attachment(number, blob.display_name, blob.mime_type, blob.data)
    return ArtifactFile((part.file_data and part.file_data.file_uri) or "")


def _read_result(response: types.FunctionResponse) -> CallResult:
    if not response.id:
        raise UsageError("newMessage: a functionResponse needs the id of its call")
    return CallResult(response.id, response.response or {}, response.will_continue)


def _stored_to_json(
    stored: Iterable[StoredEvent], root_agent_name: str, *, with_app_state: bool
) -> list[dict[str, Any]]:
    """Write stored events as ADK does; what they changed in the state of the app is for operators only."""
    events = stored_to_events(stored, root_agent_name)
    for event in () if with_app_state else events:
        event.actions.state_delta = without_app_state(event.actions.state_delta)
    return [_event_to_json(event) for event in events]


def _event_to_json(event: Event) -> dict[str, Any]:
    shown = _to_public_json(event)
    if shown.get("content", {}).get("role") == "function":
        shown["content"]["role"] = "user"  # as ADK sends results
    return shown


def _place(session: SessionInfo) -> dict[str, str]:
    name = session.name
    return {"app_name": name.app_name, "user_id": name.user_id, "session_id": name.id}


def _to_public_json(model: BaseModel) -> dict[str, Any]:
    try:
        shown = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (PydanticSerializationError, UnicodeError):  # lone surrogates, or bytes
        shown = to_client_json(model.model_dump(mode="python", by_alias=True, exclude_none=True))
    return _without_secrets(shown)


def _without_secrets(value: Any) -> Any:
    """Remove the secrets of credentials and the internal fields of ADK. An address that a user opens stays."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if any(str(fields.get(name)) in _AUTH_TYPES for name in ("authType", "auth_type")):
            return public_credential(fields)
        return {
            name: public_credential(cast("dict[str, Any]", inner))
            if name in _CREDENTIALS and isinstance(inner, dict)
            else _without_secrets(inner)
            for name, inner in fields.items()
            if not name.startswith(_ADK_INTERNAL_PREFIX)
        }
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in cast("list[Any]", value)]
    return value
