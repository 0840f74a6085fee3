"""Define what a schedule runs and when, and check what a client sent of it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct
from msgspec.structs import replace

from lango.errors import ScheduleRefused
from lango.json_values import storable_text
from lango.sessions import is_id

Missed = Literal["skip", "one", "all"]
Overlap = Literal["queue", "skip", "cancel"]
SessionMode = Literal["one", "each", "day"]

FIELDS = ("slot", "date", "time", "weekday", "name", "timezone")
"""What a message may name in braces."""
MAX_PER_USER = 1_000
MAX_TIMES = 1_000
MAX_MESSAGE = 20_000
_MAX_NAME = 200
_MAX_SPAN_S = 366 * 86_400
_LATEST = 32_503_680_000
"""The year 3000: the slots after it can still be shown."""
_MAX_RUNS_AFTER_MISSED = 100
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s?)?")


class ScheduleSpec(Struct, frozen=True, omit_defaults=True):
    """What a schedule runs, and when. One of `cron`, `every_s` and `times` is set."""

    name: str
    message: str
    """Sent to the agent at each slot. `{slot}`, `{date}`, `{time}`, `{weekday}`, `{name}` and `{timezone}` are filled
    in, in the schedule's time zone; `{{` and `}}` are braces."""
    cron: str = ""
    """Five fields, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`."""
    every_s: int = 0
    """Seconds between two slots, counted from `start_at`."""
    times: Sequence[str] = ()
    """The slots themselves, in ISO 8601 and UTC."""
    timezone: str = "UTC"
    """An IANA name such as `Europe/Berlin`: that of `cron`, and of times without an offset."""
    start_at: float | None = None
    """No slot is before it. By default, an interval starts one interval after the schedule was made."""
    end_at: float | None = None
    """No slot is after it."""
    jitter_s: int = 0
    """Each slot is delayed by up to this many seconds, always by the same for the same slot."""
    missed: Missed = "one"
    """Which slots run that no process came to within a minute: none, the newest, or the newest `max_missed`."""
    max_missed: int = 10
    overlap: Overlap = "queue"
    """What happens if the last run has not ended: the slot waits for its end, is skipped, or stops it."""
    session: SessionMode = "one"
    """All runs share a session, or each has a new one, or those of a day share one."""
    session_id: str = ""
    """With `one`: an existing session of the user, instead of one of the schedule's own."""

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return ZoneInfo(self.timezone)

    @property
    def cron_fields(self) -> str:
        """The five fields of the cron expression."""
        return _ALIASES.get(self.cron.lower(), self.cron)

    @property
    def times_at(self) -> list[float]:
        """The listed times in seconds since 1970."""
        return [datetime.fromisoformat(time).timestamp() for time in self.times]

    def has_same_times(self, other: "ScheduleSpec") -> bool:
        """Whether another schedule has the same slots, due at the same times."""
        texts = dict.fromkeys(("name", "message", "session_id"), "")
        policies = {"missed": "one", "max_missed": 1, "overlap": "queue", "session": "one"}
        return replace(self, **texts, **policies) == replace(other, **texts, **policies)


def spec_from_texts(
    name: str,
    message: str,
    *,
    every: str = "",
    timezone: str = "UTC",
    start: str = "",
    end: str = "",
    jitter: str = "",
    **fields: Any,
) -> ScheduleSpec:
    """Make a schedule of durations and times as people and models write them."""
    zone = find_zone(timezone)
    return ScheduleSpec(
        name,
        message,
        every_s=parse_duration_s(every, "every") if every else 0,
        timezone=timezone,
        start_at=parse_time(start, zone, "start") if start else None,
        end_at=parse_time(end, zone, "end") if end else None,
        jitter_s=parse_duration_s(jitter, "jitter") if jitter else 0,
        **fields,
    )


def checked_spec(spec: ScheduleSpec, now: float) -> ScheduleSpec:
    """Return a schedule with its defaults filled in. Raise `ScheduleRefused` that says what to change."""
    zone = find_zone(spec.timezone)
    _check_texts(spec)
    chosen = [name for name, value in (("cron", spec.cron), ("every", spec.every_s), ("times", spec.times)) if value]
    if len(chosen) != 1:
        raise ScheduleRefused(
            "a schedule needs one of cron, every and times: " + (" and ".join(chosen) or "none is set")
        )
    if spec.cron:
        _check_cron(spec)
    if spec.every_s and not 1 <= spec.every_s <= _MAX_SPAN_S:
        raise ScheduleRefused(f"every: an interval is 1 second to 366 days, not {spec.every_s} s")
    if len(spec.times) > MAX_TIMES:
        raise ScheduleRefused(f"times: at most {MAX_TIMES:,} times, not {len(spec.times):,}; use cron or every")
    times = sorted({int(parse_time(time, zone, "times")) for time in spec.times})
    if not 0 <= spec.jitter_s <= 86_400:
        raise ScheduleRefused(f"jitter: 0 to 86,400 seconds, not {spec.jitter_s}")
    if not 1 <= spec.max_missed <= _MAX_RUNS_AFTER_MISSED:
        raise ScheduleRefused(f"max_missed: 1 to {_MAX_RUNS_AFTER_MISSED}, not {spec.max_missed}")
    if spec.session_id and (spec.session != "one" or not is_id(spec.session_id)):
        raise ScheduleRefused("session_id: names an existing session for all runs, and goes with session = one")
    start_at = float(int(now)) + spec.every_s if spec.every_s and spec.start_at is None else spec.start_at
    if start_at is not None and spec.end_at is not None and spec.end_at < start_at:
        raise ScheduleRefused("end_at: the end is before the start; give a later end")
    return replace(spec, start_at=start_at, times=tuple(iso_time(time) for time in times))


def _check_texts(spec: ScheduleSpec) -> None:
    if not spec.name.strip() or len(spec.name) > _MAX_NAME or storable_text(spec.name) != spec.name:
        raise ScheduleRefused(f"name: give the schedule a name of 1 to {_MAX_NAME} characters")
    if not spec.message.strip() or len(spec.message) > MAX_MESSAGE or storable_text(spec.message) != spec.message:
        raise ScheduleRefused(f"message: give a message of 1 to {MAX_MESSAGE:,} characters")
    check_template(spec.message)


def check_template(message: str) -> None:
    """Raise `ScheduleRefused` unless a message names only known fields."""
    known = ", ".join(f"{{{field}}}" for field in FIELDS)
    try:
        parts = [*Formatter().parse(message)]
    except ValueError as error:
        raise ScheduleRefused(f"message: {error}; write {{{{ and }}}} for braces; the fields are {known}") from error
    for _, field, form, conversion in parts:
        if field is not None and (field not in FIELDS or form or conversion):
            raise ScheduleRefused(
                f"message: there is no field {{{field}}} here; the fields are {known}; write {{{{ and }}}} for braces"
            )


def _check_cron(spec: ScheduleSpec) -> None:
    fields = spec.cron_fields.split()
    if len(fields) != 5:
        raise ScheduleRefused(
            f"cron: {spec.cron!r} does not have five fields: minute, hour, day of the month, month, day of the week, "
            "as in '30 7 * * 1-5'; or use @hourly, @daily, @weekly, @monthly or @yearly"
        )
    try:
        next(CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, ValueError) as error:
        raise ScheduleRefused(f"cron: {str(error).lower()} in {spec.cron!r}; an example is '30 7 * * 1-5'") from error
    except (StopIteration, RuntimeError) as error:
        raise ScheduleRefused(f"cron: no date fits {spec.cron!r}; check the day and the month") from error


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone; raise `ScheduleRefused` for an unknown one."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleRefused(
            f"timezone: there is no zone {name!r}; use a name such as Europe/Berlin, or UTC"
        ) from error


def parse_time(text: str, zone: ZoneInfo, what: str) -> float:
    """Read a time in ISO 8601, in a zone if it has no offset; return seconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
        # of a time that the clock shows twice, the first; one that it skips is moved by the gap
        at = (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, TypeError) as error:
        raise ScheduleRefused(
            f"{what}: {text!r} is not a time; write it as 2026-03-01T07:30 or 2026-03-01T07:30Z"
        ) from error
    if not 0 <= at < _LATEST:
        raise ScheduleRefused(f"{what}: {text!r} is not between 1970 and 2999")
    return at


def parse_duration_s(text: str, what: str) -> int:
    """Read a duration such as `90s`, `15m`, `2h`, `1d` or `1h30m`, or a number of seconds."""
    found = _DURATION.fullmatch(text.strip())
    if not text.strip() or found is None:
        raise ScheduleRefused(f"{what}: {text!r} is not a duration; write it as 90s, 15m, 2h, 1d or 1h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def iso_time(at: float) -> str:
    """Write a time in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
