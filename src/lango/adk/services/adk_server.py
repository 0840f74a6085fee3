"""Read and write the JSON of ADK's own server, and find its dev UI."""

import importlib.util
import time
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from google.adk.auth.auth_credential import AuthCredentialTypes
from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types
from msgspec import Struct
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from lango.adk.services.message_parts import make_attachment
from lango.adk.services.rows_to_events import stored_to_events
from lango.errors import UsageError
from lango.messages import Attachment
from lango.store import SessionRecord, StoredEvent
from lango.store.codec.json_text import to_client_json
from lango.store.codec.records import CONFIRMATION_CALL
from lango.store.codec.rows import approval_subject

ADK_VERSION = version("google-adk")

_ADK_INTERNAL_PREFIX = "__adk_internal_"
_CREDENTIALS = {"rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential"}
_AUTH_TYPES = {name for kind in AuthCredentialTypes for name in (kind.value, kind.name, kind.name.lower())}


class ClientMessage(Struct, frozen=True):
    """A client's message: text and files, or answers to approval requests by the requests' ids."""

    text: str = ""
    files: tuple[Attachment, ...] = ()
    answers: tuple[tuple[str, bool], ...] = ()


def read_message(message: Mapping[str, Any]) -> ClientMessage:
    """Read a `Content` of genai. Raise `UsageError` if it is none, or has parts that a turn does not accept."""
    try:
        parts = types.Content.model_validate(message).parts or []
    except ValidationError as error:
        raise UsageError("newMessage: this is not a Content of genai") from error
    responses = [part.function_response for part in parts if part.function_response]
    if responses and len(responses) == len(parts) and all(response.name == CONFIRMATION_CALL for response in responses):
        answers = [(result.id or "", (result.response or {}).get("confirmed") is True) for result in responses]
        return ClientMessage(answers=tuple(answers))
    text = "".join(part.text or "" for part in parts)
    files = [part.inline_data for part in parts if part.inline_data]
    if not (text or files) or any(part.text is None and not part.inline_data for part in parts):
        raise UsageError("newMessage: send text, files as inlineData, or answers to adk_request_confirmation")
    attachments = [
        make_attachment(number, file.display_name, file.mime_type, file.data) for number, file in enumerate(files, 1)
    ]
    return ClientMessage(text, tuple(attachments))


def call_of_approval_request(stored: Iterable[StoredEvent], request_id: str) -> str | None:
    """Return the id of the call that an approval request is about; None if the request does not exist."""
    for row in stored:
        for call in row.message.tool_calls if row.message else ():
            if call.id == request_id and (subject := approval_subject(call)):
                return subject["id"]
    return None


def session_to_json(record: SessionRecord, stored: Iterable[StoredEvent], root_agent_name: str) -> dict[str, Any]:
    """Write a session as ADK does, without the state of the app, which users may not read."""
    own = {name: value for name, value in record.state.items() if not name.startswith("app:")}
    session = Session(
        id=record.name.id,
        app_name=record.name.app_name,
        user_id=record.name.user_id,
        state=to_client_json(own),
        last_update_time=record.updated_at,
    )
    return _to_public_json(session) | {"events": stored_to_json(stored, root_agent_name)}


def stored_to_json(stored: Iterable[StoredEvent], root_agent_name: str) -> list[dict[str, Any]]:
    """Write stored events as ADK does."""
    return [_to_public_json(event) for event in stored_to_events(stored, root_agent_name)]


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
    """Remove credentials and the internal fields of ADK."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if any(str(fields.get(name)) in _AUTH_TYPES for name in ("authType", "auth_type")):
            return {}
        return {
            name: _without_secrets(inner)
            for name, inner in fields.items()
            if name not in _CREDENTIALS and not name.startswith(_ADK_INTERNAL_PREFIX)
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
