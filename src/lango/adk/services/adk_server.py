"""Read and write the JSON of ADK's own server, and find its dev UI."""

import importlib.util
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from google.adk.agents import LlmAgent
from google.adk.artifacts import artifact_util
from google.adk.auth.auth_credential import AuthCredentialTypes
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types
from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.services.artifact_service import SqlArtifactService
from lango.adk.services.credential_secrets import public_credential
from lango.errors import UsageError
from lango.json_values import to_client_json
from lango.messages import MAX_PARTS, ArtifactFile, Attachment, make_attachment
from lango.sessions import (
    CONFIRMATION_CALL,
    CREDENTIAL_CALL,
    INPUT_CALL,
    SessionId,
    SessionInfo,
    StoredEvent,
    without_app_state,
)
from lango.store.codec.ids import address_safe_id
from lango.waits import REFUSAL_REASON, Answer, Approve, Credential, Refuse, Value

ADK_VERSION = version("google-adk")

_ADK_INTERNAL_PREFIX = "__adk_internal_"
_REQUEST_PREFIX = "adk_request_"  # of the calls by which ADK itself asks
_REQUESTS = (CONFIRMATION_CALL, INPUT_CALL, CREDENTIAL_CALL)
_CREDENTIALS = {"rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential"}
_AUTH_TYPES = {name for kind in AuthCredentialTypes for name in (kind.value, kind.name, kind.name.lower())}


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


def read_message(message: Mapping[str, Any]) -> ClientMessage:
    """Read a `Content` of genai. Raise `UsageError` if it is none, or has parts that a turn does not accept."""
    if isinstance(sent := message.get("parts"), list) and len(cast("list[Any]", sent)) > MAX_PARTS:
        raise UsageError(f"newMessage: a message has at most {MAX_PARTS} parts")
    try:
        parts = types.Content.model_validate(message).parts or []
    except ValidationError as error:
        raise UsageError("newMessage: this is not a Content of genai") from error
    responses = [part.function_response for part in parts if part.function_response]
    if responses and len(responses) == len(parts) and all(response.name in _REQUESTS for response in responses):
        answers = [(address_safe_id(response.id or ""), _read_answer(response)) for response in responses]
        return ClientMessage(answers=tuple(answers))
    to_adk = [response for response in responses if (response.name or "").startswith(_REQUEST_PREFIX)]
    if responses and len(responses) == len(parts) and not to_adk:
        return ClientMessage(results=tuple(_read_result(response) for response in responses))
    text = "".join(part.text or "" for part in parts)
    files = [part for part in parts if _is_file(part)]
    if not (text or files) or any(part.text is None and not _is_file(part) for part in parts):
        raise UsageError(
            "newMessage: send text, files as inlineData, artifacts as fileData, answers to adk_request_confirmation, "
            "adk_request_input or adk_request_credential, or results of calls"
        )
    return ClientMessage(text, tuple(_read_file(number, part) for number, part in enumerate(files, 1)))


def _is_file(part: types.Part) -> bool:
    return part.inline_data is not None or artifact_util.is_artifact_ref(part)


def _read_answer(response: types.FunctionResponse) -> Answer:
    """Read an answer to a request to a person: ADK's clients wrap values that are no objects as `result`."""
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
    answer = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    payload: Any = answer.get("payload")
    if answer.get("confirmed") is True:
        return Approve(payload=payload)
    reason = cast("dict[str, Any]", payload).get(REFUSAL_REASON) if isinstance(payload, dict) else ""
    return Refuse(reason if isinstance(reason, str) else "", payload)


def _read_file(number: int, part: types.Part) -> Attachment | ArtifactFile:
    if (blob := part.inline_data) is not None:
        return make_attachment(number, blob.display_name, blob.mime_type, blob.data)
    return ArtifactFile((part.file_data and part.file_data.file_uri) or "")


def _read_result(response: types.FunctionResponse) -> CallResult:
    if not response.id:
        raise UsageError("newMessage: a functionResponse needs the id of its call")
    return CallResult(response.id, response.response or {}, response.will_continue)


def session_to_json(
    record: SessionInfo, stored: Iterable[StoredEvent], root_agent_name: str, *, with_app_state: bool
) -> dict[str, Any]:
    """Write a session as ADK does; the state of the app is for operators only."""
    own = record.state if with_app_state else without_app_state(record.state)
    name, state = record.name, to_client_json(own)
    session = Session(
        id=name.id, app_name=name.app_name, user_id=name.user_id, state=state, last_update_time=record.updated_at
    )
    return _to_public_json(session) | {"events": stored_to_json(stored, root_agent_name, with_app_state=with_app_state)}


def stored_to_json(
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


def without_artifacts(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Split an event with parts and new artifacts in two, as ADK's stream does for its page."""
    if not (event.get("content", {}).get("parts") and event["actions"].get("artifactDelta")):
        return [event]
    parts = event | {"actions": event["actions"] | {"artifactDelta": {}}}
    return [parts, {name: value for name, value in event.items() if name != "content"}]


async def app_info(app_name: str, root_agent: object) -> dict[str, Any]:
    """Describe an app, its agents and their tools as ADK does. Raise `UsageError` if the root is not an `LlmAgent`."""
    if not isinstance(root_agent, LlmAgent):
        raise UsageError("Root agent is not an LlmAgent")
    from google.adk.utils.agent_info import get_agents_dict  # imported in 13 ms, and few clients ask

    agents = await get_agents_dict(root_agent)
    return {
        "name": app_name,
        "rootAgentName": root_agent.name,
        "description": root_agent.description,
        "language": "python",
        "isComputerUse": False,
        "agents": {name: _to_public_json(agent) for name, agent in agents.items()},
    }


async def save_artifact(
    service: SqlArtifactService,
    name: SessionId,
    filename: str,
    part: Mapping[str, Any],
    metadata: dict[str, Any] | None,
) -> dict[str, Any]:
    """Save an artifact and write its metadata as ADK does. Raise `UsageError` if it is refused.

    An address elsewhere is refused: the model's server would fetch it.
    """
    try:
        file = types.Part.model_validate(part)
        if file.file_data and not artifact_util.is_artifact_ref(file):
            raise UsageError("artifact: send the file itself as inlineData; of addresses, only artifact:// is accepted")
        version = await service.save_artifact(
            **_place(name), filename=filename, artifact=file, custom_metadata=metadata
        )
    except (InputValidationError, ValidationError) as error:
        message = str(error) if isinstance(error, InputValidationError) else "artifact: this is not a Part of genai"
        raise UsageError(message) from error
    return next(one for one in await artifact_metadata(service, name, filename) if one["version"] == version)


async def artifact_metadata(service: SqlArtifactService, name: SessionId, filename: str) -> list[dict[str, Any]]:
    """Write the metadata of an artifact's versions as ADK does; none for a name that no artifact can have."""
    try:
        found = await service.list_artifact_versions(**_place(name), filename=filename)
    except InputValidationError:
        return []
    return [_to_public_json(version) for version in found]


async def load_artifact(
    service: SqlArtifactService, name: SessionId, filename: str, version: int | None
) -> dict[str, Any] | None:
    """Write an artifact as ADK does, or return None if there is none or its reference does not resolve."""
    try:
        part = await service.load_artifact(**_place(name), filename=filename, version=version)
    except InputValidationError:
        return None
    return None if part is None else _to_public_json(part)


def _place(name: SessionId) -> dict[str, str]:
    return {"app_name": name.app_name, "user_id": name.user_id, "session_id": name.id}


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


def dev_ui_folder() -> Path | None:
    """Return the folder of ADK's built dev UI; None if this ADK has none."""
    spec = importlib.util.find_spec("google.adk")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "cli" / "browser"
        if (folder / "index.html").is_file():
            return folder
    return None
