"""The slots of schedules: cron, intervals and lists in any zone, jitter, and what becomes of missed slots."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import ScheduleRefused
from lango.schedules import ScheduleSpec, checked_spec, due_at, next_slot, next_times
from lango.schedules.slots import ON_TIME_S, session_of, settle, slots_after, text_of
from lango.schedules.spec import parse_duration_s

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu"]
FROM = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def spec(now: float = FROM, **fields: Any) -> ScheduleSpec:
    given: dict[str, Any] = {"name": "n", "message": "m", **fields}
    return checked_spec(ScheduleSpec(**given), now)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00Z", ["29 03:00 +2", "30 02:30 +2"]),  # in the gap: at its end
        ("0,30 2,3 * * *", "2026-03-28T12:00Z", ["29 03:00 +2", "29 03:30 +2", "30 02:00 +2"]),  # and there once
        ("*/30 * * * *", "2026-03-29T00:29Z", ["29 01:30 +1", "29 03:00 +2", "29 03:30 +2"]),
        ("30 2 * * *", "2026-10-24T12:00Z", ["25 02:30 +2", "26 02:30 +1"]),  # twice: the first time
        ("30 2 * * *", "2026-10-25T00:45Z", ["26 02:30 +1"]),  # from between the two
        ("0 * * * *", "2026-10-24T23:30Z", ["25 02:00 +2", "25 02:00 +1", "25 03:00 +1"]),  # follows the real time
        ("@daily", "2026-10-24T12:00Z", ["25 00:00 +2", "26 00:00 +1"]),
    ],
)
def test_daylight_saving(cron: str, after: str, expected: list[str]) -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = islice(slots_after(spec(cron=cron, timezone="Europe/Berlin"), at(after)), len(expected))
    local = [datetime.fromtimestamp(slot, zone) for slot in found]
    assert [f"{one:%d %H:%M} +{(one.utcoffset() or timedelta()).seconds // 3600}" for one in local] == expected


CRON = st.tuples(
    st.sampled_from(["0", "30", "*/20", "5,50", "*"]),
    st.sampled_from(["*", "2", "0,2,3", "*/2", "1-3"]),
    st.sampled_from(["*", "29", "1,25"]),
    st.sampled_from(["*", "3,10", "4"]),
    st.sampled_from(["*", "0", "1-5"]),
).map(" ".join)
TIMES = st.one_of(CRON.map(lambda cron: {"cron": cron}), st.integers(1, 90_000).map(lambda every: {"every_s": every}))


@given(TIMES, st.sampled_from(ZONES), st.integers(0, 366 * 86_400))
def test_slots_grow_and_are_the_same_from_wherever_they_are_counted(
    times: dict[str, Any], zone: str, offset: int
) -> None:
    schedule = spec(timezone=zone, **times)
    found = [*islice(slots_after(schedule, FROM + offset), 30)]
    assert found == sorted(set(found))
    for before, slot in pairwise(found):
        assert next_slot(schedule, before) == slot
        assert next_slot(schedule, (before + slot) / 2) == slot


@given(TIMES, st.sampled_from(ZONES), st.integers(1, 3_000), st.integers(0, 86_400))
def test_jitter_delays_each_slot_within_its_bound_and_always_by_the_same(
    times: dict[str, Any], zone: str, jitter_s: int, offset: int
) -> None:
    schedule = spec(timezone=zone, jitter_s=jitter_s, **times)
    slots = [*islice(slots_after(schedule, FROM + offset), 20)]
    due = [due_at("id", schedule, slot) for slot in slots]
    assert all(slot <= one < slot + jitter_s for slot, one in zip(slots, due, strict=True))
    assert due == [due_at("id", schedule, slot) for slot in slots]


@given(
    TIMES, st.sampled_from(["skip", "one", "all"]), st.integers(1, 5), st.integers(0, 40 * 86_400), st.integers(0, 60)
)
def test_each_due_slot_runs_or_is_missed_once(
    times: dict[str, Any], missed: str, most: int, offset: int, jitter_s: int
) -> None:
    schedule = spec(missed=missed, max_missed=most, jitter_s=jitter_s, **times)
    first = next_slot(schedule, FROM)
    assert first is not None
    now = FROM + offset
    settled = settle("id", schedule, first, None, now)
    due = _until(schedule, now)
    while due and due_at("id", schedule, due[-1]) > now:
        due.pop()
    if not due:
        assert settled.missed is None
        assert settled.next_slot == first
        return
    assert settled.seen_slot is not None
    runs = [
        slot
        for slot in _until(schedule, settled.seen_slot)
        if settled.next_slot is not None and slot >= settled.next_slot
    ]
    late = [*takewhile(lambda slot: now - due_at("id", schedule, slot) > ON_TIME_S, due)]
    if settled.missed:
        assert late, "a slot that a process came to in time is not missed"
        assert settled.missed.first == first
        dropped = _until(schedule, settled.missed.last)
        assert settled.missed.count == min(len(dropped), 1_000)
        assert [*dropped, *runs] == _until(schedule, settled.seen_slot)
    else:
        assert runs == _until(schedule, settled.seen_slot)
    if late:
        ran_late = [slot for slot in runs if slot in late]
        assert len(ran_late) <= {"skip": 0, "one": 1, "all": most}[missed]
        if missed == "one":
            assert runs == due[-1:]
    if runs:  # later looks, before these have run, drop none of them
        assert settle("id", schedule, runs[0], settled.seen_slot, now + 9_999).missed is None


def _until(schedule: ScheduleSpec, end: float) -> list[float]:
    found: list[float] = []
    for slot in slots_after(schedule, FROM):
        if slot > end or len(found) == 60_000:
            break
        found.append(slot)
    return found


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one of cron, every and times: none is set"),
        ({"cron": "@daily", "every_s": 5}, "cron and every"),
        ({"cron": "every day"}, "does not have five fields"),
        ({"cron": "@reboot"}, "five fields"),
        ({"cron": "* * * * * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "day-of-month"),
        ({"cron": "0 0 * 2 1#5,1#6"}, "bad day-of-week"),
        ({"cron": "@daily", "timezone": "Mars/Olympus"}, "there is no zone 'Mars/Olympus'; use"),
        ({"cron": "@daily", "timezone": "../etc/passwd"}, "there is no zone"),
        ({"cron": "@daily", "start_at": 2.0, "end_at": 1.0}, "the end is before the start"),
        ({"every_s": 40_000_000}, "1 second to 366 days"),
        ({"cron": "9" * 5_000 + " * * * *"}, "an example is"),
        ({"times": ["9999-12-31T00:00"]}, "between 1970 and 2999"),
        ({"times": ["tomorrow"]}, "is not a time; write it as"),
        ({"times": ["2026-01-01T00:00"] * 1_001}, "at most 1,000"),
        ({"cron": "@daily", "jitter_s": 90_000}, "jitter"),
        ({"cron": "@daily", "max_missed": 101}, "max_missed"),
        ({"cron": "@daily", "session": "each", "session_id": "s"}, "session = one"),
        ({"cron": "@daily", "name": " "}, "name"),
        ({"cron": "@daily", "message": ""}, "message"),
        *(
            ({"cron": "@daily", "message": text}, "the fields are {slot}")
            for text in ("{", "{planet}", "{0}", "{}", "{slot.year}", "{slot!r}", "{date:%Y}", "{name:>1000000000}")
        ),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_to_do(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleRefused) as refused:
        spec(**fields)
    assert message in str(refused.value)


def test_messages_sessions_durations_and_lists() -> None:
    slot = at("2026-03-01T23:30Z")
    schedule = spec(cron="@daily", timezone="Asia/Tokyo", session="day")
    filled = spec(cron="@daily", timezone="Asia/Tokyo", message="{{{name}}} {slot} {date} {time} {weekday} {timezone}")
    assert text_of(filled, slot) == "{n} 2026-03-02T08:30:00+09:00 2026-03-02 08:30 Monday Asia/Tokyo"
    assert session_of("i", schedule, slot) == "schedule-i-2026-03-02"
    assert session_of("i", spec(cron="@daily", session="each"), slot) == "schedule-i-20260301T233000Z"
    assert session_of("i", spec(cron="@daily", session_id="own"), slot) == "own"
    assert [parse_duration_s(text, "every") for text in ("90", "90s", "15m", "1h30m", "1d")] == [
        90,
        90,
        900,
        5400,
        86400,
    ]
    for text in ("", "m", "1w", "1.5h"):
        with pytest.raises(ScheduleRefused):
            parse_duration_s(text, "every")
    listed = spec(times=["2026-07-01T12:00", "2026-07-01T10:00Z", "2026-06-01T00:00+02:00"], timezone="Europe/Berlin")
    assert next_times("i", listed, FROM) == ["2026-06-01T00:00:00+02:00", "2026-07-01T12:00:00+02:00"]
    assert next_slot(spec(every_s=60, end_at=FROM + 90), FROM + 60) is None
    assert next_slot(spec(every_s=60, start_at=FROM - 30), FROM) == FROM + 30
