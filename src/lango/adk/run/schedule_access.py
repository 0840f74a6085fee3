"""Give the tool `schedule` the schedules of the user whose turn runs."""

import hashlib
from typing import Any

from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.errors import ToolError
from lango.schedules import ScheduleSpec, checked_spec, next_times
from lango.store import schedules
from lango.store.schedules import ScheduleId, StoredSchedule
from lango.tools import ToolContext
from lango.tools.builtin.schedules import ScheduleAccess

_ID_CHARACTERS = 12
_SHOWN_TIMES = 3


def _turn() -> TurnRun:
    turn = current_turn.get()
    if turn is None:
        raise ToolError("schedules can be used only in a turn of a Lango runtime")
    return turn


async def _add(spec: ScheduleSpec, context: ToolContext) -> dict[str, Any]:
    """Add a schedule, whose turns count against the quota of this turn. The same call again adds the same one."""
    turn = _turn()
    store, session = turn.record.store, turn.session
    id_ = hashlib.sha256(f"{session.user_id}\0{session.id}\0{context.call_id}".encode()).hexdigest()[:_ID_CHARACTERS]
    now = await store.read(schedules.database_now)
    stored = await store.write(
        schedules.add_schedule,
        ScheduleId(session.app_name, session.user_id, id_),
        checked_spec(spec, now),
        now,
        turn.input.quota_id,
        turn.input.tokens_per_day,
    )
    return _shown(stored, now)


async def _list(context: ToolContext) -> list[dict[str, Any]]:
    del context
    store, session = _turn().record.store, _turn().session
    now = await store.read(schedules.database_now)
    found = await store.read(schedules.list_schedules, session.app_name, session.user_id)
    return [_shown(one, now) for one in found]


async def _delete(schedule_id: str, context: ToolContext) -> bool:
    del context
    store, session = _turn().record.store, _turn().session
    return await store.write(schedules.delete_schedule, ScheduleId(session.app_name, session.user_id, schedule_id))


def _shown(stored: StoredSchedule, now: float) -> dict[str, Any]:
    spec = stored.spec
    when = {"cron": spec.cron, "every_s": spec.every_s, "times": [*spec.times]}
    state = "paused" if stored.paused else "ended" if stored.next_slot is None else "active"
    return {
        "id": stored.name.id,
        "name": spec.name,
        "message": spec.message,
        **{name: value for name, value in when.items() if value},
        "timezone": spec.timezone,
        "state": state,
        "next_times": next_times(stored.name.id, spec, now, _SHOWN_TIMES) if state == "active" else [],
    }


access_to_schedules = ScheduleAccess(_add, _list, _delete)
"""The schedules of the current turn's user."""
