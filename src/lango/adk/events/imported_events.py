"""Check the events of an import: what they bring is a conversation, and nothing that ADK would act upon."""

from typing import Any, cast

from google.adk.events import Event
from google.genai import types

from lango.adk.events.events_to_rows import DEFAULT_AGENT_NAME, event_to_entry
from lango.adk.events.rows_to_events import stored_to_events
from lango.errors import InvalidExport
from lango.messages import MAX_PARTS, RESERVED_PREFIX, Message
from lango.sessions import REQUEST_CALLS, StoredEvent
from lango.store.artifacts.references import SCHEME


def check_imported(stored: StoredEvent) -> int:
    """Check that an event can be converted to one of ADK, and return its tokens. Raise `InvalidExport`.

    The requests of ADK that a conversation holds are kept, and no client can answer them; calls have the names and
    arguments that the row shows, and files have no addresses but those of artifacts.
    """
    _check_part_count(stored)
    [event] = stored_to_events([stored], DEFAULT_AGENT_NAME)
    if stored.message is not None:
        _check_calls(stored, stored.message, event)
    _check_addresses(event)
    return event_to_entry(event).tokens


def _check_part_count(stored: StoredEvent) -> None:
    layout: list[Any] = (stored.extra or {}).get("parts") or []
    results: list[Any] = [cast("dict[str, Any]", item).get("result") for item in layout if isinstance(item, dict)]
    inner = [cast("dict[str, Any]", result).get("parts") for result in results if isinstance(result, dict)]
    calls = len(stored.message.tool_calls) if stored.message else 0
    if max(calls, len(layout) + sum(len(parts or ()) for parts in inner)) > MAX_PARTS:
        raise InvalidExport(f"a message has more than {MAX_PARTS} parts")


def _check_calls(stored: StoredEvent, message: Message, event: Event) -> None:
    """Check the names of calls and results, and that the parts of the event do not show others than the row."""
    of_client = stored.client_call_ids
    for call in message.tool_calls:
        if call.name.startswith(RESERVED_PREFIX) and (call.name not in REQUEST_CALLS or call.id in of_client):
            raise InvalidExport(f"tool_calls: the name {call.name!r} is reserved by ADK")
    shown = [made for part in _parts(event) for made in (part.function_call, part.function_response) if made]
    if len(shown) > len(message.tool_calls):
        raise InvalidExport("extra.parts: a call or result is missing from tool_calls")
    for made, call in zip(shown, message.tool_calls, strict=False):
        value = (made.args, call.input) if isinstance(made, types.FunctionCall) else (made.response, call.output)
        if (made.name or "") != call.name or (call.id and made.id != call.id) or value[0] != value[1]:
            raise InvalidExport("extra.parts: a call or result differs from the one in tool_calls")


def _check_addresses(event: Event) -> None:
    """Refuse addresses of files that `lango.store.transfer.import_claims` did not find, as in another spelling."""
    files = [part.file_data for part in _parts(event)]
    results = [part.function_response for part in _parts(event)]
    files += [cast("Any", piece).file_data for result in results if result for piece in result.parts or ()]
    if any(file and file.file_uri and not file.file_uri.startswith(SCHEME) for file in files):
        raise InvalidExport("extra.parts: files that are only a URL cannot be imported")


def _parts(event: Event) -> list[types.Part]:
    return (event.content and event.content.parts) or []
