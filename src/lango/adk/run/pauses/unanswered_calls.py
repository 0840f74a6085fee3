"""Request credentials and await calls that ADK leaves out: a tool that runs again asks, a workflow node calls.

ADK requests a credential after a model's call of a tool. A tool that runs again, because it was approved or because its
credential came, may need a credential, too: access may have been revoked, or the code used up.

A node makes a call with an event that has `long_running_tool_ids`. No tool runs for such a call. Its result comes from
outside, as that of a long-running tool, and is the node's answer.
"""

import time
import uuid
from collections.abc import Mapping

from google.adk.auth.auth_tool import AuthToolArguments
from google.adk.events import Event
from google.genai import types

from lango.adk.turn.turn_run import TurnRun
from lango.adk.turn.waits import MissingRequest
from lango.sessions import CREDENTIAL_CALL, REQUEST_PREFIX
from lango.store.sessions.open_calls import await_result


def note_calls(turn: TurnRun, event: Event) -> None:
    """Note the credentials that tools asked for, and the long-running calls of nodes.

    Of the credentials, ADK requests some itself, and first. The journal distinguishes the calls that a tool runs for.
    """
    if event.partial:
        return
    awaited = event.long_running_tool_ids or () if "/" in event.node_info.path else ()
    for call in event.get_function_calls():
        if call.name == CREDENTIAL_CALL:
            arguments: Mapping[str, object] = call.args or {}
            wanted_by = str(arguments.get("functionCallId") or arguments.get("function_call_id"))
            turn.waits.note_credential_request(wanted_by, _credential_key(arguments))
        elif call.id in awaited and not (call.name or "").startswith(REQUEST_PREFIX):
            turn.waits.note_node_call(call.id or "")
    for call_id, config in event.actions.requested_auth_configs.items():
        turn.waits.note_wanted_credential(call_id, config, event)


def request_event(missing: MissingRequest) -> Event:
    """Build the event that requests a credential, as ADK builds it."""
    arguments = AuthToolArguments(function_call_id=missing.call_id, auth_config=missing.config)
    call = types.FunctionCall(
        id=f"adk-{uuid.uuid4()}",
        name=CREDENTIAL_CALL,
        args=arguments.model_dump(mode="json", exclude_none=True, by_alias=True),
    )
    result = missing.event
    return Event(
        invocation_id=result.invocation_id,
        author=result.author,
        branch=result.branch,
        isolation_scope=result.isolation_scope,
        content=types.Content(role="model", parts=[types.Part(function_call=call)]),
        long_running_tool_ids={call.id or ""},
    )


async def await_node_calls(turn: TurnRun) -> None:
    """Await the results of noted calls that no tool ran for, and no client runs."""
    for call_id in sorted(turn.waits.node_calls - turn.waits.client_calls):
        if await turn.record.newest_entry(call_id) is None:
            key, now = turn.record.lease.session_key, time.time()
            kind = await turn.record.store.write(await_result, key, call_id, now)
            turn.waits.note_kind(kind or "long_running_result")


def _credential_key(arguments: Mapping[str, object]) -> str:
    config = arguments.get("authConfig")
    return str(config.get("credentialKey") or "") if isinstance(config, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
