"""Make the ids of a model's tool calls unique in their session, and replace names that ADK reserves."""

import re
import uuid
from collections.abc import Callable, Container, Iterable

from google.adk.models.llm_response import LlmResponse
from google.adk.sessions import Session
from google.genai import types

from lango.adk.turn.step import current_step
from lango.messages import RESERVED_PREFIX
from lango.sessions import INPUT_CALL
from lango.store.codec.records import is_address_safe

ADK_PREFIX = "adk-"
"""ADK hides ids that begin with it from custom models."""
_RANDOM = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{8,}$")
"""Matches the end of a randomly generated id: at least eight letters and digits, mixed."""

REFUSED_PREFIX = "refused_"


def unique_call_id(call_id: str, used_ids: set[str], *, has_all_calls: bool) -> str:
    """Return an id that no call of the session has, and add it to `used_ids`.

    A provider's id is kept if it cannot have been used before: it is not in `used_ids`, and either these are all of the
    session (`has_all_calls`) or the id was evidently generated at random. Some servers count from 0 in every answer.
    An id that is unsafe in an address is replaced, too: the call may wait for an answer of a client. Renaming an id is
    free, because every provider accepts any id back.
    """
    used_before = call_id in used_ids or not (has_all_calls or _RANDOM.search(call_id))
    if used_before or call_id.startswith(ADK_PREFIX) or not is_address_safe(call_id):
        # not call_<name>: the session may hold such an id outside of the window
        call_id = f"call_{uuid.uuid4().hex[:24]}"
    used_ids.add(call_id)
    return call_id


def make_call_ids_unique(calls: Iterable[types.FunctionCall], used_ids: Iterable[str], session: Session) -> set[str]:
    """Give a new id to each call of a response whose id the session or the turn may already have used.

    Return all ids that are used now. A request shows the calls of other agents as quoted text, or leaves them out: only
    the session has them all. ADK gives ids to calls that have none.
    """
    named, used = [call for call in calls if call.id], set(used_ids)
    if named:
        used.update(call.id or "" for event in session.events for call in event.get_function_calls())
    for call in named:
        call.id = unique_call_id(call.id or "", used, has_all_calls=current_step().load.has_all_calls)
    return used


def is_reserved_name(name: str | None) -> bool:
    """Whether ADK reserves a tool name."""
    return (name or "").startswith(RESERVED_PREFIX)


def allowed_name(name: str, offered: Container[str] = ()) -> str:
    """Return the name of a model's call, with a prefix if it is reserved: then no tool has it.

    Of the reserved names, only ADK's tool that asks the user for input may be among the `offered` tools.
    """
    if not is_reserved_name(name) or (name == INPUT_CALL and name in offered):
        return name
    return f"{REFUSED_PREFIX}{name}"


def rename_reserved_calls(response: LlmResponse, offered: Callable[[], Container[str]]) -> None:
    """Replace the reserved names among the calls of a response; `offered` returns the names of the agent's tools."""
    for part in (response.content and response.content.parts) or []:
        if part.function_call is not None and is_reserved_name(part.function_call.name):
            part.function_call.name = allowed_name(part.function_call.name or "", offered())
