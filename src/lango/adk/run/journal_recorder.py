"""Record the start and the result of each tool call in the tool journal."""

import time
from typing import TYPE_CHECKING, Any, cast

from google.genai import types

from lango.adk.run.turn_state import TurnState
from lango.errors import NotJson
from lango.store.sessions.sessions import check_epoch
from lango.store.turns import tool_journal
from lango.tools.results import to_result

if TYPE_CHECKING:
    from collections.abc import Iterable

_RECHECK_LEASE_AFTER_S = 5.0  # well before a turn is taken over for want of a heartbeat


async def record_start(state: TurnState, call_id: str) -> bool:
    """Journal that a tool begins; False: it began before.

    A process that stood still meanwhile may have lost the turn since: it asks again before the tool runs.
    """
    checked_at = time.monotonic()
    is_first = await state.store.write(
        tool_journal.record_start, state.turn.session_key, state.turn.epoch, call_id, time.time()
    )
    while time.monotonic() - checked_at > _RECHECK_LEASE_AFTER_S:
        checked_at = time.monotonic()
        await state.store.write(check_epoch, state.turn.session_key, state.turn.epoch)
    return is_first


def to_json_result(result: Any) -> dict[str, Any]:
    """Convert what a tool returned to a JSON object, or to an error if it cannot be JSON."""
    try:
        return to_result(result)
    except NotJson as error:
        return {"error": str(error)}


def holds_media(result: Any) -> bool:
    """Whether ADK will take parts with bytes out of a result: those have their own place in an event."""
    members: Iterable[Any] = [result]
    if isinstance(result, dict | list):
        members = cast("dict[str, Any]", result).values() if isinstance(result, dict) else cast("list[Any]", result)
    return any(isinstance(member, types.Part | types.FunctionResponse) for member in members)
