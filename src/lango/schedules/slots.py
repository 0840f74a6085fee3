"""Compute the slots of a schedule: its times, when each is due, its message and session, and which of the due ones run.

A slot is a time in seconds since 1970. It identifies the run, whenever that starts.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, count, islice, takewhile

from cronsim import CronSim
from msgspec import Struct

from lango.schedules.spec import ScheduleSpec, check_template


def slots_after(spec: ScheduleSpec, after: float) -> Iterator[float]:
    """Yield the slots after a time, in order, to the end of the schedule."""
    first = spec.start_at if spec.start_at is not None else after
    for slot in _all_after(spec, max(after, first - 1e-3)):
        if spec.end_at is not None and slot > spec.end_at:
            return
        yield slot


def _all_after(spec: ScheduleSpec, after: float) -> Iterator[float]:
    if spec.times:
        yield from (time for time in spec.times_at if time > after)
    elif spec.every_s:
        start = spec.start_at or 0.0
        number = max(0, int((after - start) // spec.every_s) + 1)
        yield from (start + each * spec.every_s for each in count(number))
    else:
        yield from _cron_after(spec, after)


def _cron_after(spec: ScheduleSpec, after: float) -> Iterator[float]:
    """Yield the times of a cron expression.

    In the hour that the clock shows twice, the library repeats only jobs of every hour or minute; a time that the clock
    skips is moved to the end of the gap, where several may fall on one slot.
    """
    last = after
    zone = UTC if spec.timezone == "UTC" else spec.zone
    for time in CronSim(spec.cron_fields, datetime.fromtimestamp(after, zone)):
        if (slot := time.timestamp()) > last:
            last = slot
            yield slot


def next_slot(spec: ScheduleSpec, after: float) -> float | None:
    """Return the first slot after a time, or None if there is none."""
    return next(slots_after(spec, after), None)


def due_at(schedule_id: str, spec: ScheduleSpec, slot: float) -> float:
    """Return when a slot is due: delayed by its jitter, which is the same in every process."""
    if not spec.jitter_s:
        return slot
    digest = hashlib.sha256(f"{schedule_id} {slot:.3f}".encode()).digest()
    return slot + int.from_bytes(digest[:8]) % (spec.jitter_s * 1000) / 1000


def next_times(schedule_id: str, spec: ScheduleSpec, after: float, limit: int = 10) -> list[str]:
    """Return when the next slots are due, in the schedule's time zone."""
    found = islice(slots_after(spec, after), limit)
    return [datetime.fromtimestamp(due_at(schedule_id, spec, slot), spec.zone).isoformat() for slot in found]


def session_of(schedule_id: str, spec: ScheduleSpec, slot: float) -> str:
    """Return the id of the session that a slot runs in."""
    if spec.session_id:
        return spec.session_id
    match spec.session:
        case "one":
            return f"schedule-{schedule_id}"
        case "day":
            return f"schedule-{schedule_id}-{datetime.fromtimestamp(slot, spec.zone):%Y-%m-%d}"
        case "each":
            return f"schedule-{schedule_id}-{datetime.fromtimestamp(slot, UTC):%Y%m%dT%H%M%S.%fZ}".replace(
                ".000000", ""
            )


def key_of(schedule_id: str, slot: float, *, manual: bool = False) -> str:
    """Return the idempotency key of the turn of a slot, or of a run that a person wanted at a time."""
    return f"schedule-{schedule_id}-{'now-' if manual else ''}{slot:.3f}"


def text_of(spec: ScheduleSpec, slot: float) -> str:
    """Return the message of a slot. Raise `ScheduleRefused` for a field that this version does not know."""
    check_template(spec.message)
    local = datetime.fromtimestamp(int(slot), spec.zone)
    return spec.message.format(
        slot=local.isoformat(),
        date=local.date().isoformat(),
        time=f"{local:%H:%M}",
        weekday=f"{local:%A}",
        name=spec.name,
        timezone=spec.timezone,
    )


# -- which of them run -------------------------------------------------------------------------------------------------

ON_TIME_S = 60.0
"""A slot that no process came to within this time was missed. A process that died, and the one that takes its place,
need less."""
MAX_COUNTED = 1_000
"""If more slots were missed, this is the number that is shown."""


class MissedSlots(Struct, frozen=True):
    """Slots that do not run, because no process came to them in time."""

    first: float
    last: float
    count: int
    """At most `MAX_COUNTED`."""


class Settled(Struct, frozen=True):
    """What becomes of the slots that are due: some were missed, those from `next_slot` to `seen_slot` run in order."""

    next_slot: float | None
    """The first slot that is left, due or not; None if there is none."""
    seen_slot: float | None
    """The newest slot that a process came to in time, or that runs though it was missed."""
    missed: MissedSlots | None = None


def settle(schedule_id: str, spec: ScheduleSpec, first: float, seen_slot: float | None, now: float) -> Settled:
    """Decide about the slots of a schedule from `first`, its next one, which are due.

    Those up to `seen_slot` were decided about before: they wait for the run before them.
    """
    if seen_slot is not None and first <= seen_slot:
        return Settled(first, seen_slot)
    due = _newest_due(schedule_id, spec, first, now)
    if not due:
        return Settled(first, seen_slot)
    # with jitter, a slot may be due before the one before it, whose turn comes first
    late = [*takewhile(lambda slot: now - due_at(schedule_id, spec, slot) > ON_TIME_S, due)]
    on_time = due[len(late) :]
    kept = due
    if late:
        match spec.missed:
            case "skip":
                kept = on_time
            case "one":
                kept = due[-1:]
            case "all":
                kept = [*late[-spec.max_missed :], *on_time]
    following = kept[0] if kept else next_slot(spec, due[-1])
    return Settled(following, due[-1], _missed(spec, first, kept[0] if kept else None, due[-1]))


def _newest_due(schedule_id: str, spec: ScheduleSpec, first: float, now: float) -> list[float]:
    """Return the newest due slots: all that are on time, and as many late ones as may run."""
    limit, width = spec.max_missed + int(ON_TIME_S) + 1, 4 * ON_TIME_S
    while True:
        start = max(first, now - spec.jitter_s - width)
        found: list[float] = []
        for slot in chain([first] if start == first else (), slots_after(spec, start)):
            if slot > now:
                break
            found.append(slot)
        while found and due_at(schedule_id, spec, found[-1]) > now:
            found.pop()
        if start == first or len(found) >= limit:
            return found
        width *= 4


def _missed(spec: ScheduleSpec, first: float, kept: float | None, last: float) -> MissedSlots | None:
    """Return the slots from the first one to before the first that is kept, or to the last one."""
    if kept == first:
        return None
    slots = chain([first], slots_after(spec, first))
    counted = [*islice(slots, MAX_COUNTED)]
    dropped = [slot for slot in counted if (slot <= last if kept is None else slot < kept)]
    if len(dropped) < MAX_COUNTED:
        return MissedSlots(first, dropped[-1], len(dropped))
    before = last if kept is None else _slot_before(spec, first, kept)
    return MissedSlots(first, before, MAX_COUNTED)


def _slot_before(spec: ScheduleSpec, first: float, slot: float) -> float:
    width = 60.0
    while (start := max(first, slot - width)) > first:
        if found := _until(spec, start, slot):
            return found[-1]
        width *= 4
    return [first, *_until(spec, first, slot)][-1]


def _until(spec: ScheduleSpec, after: float, end: float) -> list[float]:
    found: list[float] = []
    for slot in slots_after(spec, after):
        if slot >= end:
            break
        found.append(slot)
    return found
