"""Add, list, change, pause, run and delete the schedules of the caller."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query
from msgspec import Struct
from pydantic import ConfigDict, Field

from lango.runtime.submissions.schedules import ListedSchedule, ScheduledRun
from lango.schedules import ScheduleSpec
from lango.schedules.spec import FIELDS, MAX_TIMES, Missed, Overlap, SessionMode, find_zone, parse_time
from lango.server.context import CurrentUser
from lango.server.errors import not_found
from lango.server.schemas import COMMON_ERRORS, WHOLE_NUMBER, IdempotencyKey, RequestBody, error_responses
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1/schedules", tags=["schedules"], responses=COMMON_ERRORS)

_REFUSED = error_responses({422: "The schedule is invalid: the message names the field, and nothing is stored."})
_ID_CHARACTERS = 12
_TIMES = ("start_at", "end_at")

ScheduleIdPath = Annotated[str, Path(pattern="^[0-9A-Za-z-]{1,64}$", examples=["0f3a9c1be2d4"])]
_Time = Annotated[str, Field(max_length=40)]
_Seconds = Annotated[int, Field(ge=0, le=366 * 86_400), WHOLE_NUMBER]


class _ScheduleFields(RequestBody):
    cron: Annotated[str, Field(max_length=500)] | None = None
    """Five fields, or `@daily` and the like."""
    every_s: _Seconds | None = None
    """Seconds between two slots."""
    times: Annotated[list[_Time], Field(max_length=MAX_TIMES)] | None = None
    """The slots themselves, in ISO 8601; in the time zone if they have no offset."""
    timezone: Annotated[str, Field(max_length=100)] | None = None
    """An IANA name; UTC by default."""
    start_at: _Time | None = None
    """No slot is before it; empty removes it."""
    end_at: _Time | None = None
    """No slot is after it; empty removes it."""
    jitter_s: _Seconds | None = None
    """Each slot is delayed by up to so many seconds."""
    missed: Missed | None = None
    """Which missed slots run later: none, the newest (by default), or the newest `max_missed`."""
    max_missed: _Seconds | None = None
    overlap: Overlap | None = None
    """What happens if the last run is still running: the slot waits (by default), is skipped, or stops it."""
    session: SessionMode | None = None
    """Whether all runs share a session (by default), each has one, or those of a day share one."""
    session_id: Annotated[str, Field(max_length=512)] | None = None
    """An existing session for all runs."""

    def as_changes(self, timezone: str) -> dict[str, Any]:
        """Return the fields that are set, with times in seconds since 1970."""
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        zone = find_zone(given.get("timezone", timezone))
        times = {name: given[name] for name in _TIMES if name in given}
        return given | {name: parse_time(text, zone, name) if text else None for name, text in times.items()}


class ScheduleChanges(_ScheduleFields):
    """Fields of a schedule; what is left out, or null, stays. Other times hold from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "Good morning! It is {weekday}."}]})

    name: Annotated[str, Field(max_length=200)] | None = None
    message: Annotated[str, Field(max_length=20_000)] | None = None


class NewSchedule(_ScheduleFields):
    """A schedule to add: one of `cron`, `every_s` and `times` says when it runs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "news",
                    "message": "Sum up the news of {date}.",
                    "cron": "30 7 * * 1-5",
                    "timezone": "Europe/Berlin",
                }
            ]
        }
    )

    name: Annotated[str, Field(max_length=200)]
    message: Annotated[str, Field(max_length=20_000)]
    """Sent to the agent at each slot; fields in braces are filled in."""


class ScheduleList(Struct, frozen=True):
    """The schedules of the caller, the oldest first."""

    schedules: Sequence[ListedSchedule]
    fields: Sequence[str] = FIELDS
    """What a message may name in braces."""


class ScheduleDetails(Struct, frozen=True):
    """A schedule with what became of its newest slots."""

    schedule: ListedSchedule
    runs: Sequence[ScheduledRun]
    """The newest first."""


@router.get("")
async def list_schedules(user: CurrentUser) -> ScheduleList:
    """List the schedules of the caller for this agent, with their next ten times."""
    return ScheduleList(await user.runtime.schedules.list(user_id=user.id))


@router.post("", responses=_REFUSED)
async def add_schedule(schedule: NewSchedule, user: CurrentUser, key: IdempotencyKey = None) -> ListedSchedule:
    """Add a schedule. The tokens of its turns count as those of the caller's key.

    The same Idempotency-Key again returns the schedule that was added before.
    """
    spec = ScheduleSpec(**schedule.as_changes("UTC"))
    return await user.runtime.schedules.add(
        spec,
        user_id=user.id,
        quota_id=user.caller.quota.id,
        tokens_per_day=user.caller.quota.tokens_per_day,
        id=hashlib.sha256(f"{user.id}\0{key}".encode()).hexdigest()[:_ID_CHARACTERS] if key else None,
    )


@router.get("/{schedule_id}")
async def read_schedule(
    schedule_id: ScheduleIdPath, user: CurrentUser, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> ScheduleDetails:
    """Read a schedule, its next ten times, and what became of its newest slots."""
    found = await user.runtime.schedules.get(schedule_id, user_id=user.id)
    runs = await user.runtime.schedules.runs(schedule_id, user_id=user.id, limit=limit)
    return ScheduleDetails(found, runs)


@router.patch("/{schedule_id}", responses=_REFUSED)
async def change_schedule(schedule_id: ScheduleIdPath, changes: ScheduleChanges, user: CurrentUser) -> ListedSchedule:
    """Change a schedule. One of `cron`, `every_s` and `times` replaces the others."""
    stored = await user.runtime.schedules.get(schedule_id, user_id=user.id)
    given = changes.as_changes(stored.spec.timezone)
    return await user.runtime.schedules.change(schedule_id, given, user_id=user.id)


@router.post("/{schedule_id}/pause")
async def pause_schedule(schedule_id: ScheduleIdPath, user: CurrentUser) -> ListedSchedule:
    """Pause a schedule: no slot runs until it is resumed. A run under way continues."""
    return await user.runtime.schedules.pause(schedule_id, user_id=user.id)


@router.post("/{schedule_id}/resume")
async def resume_schedule(schedule_id: ScheduleIdPath, user: CurrentUser) -> ListedSchedule:
    """Resume a schedule with its next slot; those that passed during the pause do not run."""
    return await user.runtime.schedules.resume(schedule_id, user_id=user.id)


@router.post("/{schedule_id}/run")
async def run_schedule(schedule_id: ScheduleIdPath, user: CurrentUser) -> ListedSchedule:
    """Run a schedule now, also a paused one; its slots stay as they are. The run is in its history a moment later."""
    await user.check_token_quota()
    return await user.runtime.schedules.run_now(schedule_id, user_id=user.id)


@router.delete("/{schedule_id}", status_code=204)
async def delete_schedule(schedule_id: ScheduleIdPath, user: CurrentUser) -> None:
    """Delete a schedule and its history. Its sessions stay, and a run under way continues."""
    if not await user.runtime.schedules.delete(schedule_id, user_id=user.id):
        raise not_found(f"there is no schedule {schedule_id!r}")
