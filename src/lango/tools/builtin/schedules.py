"""The tool with which a model adds, lists and deletes schedules of its user."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from lango.errors import ScheduleNotFound, ScheduleRefused, ToolError
from lango.schedules import ScheduleSpec, parse_duration_s, parse_time
from lango.schedules.spec import find_zone
from lango.tools.tool import Tool, ToolContext, tool


class ScheduleAccess:
    """What the tool asks the store for: the schedules of the user whose turn runs."""

    def __init__(
        self,
        add: Callable[[ScheduleSpec, ToolContext], Awaitable[dict[str, Any]]],
        list_all: Callable[[ToolContext], Awaitable[list[dict[str, Any]]]],
        delete: Callable[[str, ToolContext], Awaitable[bool]],
    ) -> None:
        self.add = add
        self.list_all = list_all
        self.delete = delete


def schedule_tool(access: ScheduleAccess) -> Tool:
    """Return the tool `schedule`."""

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
            message: What you are told at each time; {date}, {time} and {weekday} are filled in.
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
                    return {"schedules": await access.list_all(context)}
                case "delete":
                    if not await access.delete(id, context):
                        raise ToolError(f"there is no schedule {id!r}: use the action list")
                    return {"deleted": id}
                case "add":
                    zone = find_zone(timezone)
                    spec = ScheduleSpec(
                        name,
                        message,
                        cron=cron,
                        every_s=parse_duration_s(every, "every") if every else 0,
                        times=times or (),
                        timezone=timezone,
                        end_at=parse_time(end, zone, "end") if end else None,
                    )
                    return await access.add(spec, context)
        except (ScheduleRefused, ScheduleNotFound) as error:
            raise ToolError(str(error)) from error

    return schedule
