"""Request a credential where ADK does not: for a tool that runs again after an answer, and asks again.

ADK makes the request after a model's call of a tool. A tool that runs again, because it was approved or because its
credential came, may need a credential as well: the access was denied meanwhile, or the code was used up.
"""

import uuid
from collections.abc import Mapping

from google.adk.auth.auth_tool import AuthConfig, AuthToolArguments
from google.adk.events import Event
from google.genai import types
from msgspec import Struct

from lango.adk.run.turn_state import TurnState
from lango.store.codec.records import CREDENTIAL_CALL


class UnmadeRequest(Struct, frozen=True):
    """A request of a tool that ADK did not make."""

    call_id: str
    """The tool's call."""
    config: AuthConfig
    event: Event
    """The tool's result."""


def note_requests(state: TurnState, event: Event) -> None:
    """Note which credentials tools asked for, and for which of them ADK made a request: it does so first."""
    if event.partial:
        return
    for call in event.get_function_calls():
        if call.name == CREDENTIAL_CALL:
            arguments: Mapping[str, object] = call.args or {}
            state.requested_for.add(str(arguments.get("functionCallId") or arguments.get("function_call_id")))
            state.requested_keys.add(_credential_key(arguments))
    for call_id, config in event.actions.requested_auth_configs.items():
        if call_id not in state.requested_for and (config.credential_key or "") not in state.requested_keys:
            state.unmade_requests.append(UnmadeRequest(call_id, config, event))
            state.requested_for.add(call_id)


def request_event(unmade: UnmadeRequest) -> Event:
    """Build the event that requests a credential, as ADK builds it."""
    arguments = AuthToolArguments(function_call_id=unmade.call_id, auth_config=unmade.config)
    call = types.FunctionCall(
        id=f"adk-{uuid.uuid4()}",
        name=CREDENTIAL_CALL,
        args=arguments.model_dump(mode="json", exclude_none=True, by_alias=True),
    )
    result = unmade.event
    return Event(
        invocation_id=result.invocation_id,
        author=result.author,
        branch=result.branch,
        isolation_scope=result.isolation_scope,
        content=types.Content(role="model", parts=[types.Part(function_call=call)]),
        long_running_tool_ids={call.id or ""},
    )


def _credential_key(arguments: Mapping[str, object]) -> str:
    config = arguments.get("authConfig")
    return str(config.get("credentialKey") or "") if isinstance(config, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
