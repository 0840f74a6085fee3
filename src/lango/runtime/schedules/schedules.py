"""Add, list, change and delete the schedules of users, and show what became of their slots."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from lango.errors import ScheduleRefused
from lango.json_values import convert
from lango.schedules import ScheduleSpec, checked_spec
from lango.sessions import check_id
from lango.store import Store, schedules
from lango.store.schedules import KEPT_RUNS, ScheduleId, StoredRun, StoredSchedule
from lango.store.turns.turn_row import TurnResult
from lango.turns.running_turn import RunningTurn

_NEXT_TIMES = 10
ID_CHARACTERS = 12


class ListedSchedule(Struct, frozen=True):
    """A schedule of a user."""

    id: str
    app: str
    user: str
    spec: ScheduleSpec
    state: str
    """`active`, `paused`, or `ended`: it has no slot left."""
    created_at: float
    next_times: Sequence[str]
    """When its next slots are due, in its time zone."""


class ScheduledRun(Struct, frozen=True):
    """What became of a slot of a schedule, or of several that were missed."""

    slot_at: float
    outcome: str
    """`missed`, `skipped`, `refused`, or how its turn stands: `queued`, `running`, `done`, `failed`, ...; `deleted` if
    its session was."""
    reason: str
    manual: bool
    """A person wanted the run at this time; it is no slot."""
    recorded_at: float
    session_id: str | None = None
    turn: int | None = None
    last_slot_at: float | None = None
    """The last one of several slots that were missed."""
    slots: int = 1
    """How many slots these are; 1,000 or more if it is 1,000."""


class Schedules:
    """The schedules of the users of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name
        self._on_start: list[Callable[[RunningTurn], None]] = []

    def call_for_started(self, callback: Callable[[RunningTurn], None]) -> None:
        """Call a function for each turn that a schedule starts in this process."""
        self._on_start.append(callback)

    def notify_started(self, running: RunningTurn) -> None:
        """Call the functions that wait for turns of schedules."""
        for callback in self._on_start:
            callback(running)

    async def add(
        self,
        spec: ScheduleSpec,
        *,
        user_id: str = "user",
        quota_id: str | None = None,
        tokens_per_day: int | None = None,
        id: str | None = None,
    ) -> ListedSchedule:
        """Add a schedule; the same `id` again returns the one that was added before.

        The tokens of its turns are counted against `quota_id`. Raise `ScheduleRefused` for one that cannot run.
        """
        name = self._name(id or new_schedule_id(), user_id)
        check_id("user_id", user_id)
        now = await self._store.read(schedules.database_now)
        spec = checked_spec(spec, now)
        stored = await self._store.write(schedules.add_schedule, name, spec, now, quota_id, tokens_per_day)
        self._store.notify_due()
        return listed(stored, now)

    async def list(self, *, user_id: str = "user") -> Sequence[ListedSchedule]:
        """List the schedules of a user, the oldest first."""
        now = await self._store.read(schedules.database_now)
        return [listed(one, now) for one in await self._store.read(schedules.list_schedules, self._app_name, user_id)]

    async def get(self, schedule_id: str, *, user_id: str = "user") -> ListedSchedule:
        """Return a schedule. Raise `ScheduleNotFound`."""
        return await self._shown(await self._store.read(schedules.get_schedule, self._name(schedule_id, user_id)))

    async def runs(self, schedule_id: str, *, user_id: str = "user", limit: int = KEPT_RUNS) -> Sequence[ScheduledRun]:
        """Read what became of the newest slots of a schedule, the newest first."""
        found = await self._store.read(schedules.read_runs, self._name(schedule_id, user_id), limit)
        return [_shown_run(one) for one in found]

    async def change(self, schedule_id: str, changes: Mapping[str, Any], *, user_id: str = "user") -> ListedSchedule:
        """Change fields of a schedule. Other times hold from now on. Raise `ScheduleRefused` or `ScheduleNotFound`."""
        name = self._name(schedule_id, user_id)
        stored = await self._store.read(schedules.get_schedule, name)
        spec = checked_spec(with_changes(stored.spec, changes), await self._store.read(schedules.database_now))
        return await self._shown(await self._store.write(schedules.change_schedule, name, spec))

    async def pause(self, schedule_id: str, *, user_id: str = "user") -> ListedSchedule:
        """Let no slot run until the schedule is resumed. Raise `ScheduleNotFound`."""
        return await self._set_paused(schedule_id, user_id, paused=True)

    async def resume(self, schedule_id: str, *, user_id: str = "user") -> ListedSchedule:
        """Continue with the next slot; those that passed do not run. Raise `ScheduleNotFound`."""
        return await self._set_paused(schedule_id, user_id, paused=False)

    async def run_now(self, schedule_id: str, *, user_id: str = "user") -> ListedSchedule:
        """Ask for a run now, which any process that runs the app starts; its slots stay as they are."""
        name = self._name(schedule_id, user_id)
        await self._store.read(schedules.get_schedule, name)
        return await self._shown(await self._store.write(schedules.request_run, name))

    async def delete(self, schedule_id: str, *, user_id: str = "user") -> bool:
        """Delete a schedule and its history; return False if there is none. Its sessions stay."""
        return await self._store.write(schedules.delete_schedule, self._name(schedule_id, user_id))

    def _name(self, schedule_id: str, user_id: str) -> ScheduleId:
        return ScheduleId(self._app_name, user_id, schedule_id)

    async def _set_paused(self, schedule_id: str, user_id: str, *, paused: bool) -> ListedSchedule:
        name = self._name(schedule_id, user_id)
        return await self._shown(await self._store.write(schedules.change_schedule, name, paused=paused))

    async def _shown(self, stored: StoredSchedule) -> ListedSchedule:
        self._store.notify_due()
        return listed(stored, await self._store.read(schedules.database_now))


def new_schedule_id() -> str:
    """Return a new id."""
    return uuid.uuid4().hex[:ID_CHARACTERS]


def listed(stored: StoredSchedule, now: float) -> ListedSchedule:
    """Return a stored schedule as it is shown, with its next times."""
    name, times = stored.name, stored.next_times(now, _NEXT_TIMES)
    return ListedSchedule(name.id, name.app_name, name.user_id, stored.spec, stored.state, stored.created_at, times)


def with_changes(spec: ScheduleSpec, changes: Mapping[str, Any]) -> ScheduleSpec:
    """Return a schedule with other fields; another kind of times replaces the former one, and None removes a bound."""
    fields = to_builtins(spec) | {"times": list(spec.times)}
    given = [name for name in ("cron", "every_s", "times") if changes.get(name)]
    if given:
        fields = {name: value for name, value in fields.items() if name not in ("cron", "every_s", "times")}
        if spec.every_s and changes.get("every_s") != spec.every_s and "start_at" not in changes:
            fields.pop("start_at", None)
    try:
        changed = fields | dict(changes)
        return convert({name: value for name, value in changed.items() if value is not None}, ScheduleSpec)
    except ValueError as error:
        raise ScheduleRefused(f"the schedule cannot be changed so: {error}") from error


def _shown_run(run: StoredRun) -> ScheduledRun:
    outcome, reason = run.outcome, run.reason
    if run.outcome == "started":
        result = TurnResult.decode(run.turn_result)
        outcome = run.turn_status or "deleted"
        if outcome == "done":
            outcome = result.status
        if result.error is not None:
            reason = f"{result.error.type}: {result.error.message}"
    return ScheduledRun(
        run.slot,
        outcome,
        reason,
        run.manual,
        run.recorded_at,
        run.session_id,
        run.turn,
        run.last_slot,
        run.slots,
    )
