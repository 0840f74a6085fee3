"""Compute the slots of a schedule: its times, when each is due, and its message and session.

A slot is a time in seconds since 1970. It identifies the run, whenever that starts.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice

from cronsim import CronSim

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
