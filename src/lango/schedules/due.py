"""Decide which slots of a schedule run, when some of them are due."""

from itertools import chain, islice, takewhile

from msgspec import Struct

from lango.schedules.slots import due_at, next_slot, slots_after
from lango.schedules.spec import ScheduleSpec

ON_TIME_S = 60.0
"""A slot that no process came to within this time was missed. A process that died, and the one that takes its place,
need less."""
MAX_COUNTED = 1_000
"""Of more missed slots, only this number is told."""


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
