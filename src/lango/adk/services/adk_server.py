"""What ADK's own server sends and is sent, as JSON: sessions, events, messages."""

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

from lango.adk.services.message_parts import file_of
from lango.adk.services.rows_to_events import stored_to_events
from lango.errors import UsageError
from lango.messages import Attachment
from lango.store import SessionRecord, Stored
from lango.store.codec.json_text import plain_json
from lango.store.codec.records import CONFIRMATION

ADK_VERSION = version("google-adk")

_INTERNAL = "__adk_internal_"
_CREDENTIALS = {"rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential"}
_AUTH_TYPES = {name for kind in AuthCredentialTypes for name in (kind.value, kind.name, kind.name.lower())}


class Said(Struct, frozen=True):
    """What a client's message says: text and files, or answers to questions for approval, by the ids of those."""

    text: str = ""
    files: tuple[Attachment, ...] = ()
    answers: tuple[tuple[str, bool], ...] = ()


def read_message(message: Mapping[str, Any]) -> Said:
    """Read genai's `Content`; raise `UsageError` where it is none, or says more than a turn can be asked."""
    try:
        parts = types.Content.model_validate(message).parts or []
    except ValidationError as error:
        raise UsageError("newMessage: this is not a Content of genai") from error
    responses = [part.function_response for part in parts if part.function_response]
    if responses and len(responses) == len(parts) and all(one.name == CONFIRMATION for one in responses):
        return Said(answers=tuple((one.id or "", (one.response or {}).get("confirmed") is True) for one in responses))
    text = "".join(part.text or "" for part in parts)
    files = [part.inline_data for part in parts if part.inline_data]
    if not (text or files) or any(part.text is None and not part.inline_data for part in parts):
        raise UsageError("newMessage: send text, files as inlineData, or answers to adk_request_confirmation")
    numbered = enumerate(files, 1)
    return Said(text, tuple(file_of(number, one.display_name, one.mime_type, one.data) for number, one in numbered))


def asked_about(stored: Iterable[Stored], question_id: str) -> str | None:
    """Return the id of the call that a question for approval is about."""
    for one in stored:
        for call in one.message.tool_calls if one.message else ():
            if call.id == question_id and call.name == CONFIRMATION and call.input:
                original: dict[str, Any] = call.input.get("originalFunctionCall") or {}
                return original.get("id")
    return None


def session_to_json(record: SessionRecord, stored: Iterable[Stored], root_agent_name: str) -> dict[str, Any]:
    """Show a session as ADK does; state of the whole app is nobody's to read."""
    own = {name: value for name, value in record.state.items() if not name.startswith("app:")}
    session = Session(
        id=record.name.id,
        app_name=record.name.app_name,
        user_id=record.name.user_id,
        state=plain_json(own),
        last_update_time=record.updated_at,
    )
    return _shown(session) | {"events": stored_to_json(stored, root_agent_name)}


def stored_to_json(stored: Iterable[Stored], root_agent_name: str) -> list[dict[str, Any]]:
    """Show stored events as ADK does."""
    return [_shown(event) for event in stored_to_events(stored, root_agent_name)]


def partial_event(text: str, author: str, invocation_id: str, *, thought: bool) -> dict[str, Any]:
    """Show a piece of an answer that is under way."""
    part = types.Part(text=text, thought=True if thought else None)
    return _shown(
        Event(
            id=str(uuid.uuid4()),
            invocation_id=invocation_id,
            author=author,
            content=types.Content(role="model", parts=[part]),
            partial=True,
            timestamp=time.time(),
        )
    )


def _shown(model: BaseModel) -> dict[str, Any]:
    try:
        shown = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (PydanticSerializationError, UnicodeError):  # it holds half a character, or bytes
        shown = plain_json(model.model_dump(mode="python", by_alias=True, exclude_none=True))
    return _public(shown)


def _public(value: Any) -> Any:
    """Leave out credentials, and what ADK notes for itself."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if any(str(fields.get(name)) in _AUTH_TYPES for name in ("authType", "auth_type")):
            return {}
        return {
            name: _public(inner)
            for name, inner in fields.items()
            if name not in _CREDENTIALS and not name.startswith(_INTERNAL)
        }
    if isinstance(value, list):
        return [_public(inner) for inner in cast("list[Any]", value)]
    return value


def dev_ui_folder() -> Path | None:
    """Return the folder of the built UI; None: this ADK comes without one."""
    spec = importlib.util.find_spec("google.adk")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "cli" / "browser"
        if (folder / "index.html").is_file():
            return folder
    return None
