"""Add, list, change and delete the schedules of users, run the slots that are due, and show what became of them.

Every replica runs due slots; there is no scheduler process. A slot is submitted like any message, with itself as the
idempotency key, and then the schedule moves on. A process that dies between the two leaves a claim that runs out; the
next process submits the slot again, gets the same turn, and moves the schedule on. The clock of the database decides
what is due.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.errors import AgentFailed, LangoError, ScheduleRefused, Stopping, StoreError, StoreUnavailable, TurnRunning
from lango.json_values import convert
from lango.schedules import ScheduleSpec, checked_spec, due_at, key_of, next_slot, session_of, text_of
from lango.schedules.slots import settle
from lango.sessions import SessionId, check_id
from lango.store import Store, Turn, schedules
from lango.store.engine.database import Row
from lango.store.engine.outages import wait_for_database
from lango.store.schedules import (
    KEPT_RUNS,
    OpenRun,
    Progress,
    RunRow,
    ScheduleId,
    StoredSchedule,
    claim_due,
    find_open_run,
    record,
    release_claims,
)
from lango.store.sessions.sessions import find_session
from lango.store.turns.turns import TurnResult, request_cancel
from lango.store.waits.recovery import stop_waiting
from lango.submissions import SubmittedMessage, TurnRequest
from lango.turns.running_turn import RunningTurn

_NEXT_TIMES = 10
_ID_CHARACTERS = 12


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
    """A person wanted the run at this time, which is not a slot."""
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
        name = self._name(id or uuid.uuid4().hex[:_ID_CHARACTERS], user_id)
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


def _shown_run(row: Row) -> ScheduledRun:
    turn_status, turn_end, outcome, reason, manual, slot, *others = row
    if outcome == "started":
        result = TurnResult.decode(turn_end)
        outcome = turn_status or "deleted"  # without a status there is no turn, or its session was deleted
        if outcome == "done":
            outcome = result.status
        if result.error is not None:
            reason = f"{result.error.type}: {result.error.message}"
    return ScheduledRun(slot, outcome, reason, bool(manual), *others)


# -- the runs of those that are due ------------------------------------------------------------------------------------

_AGAIN_S = 1.0
"""When a slot that waits for the end of the last run is tried again."""
_LEASE_S = 5.0
"""How late the slots are that a process had claimed when it died. If a live process takes longer, another one submits
the slot too, and gets the same turn."""
_AT_ONCE = 16
_log = logging.getLogger("lango.runtime")

Accept = Callable[[SessionId, SubmittedMessage, str | None, int | None], Awaitable[RunningTurn]]
"""Stores a message and runs its turn; the last arguments are the quota and its tokens per day."""


class DueSchedules:
    """Runs the due schedules of one app, in one process."""

    def __init__(self, store: Store, app_name: str, accept: Accept, on_start: Callable[[RunningTurn], None]) -> None:
        """`on_start` is called with each turn that a schedule started here."""
        self._store = store
        self._app_name = app_name
        self._accept = accept
        self._on_start = on_start
        self._stopping = False

    async def run_due(self) -> bool:
        """Run due schedules; return whether this process could claim any."""
        if self._stopping:
            return False
        claimed = await self._store.write(claim_due, self._app_name, _AT_ONCE, _LEASE_S)
        left: list[ScheduleId] = []

        async def run_one(schedule: StoredSchedule) -> None:
            try:
                with wait_for_database("short"):
                    await self._run(schedule, claimed.now)
            except StoreError as error:  # the claim runs out, and the slot is submitted again
                self._store.outages.warn(f"schedule {schedule.name.id} could not run yet: {error}")
            except Stopping:
                self._stopping = True
                left.append(schedule.name)
            except Exception:  # noqa: BLE001 - the other schedules still run
                _log.exception("schedule %s could not run", schedule.name.id)

        await asyncio.gather(*(run_one(one) for one in claimed.schedules))
        if left:
            await self._store.write(release_claims, left, claimed.until)
        return bool(claimed.schedules)

    async def _run(self, schedule: StoredSchedule, now: float) -> None:
        """Run what a person asked for, then the slots that are due, until the schedule waits or has changed."""
        while True:
            moved = await self._store.write(record, schedule, await self._step(schedule, now))
            if moved is None or moved.check_at is None or moved.check_at > now:
                return
            schedule = moved

    async def _step(self, schedule: StoredSchedule, now: float) -> Progress:
        """Run one slot, if one is due, and return how the schedule moves on."""
        spec, id_ = schedule.spec, schedule.name.id
        unchanged = Progress(schedule.next_slot, schedule.seen_slot, self._check_at(schedule, schedule.next_slot))
        if (wanted := schedule.run_requested_at) is not None:
            attempt = await self._attempt(schedule, wanted, manual=True)
            if attempt is None:
                return replace(unchanged, check_at=now + _AGAIN_S)
            return replace(unchanged, runs=attempt, handled_request=wanted)
        if schedule.paused or schedule.next_slot is None:
            return unchanged
        settled = settle(id_, spec, schedule.next_slot, schedule.seen_slot, now)
        rows: list[RunRow] = []
        if missed := settled.missed:
            reason = "no process ran the app at that time"
            rows.append(RunRow(missed.first, "missed", reason, last_slot=missed.last, slots=missed.count))
        slot = settled.next_slot
        if slot is None or settled.seen_slot is None or slot > settled.seen_slot or due_at(id_, spec, slot) > now:
            return Progress(slot, settled.seen_slot, self._check_at(schedule, slot), rows)
        attempt = await self._attempt(schedule, slot)
        if attempt is None:
            return Progress(slot, settled.seen_slot, now + _AGAIN_S, rows)
        following = next_slot(spec, slot)
        return Progress(following, settled.seen_slot, self._check_at(schedule, following), [*rows, *attempt])

    @staticmethod
    def _check_at(schedule: StoredSchedule, slot: float | None) -> float | None:
        return None if schedule.paused or slot is None else due_at(schedule.name.id, schedule.spec, slot)

    async def _attempt(self, schedule: StoredSchedule, slot: float, *, manual: bool = False) -> list[RunRow] | None:
        """Submit a slot; return what became of it, or None if it waits for the end of the last run."""
        key = key_of(schedule.name.id, slot, manual=manual)
        open_run = await self._store.read(find_open_run, schedule, slot, manual=manual)
        if open_run is True:  # by a process that had read the schedule before it was changed
            return []
        if open_run is not False:
            match schedule.spec.overlap:
                case "queue":
                    return None
                case "skip":
                    return [RunRow(slot, "skipped", "the run before it still went on", manual)]
                case "cancel":
                    await self._stop(open_run)
        try:
            running = await self._submit(schedule, slot, key)
        except (StoreUnavailable, Stopping):
            raise
        except LangoError as error:
            if isinstance(error, TurnRunning) and schedule.spec.overlap == "queue":
                return None
            return [RunRow(slot, "refused", f"{type(error).__name__}: {error}", manual)]
        self._on_start(running)
        session_id = running.session.name.id
        return [RunRow(slot, "started", "", manual, session_id, running.turn.turn, key)]

    async def _submit(self, schedule: StoredSchedule, slot: float, key: str) -> RunningTurn:
        spec, name = schedule.spec, schedule.name
        session = SessionId(name.app_name, name.user_id, session_of(name.id, spec, slot))
        if spec.session_id and await self._store.read(find_session, session) is None:
            raise ScheduleRefused(f"the session {spec.session_id!r} was deleted: choose another one for the schedule")
        # the digest is that of the slot: if its message is changed before a retry, it is still the same slot
        request = TurnRequest(idempotency_key=key, digest=key)
        message = SubmittedMessage(text_of(spec, slot), request=request)
        try:
            return await self._accept(session, message, schedule.quota_id, schedule.tokens_per_day)
        except LangoError:
            raise
        except Exception as error:  # one slot that fails so must not stop the schedule
            _log.exception("slot %s of schedule %s could not run", slot, name.id)
            raise AgentFailed(f"internal error: {type(error).__name__}") from error

    async def _stop(self, run: OpenRun) -> None:
        """Stop the last run, in any process."""
        if run.status == "queued":
            await self._store.withdraw_turn(Turn(run.session_key, run.turn))
        elif run.status == "running":
            await self._store.write(request_cancel, run.session_key, only=run.turn)
        else:
            await self._store.write(stop_waiting, run.session_key, time.time())
