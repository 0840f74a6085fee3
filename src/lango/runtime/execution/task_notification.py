"""Make the notifications of A2A: how a task stands, for a webhook that its client configured.

A task is a turn, named by its idempotency key, and the turns that continue it.
"""

from datetime import UTC, datetime
from typing import Any

from lango.runtime.webhooks import TASK_KEY_PREFIX, TASK_MEMBER
from lango.store import Store
from lango.store.turns.client_requests import find_key_of_session
from lango.store.turns.turns import read_turn
from lango.store.webhooks.deliveries import DueDelivery, read_turn_waits

_STATES = {"done": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELED"}
_FROM_ELSEWHERE = ("timer", "event", "long_running_result")
"""The kinds of waits that no message of the client answers."""


async def task_notification(store: Store, due: DueDelivery, task_id: str) -> dict[str, Any] | None:
    """Return the update of a task's status, or None if the turn that ended belongs to another task."""
    if not await _belongs_to(store, due, task_id):
        return None
    ended_at = datetime.fromtimestamp(due.ended_at or 0.0, UTC).isoformat().replace("+00:00", "Z")
    status = {"state": f"TASK_STATE_{await _state(store, due)}", "timestamp": ended_at}
    return {"statusUpdate": {"taskId": task_id, "contextId": due.session_id, "status": status}}


async def _belongs_to(store: Store, due: DueDelivery, task_id: str) -> bool:
    row = await store.read(read_turn, due.session_key, due.turn)
    if row is None or (row.client_request or {}).get(TASK_MEMBER) == task_id:
        return row is not None
    known = await store.read(find_key_of_session, due.session_key, f"{TASK_KEY_PREFIX}{task_id}")
    first = await store.read(read_turn, due.session_key, known.turn) if known else None
    return first is not None and first.invocation_id == row.invocation_id


async def _state(store: Store, due: DueDelivery) -> str:
    if due.event != "waiting":
        return _STATES[due.event]
    waits = await store.read(read_turn_waits, due.session_key, due.turn)
    kinds = {kind for _, kind in waits if kind not in _FROM_ELSEWHERE}
    if not kinds:
        return "WORKING"
    return "AUTH_REQUIRED" if kinds == {"credential"} else "INPUT_REQUIRED"
