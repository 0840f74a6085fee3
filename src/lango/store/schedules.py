"""Store schedules and what became of their slots, and let one process at a time run what is due.

A process claims due schedules by moving their `check_at` on. If it dies, they are due again when that has passed, and
the idempotency key of the slot finds the turn that it may have stored. `record` moves a schedule on to its next slot.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import astuple

from lango.errors import ScheduleNotFound, ScheduleRefused
from lango.json_values import convert
from lango.schedules import MAX_PER_USER, ScheduleSpec, due_at, key_of, next_slot, next_times, session_of
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import LockingRead, Operation, Row

Outcome = Literal["started", "missed", "skipped", "refused"]

KEPT_RUNS = 100
"""Rows of the history of a schedule."""

_COLUMNS = """
app_name, user_id, id, spec, paused, revision, created_at, quota_id, tokens_per_day, next_slot, seen_slot,
run_requested_at, check_at, last_session, last_key
"""
_OF = "app_name = $1 AND user_id = $2 AND id = $3"
_NOW = "SELECT now FROM database_clock"
_COUNT = "SELECT COUNT(*) FROM schedules WHERE app_name = $1 AND user_id = $2"
_INSERT = """
INSERT INTO schedules (app_name, user_id, id, spec, created_at, quota_id, tokens_per_day, next_slot, check_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (app_name, user_id, id) DO NOTHING
"""
_READ = f"SELECT {_COLUMNS} FROM schedules WHERE {_OF}"  # noqa: S608 - constants
_LOCK = LockingRead(_READ, "UPDATE")
_LIST = f"SELECT {_COLUMNS} FROM schedules WHERE app_name = $1 AND user_id = $2 ORDER BY created_at, id"  # noqa: S608
_LIST_ALL = f"SELECT {_COLUMNS} FROM schedules ORDER BY app_name, user_id, created_at, id"  # noqa: S608
_CHANGE = """
UPDATE schedules SET spec = $1, paused = $2, revision = revision + 1, next_slot = $3, seen_slot = $4, check_at = $5
WHERE app_name = $6 AND user_id = $7 AND id = $8
"""
_REQUEST_RUN = """
UPDATE schedules SET run_requested_at = $1, check_at = $1
WHERE app_name = $2 AND user_id = $3 AND id = $4 AND run_requested_at IS NULL
"""
_DELETE = "DELETE FROM schedules WHERE app_name = $1 AND user_id = $2 AND id = $3 RETURNING id"
_DELETE_RUNS = "DELETE FROM schedule_runs WHERE app_name = $1 AND user_id = $2 AND schedule_id = $3"
_DUE = LockingRead(
    f"SELECT {_COLUMNS} FROM schedules WHERE app_name = $1 AND check_at <= $2 ORDER BY check_at LIMIT $3",  # noqa: S608
    "UPDATE SKIP LOCKED",
)
_SET_CHECK = "UPDATE schedules SET check_at = $1 WHERE app_name = $2 AND user_id = $3 AND id = $4"
_RELEASE = "UPDATE schedules SET check_at = $1 WHERE app_name = $2 AND user_id = $3 AND id = $4 AND check_at = $5"
_ADVANCE = """
UPDATE schedules SET next_slot = $1, seen_slot = $2, last_session = COALESCE($3, last_session),
    last_key = COALESCE($4, last_key),
    check_at = CASE WHEN run_requested_at IS NULL OR run_requested_at = $5 THEN $6 ELSE run_requested_at END,
    run_requested_at = CASE WHEN run_requested_at = $5 THEN NULL ELSE run_requested_at END
WHERE app_name = $7 AND user_id = $8 AND id = $9 AND revision = $10
    AND COALESCE(next_slot, -1) = $11 AND COALESCE(run_requested_at, -1) >= $12
RETURNING id
"""
_ADD_RUN = """
INSERT INTO schedule_runs (app_name, user_id, schedule_id, slot, manual, recorded_at, outcome, reason, session_id, turn,
    turn_key, last_slot, slots)
SELECT $1, $2, $3, $4, $5, now, $6, $7, $8, $9, $10, $11, $12 FROM database_clock WHERE TRUE
ON CONFLICT (app_name, user_id, schedule_id, slot, manual) DO NOTHING
"""
_PRUNE = f"""
DELETE FROM schedule_runs WHERE app_name = $1 AND user_id = $2 AND schedule_id = $3 AND recorded_at < (
    SELECT recorded_at FROM schedule_runs WHERE app_name = $1 AND user_id = $2 AND schedule_id = $3
    ORDER BY recorded_at DESC LIMIT 1 OFFSET {KEPT_RUNS}
)
"""  # noqa: S608
_RUNS = """
SELECT t.status, t.extra, r.outcome, r.reason, r.manual, r.slot, r.recorded_at, r.session_id, r.turn, r.last_slot,
    r.slots
FROM schedule_runs r
LEFT JOIN sessions s ON s.app_name = r.app_name AND s.user_id = r.user_id AND s.id = r.session_id
LEFT JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = r.turn_key
WHERE r.app_name = $1 AND r.user_id = $2 AND r.schedule_id = $3 ORDER BY r.recorded_at DESC, r.slot DESC LIMIT $4
"""
_TURN_OF_KEY = """
SELECT 1 FROM sessions s JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = $1
WHERE s.app_name = $2 AND s.user_id = $3 AND s.id = $4
"""
_IS_STARTED = """
SELECT 1 FROM schedule_runs
WHERE app_name = $1 AND user_id = $2 AND schedule_id = $3 AND slot = $4 AND manual = $5 AND outcome = 'started'
"""
# an answer to a wait continues its invocation in another turn
_OPEN_RUN = """
SELECT s.session_key, o.turn, o.status
FROM sessions s
JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = $1
JOIN turns o ON o.session_key = s.session_key AND o.turn >= t.turn AND o.status IN ('queued', 'running')
    AND (o.turn = t.turn OR o.invocation_id = t.invocation_id)
WHERE s.app_name = $2 AND s.user_id = $3 AND s.id = $4
ORDER BY o.turn LIMIT 1
"""
_PAUSED_RUN = """
SELECT s.session_key, t.turn, 'paused'
FROM sessions s
JOIN turns t ON t.session_key = s.session_key AND t.idempotency_key = $1
JOIN waits w ON w.session_key = s.session_key AND w.closed IS NULL AND w.answered_at IS NULL
    AND (w.turn = t.turn OR w.invocation_id = t.invocation_id)
    AND (w.expires_at IS NULL OR w.expires_at > (SELECT now FROM database_clock))
WHERE s.app_name = $2 AND s.user_id = $3 AND s.id = $4
LIMIT 1
"""


class ScheduleId(NamedTuple):
    """The name of a schedule: its app, its user and its id."""

    app_name: str
    user_id: str
    id: str


class StoredSchedule(Struct, frozen=True):
    """A schedule as it is stored."""

    name: ScheduleId
    spec: ScheduleSpec
    paused: bool
    revision: int
    created_at: float
    quota_id: str | None
    tokens_per_day: int | None
    next_slot: float | None
    """None: it has ended."""
    seen_slot: float | None
    run_requested_at: float | None
    check_at: float | None
    last_session: str | None
    last_key: str | None

    @property
    def state(self) -> str:
        """`active`, `paused`, or `ended`: it has no slot left."""
        return "paused" if self.paused else "ended" if self.next_slot is None else "active"

    def next_times(self, now: float, count: int) -> list[str]:
        """Return when its next slots are due, in its time zone; of a paused one, as if it were resumed now."""
        if self.next_slot is None:
            return []
        # the next slot may be due already; those that pass during a pause do not run
        return next_times(self.name.id, self.spec, now if self.paused else self.next_slot - 1e-3, count)


class RunRow(Struct, frozen=True):
    """What became of a slot, or of several that were missed."""

    slot: float
    outcome: Outcome
    reason: str = ""
    manual: bool = False
    session_id: str | None = None
    turn: int | None = None
    turn_key: str | None = None
    last_slot: float | None = None
    slots: int = 1


class OpenRun(Struct, frozen=True):
    """The turn of the last run, which has not ended."""

    session_key: int
    turn: int
    status: Literal["queued", "running", "paused"]


class Progress(Struct, frozen=True):
    """How a schedule moves on."""

    next_slot: float | None
    seen_slot: float | None
    check_at: float | None
    """When a process looks at it next."""
    runs: Sequence[RunRow] = ()
    handled_request: float | None = None
    """The request of a person for a run that was handled."""


def _to_schedule(row: Row) -> StoredSchedule:
    app_name, user_id, id_, spec, paused, *others = row
    return StoredSchedule(ScheduleId(app_name, user_id, id_), convert(loads(spec), ScheduleSpec), bool(paused), *others)


def database_now() -> Operation[float]:
    """Return the time of the clock that all processes share."""
    [[now]] = yield _NOW, ()
    return now


def add_schedule(
    name: ScheduleId, spec: ScheduleSpec, now: float, quota_id: str | None = None, tokens_per_day: int | None = None
) -> Operation[StoredSchedule]:
    """Store a new schedule; return the stored one if it was added before."""
    [[count]] = yield _COUNT, (name.app_name, name.user_id)
    if count >= MAX_PER_USER:
        raise ScheduleRefused(f"there are {MAX_PER_USER:,} schedules already: delete those that are no longer needed")
    slot = next_slot(spec, now)
    if slot is None:
        raise ScheduleRefused("the schedule has no time that is still to come: give a later time or end")
    check_at = due_at(name.id, spec, slot)
    text = dumps(to_builtins(spec))
    yield _INSERT, (*name, text, now, quota_id, tokens_per_day, slot, check_at)
    return (yield from get_schedule(name))


def get_schedule(name: ScheduleId, *, lock: bool = False) -> Operation[StoredSchedule]:
    """Return a schedule; raise `ScheduleNotFound` if there is none."""
    rows = yield (_LOCK if lock else _READ), name
    if not rows:
        raise ScheduleNotFound(f"there is no schedule {name.id!r}")
    return _to_schedule(rows[0])


def list_schedules(app_name: str, user_id: str) -> Operation[list[StoredSchedule]]:
    """Return the schedules of a user, the oldest first."""
    return [_to_schedule(row) for row in (yield _LIST, (app_name, user_id))]


def list_all_schedules() -> Operation[list[StoredSchedule]]:
    """Return the schedules of all apps and users."""
    return [_to_schedule(row) for row in (yield _LIST_ALL, ())]


def change_schedule(
    name: ScheduleId, spec: ScheduleSpec | None = None, *, paused: bool | None = None
) -> Operation[StoredSchedule]:
    """Change a schedule, pause it or let it continue with its next slot; the slots of a pause do not run."""
    stored = yield from get_schedule(name, lock=True)
    [[now]] = yield _NOW, ()
    new = spec or stored.spec
    is_paused = stored.paused if paused is None else paused
    slot, seen, check_at = stored.next_slot, stored.seen_slot, stored.check_at
    if not new.has_same_times(stored.spec) or (stored.paused and not is_paused):
        slot, seen = next_slot(new, now), None
        check_at = None if slot is None else due_at(name.id, new, slot)
    elif slot is not None and (yield from _has_turn(stored, slot)):  # of a process that died before it moved on
        slot = next_slot(new, slot)
    if is_paused:
        check_at = None
    if stored.run_requested_at is not None:
        check_at = now
    yield _CHANGE, (dumps(to_builtins(new)), int(is_paused), slot, seen, check_at, *name)
    return (yield from get_schedule(name))


def _has_turn(stored: StoredSchedule, slot: float) -> Operation[bool]:
    name = stored.name
    session = session_of(name.id, stored.spec, slot)
    return bool((yield _TURN_OF_KEY, (key_of(name.id, slot), name.app_name, name.user_id, session)))


def request_run(name: ScheduleId) -> Operation[StoredSchedule]:
    """Ask for a run now; while one is asked for, that is the same request."""
    [[now]] = yield _NOW, ()
    yield _REQUEST_RUN, (now, *name)
    return (yield from get_schedule(name))


def delete_schedule(name: ScheduleId) -> Operation[bool]:
    """Delete a schedule and its history; return whether it existed. Its sessions stay."""
    deleted = yield _DELETE, name
    yield _DELETE_RUNS, name
    return bool(deleted)


def read_runs(name: ScheduleId, limit: int = KEPT_RUNS) -> Operation[Sequence[Row]]:
    """Read the history of a schedule, the newest first: its rows, each with the status and the end of its turn."""
    return (yield _RUNS, (*name, limit))


# -- running ----------------------------------------------------------------------------------------------------------


class Claimed(Struct, frozen=True):
    """Due schedules that are leased to this process."""

    now: float
    until: float
    schedules: Sequence[StoredSchedule]


def claim_due(app_name: str, limit: int, lease_s: float) -> Operation[Claimed]:
    """Claim due schedules of an app for some seconds."""
    [[now]] = yield _NOW, ()
    found = [_to_schedule(row) for row in (yield _DUE, (app_name, now, limit))]
    for one in found:
        yield _SET_CHECK, (now + lease_s, *one.name)
    return Claimed(now, now + lease_s, found)


def release_claims(names: Sequence[ScheduleId], until: float) -> Operation[None]:
    """Let another process run schedules that this one claimed until a time and does not run."""
    [[now]] = yield _NOW, ()
    for name in names:
        yield _RELEASE, (now, *name, until)


def find_open_run(schedule: StoredSchedule, slot: float, *, manual: bool) -> Operation[OpenRun | bool]:
    """Return the last run of a schedule if it has not ended: it runs, is queued, or waits for a person.

    Else return whether the slot was started before: the schedule has changed since.
    """
    name = schedule.name
    if (yield _IS_STARTED, (*name, slot, int(manual))):
        return True
    if schedule.last_key is None:
        return False
    place = schedule.last_key, name.app_name, name.user_id, schedule.last_session
    for statement in (_OPEN_RUN, _PAUSED_RUN):
        for row in (yield statement, place):
            return OpenRun(*row)
    return False


def record(schedule: StoredSchedule, progress: Progress) -> Operation[StoredSchedule | None]:
    """Move a schedule on, and store what became of its slots; return it, or None if it has changed or moved on.

    A run that was started is always stored.
    """
    name = schedule.name
    started = next((run for run in reversed(progress.runs) if run.outcome == "started"), None)
    advanced = yield (
        _ADVANCE,
        (
            progress.next_slot,
            progress.seen_slot,
            started and started.session_id,
            started and started.turn_key,
            progress.handled_request,
            progress.check_at,
            *name,
            schedule.revision,
            -1 if schedule.next_slot is None else schedule.next_slot,
            -1 if progress.handled_request is None else progress.handled_request,
        ),
    )
    if not advanced and not (yield _READ, name):
        return None
    for run in progress.runs:
        if advanced or run is started:
            slot, outcome, reason, manual, *of_turn = astuple(run)
            yield _ADD_RUN, (*name, slot, int(manual), outcome, reason, *of_turn)
    if progress.runs:
        yield _PRUNE, name
    return (yield from get_schedule(name)) if advanced else None
