"""Await the results of calls that a node of a workflow makes itself: an event with `long_running_tool_ids`.

No tool runs for such a call. Its result comes from outside, as that of a long-running tool, and is the node's answer.
"""

import time

from google.adk.events import Event

from lango.adk.run.pauses.credential_requests import note_requests
from lango.adk.run.turn_state import TurnState
from lango.store.tool_calls.long_running import await_result
from lango.store.tool_calls.tool_journal import read_journal_entry

_REQUEST_PREFIX = "adk_request_"  # these are awaited as requests to a person


def note_calls(state: TurnState, event: Event) -> None:
    """Note the credentials that tools asked for, and the long-running calls of nodes."""
    note_requests(state, event)
    _note_own_calls(state, event)


def _note_own_calls(state: TurnState, event: Event) -> None:
    """Note the long-running calls of nodes, those of agents included: only the journal has those of tools."""
    if event.partial or "/" not in event.node_info.path:
        return
    awaited = event.long_running_tool_ids or ()
    for call in event.get_function_calls():
        if call.id in awaited and not (call.name or "").startswith(_REQUEST_PREFIX):
            state.node_call_ids.add(call.id or "")


async def await_own_calls(state: TurnState) -> None:
    """Await the results of noted calls that no tool ran for, and no client runs."""
    for call_id in sorted(state.node_call_ids - state.client_calls):
        if await state.store.read(read_journal_entry, state.turn.session_key, call_id) is None:
            await state.store.write(await_result, state.turn.session_key, call_id, time.time())
            state.awaits_result = True
