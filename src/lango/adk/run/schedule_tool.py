"""The tool with which a model adds, lists and deletes schedules of its user."""

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field

from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.errors import ScheduleNotFound, ScheduleRefused, ToolError
from lango.schedules import ScheduleSpec, checked_spec, spec_from_texts
from lango.store import schedules
from lango.store.schedules import ScheduleId, StoredSchedule
from lango.tools import ToolContext
from lango.tools.tool import tool

_ID_CHARACTERS = 12
_SHOWN_TIMES = 3


@tool(level="write", effect="idempotent")
async def schedule(
    context: ToolContext,
    action: Literal["add", "list", "delete"],
    name: Annotated[str, Field(max_length=200)] = "",
    message: Annotated[str, Field(max_length=20_000)] = "",
    cron: Annotated[str, Field(max_length=500)] = "",
    every: Annotated[str, Field(max_length=40)] = "",
    times: Annotated[list[str] | None, Field(max_length=100)] = None,
    timezone: Annotated[str, Field(max_length=100)] = "UTC",
    end: Annotated[str, Field(max_length=40)] = "",
    id: Annotated[str, Field(max_length=64)] = "",
) -> dict[str, Any]:
    """Add, list or delete schedules of the user: messages that are sent to you at certain times.

    Args:
        action: add needs a name, a message and one of cron, every and times; delete needs an id.
        name: What the schedule is called.
        message: The message that you get at each time; {date}, {time} and {weekday} are filled in.
        cron: Five fields such as "30 7 * * 1-5", or @daily, @hourly, @weekly, @monthly.
        every: An interval such as 15m, 2h or 1d.
        times: Times such as 2026-03-01T07:30, for a reminder just one.
        timezone: The user's time zone, such as Europe/Berlin.
        end: No message is sent after this time.
        id: The schedule to delete, as list shows it.
    """
    try:
        match action:
            case "list":
                return {"schedules": await _list()}
            case "delete":
                if not await _delete(id):
                    raise ToolError(f"there is no schedule {id!r}: use the action list")
                return {"deleted": id}
            case "add":
                texts = {"every": every, "timezone": timezone, "end": end}
                return await _add(spec_from_texts(name, message, cron=cron, times=times or (), **texts), context)
    except (ScheduleRefused, ScheduleNotFound) as error:
        raise ToolError(str(error)) from error


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
    store.notify_due()
    return _shown(stored, now)


async def _list() -> list[dict[str, Any]]:
    store, session = _turn().record.store, _turn().session
    now = await store.read(schedules.database_now)
    found = await store.read(schedules.list_schedules, session.app_name, session.user_id)
    return [_shown(one, now) for one in found]


async def _delete(schedule_id: str) -> bool:
    store, session = _turn().record.store, _turn().session
    return await store.write(schedules.delete_schedule, ScheduleId(session.app_name, session.user_id, schedule_id))


def _shown(stored: StoredSchedule, now: float) -> dict[str, Any]:
    spec = stored.spec
    when = {"cron": spec.cron, "every_s": spec.every_s, "times": [*spec.times]}
    return {
        "id": stored.name.id,
        "name": spec.name,
        "message": spec.message,
        **{name: value for name, value in when.items() if value},
        "timezone": spec.timezone,
        "state": stored.state,
        "next_times": stored.next_times(now, _SHOWN_TIMES) if stored.state == "active" else [],
    }
