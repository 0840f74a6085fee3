"""Find the days that a text speaks of: dates, and English words for them, relative to the day on which it was written.

A text about the past names months and weekdays without a year: the newest ones before that day are meant.
"""

import calendar
import re
from collections.abc import Iterator
from datetime import date, timedelta

from msgspec import Struct

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
_SHORT = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_MONTH = "|".join(sorted((*_MONTHS, *(name for name in _SHORT if name != "may")), key=len, reverse=True))
_DAYS = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_NUMBERS = {
    word: number
    for number, word in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), 1)  # noqa: SIM905
} | {"a": 1, "an": 1, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3}
_COUNT = r"\d{1,3}|a couple of|couple of|a few|few|" + "|".join(
    sorted((word for word in _NUMBERS if " " not in word and word != "few"), key=len, reverse=True)
)
_YEAR = r"(?:19|20)\d\d"
_DAY_NUMBER = r"([0-3]?\d)(?:st|nd|rd|th)?"
_PATTERN = re.compile(
    rf"\b(?:(?P<iso>{_YEAR}-\d\d(?:-\d\d)?)"
    rf"|{_DAY_NUMBER.replace('(', '(?P<day>', 1)}(?:\s+of)?\s+(?P<dm>{_MONTH})\b\.?(?:,?\s+(?P<dy>{_YEAR}))?"
    rf"|(?P<md>{_MONTH})\.?\s+{_DAY_NUMBER.replace('(', '(?P<mday>', 1)}\b(?:,?\s+(?P<my>{_YEAR}))?"
    rf"|(?P<month>{_MONTH})\.?,?\s+(?P<year>{_YEAR})"
    rf"|(?:in|last|since|during|of|this|early|late|next)\s+(?P<only>{_MONTH})\b(?!\.?,?\s+(?:{_YEAR}|[0-3]?\d\b))"
    rf"|(?:in|during|of|since)\s+(?P<in>{_YEAR})"
    rf"|(?P<count>{_COUNT})\s+(?P<unit>day|week|month|year)s?\s+(?:ago|earlier)"
    r"|(?P<which>last|this|next|past)\s+(?P<span>week(?:end)?|month|year|night)"
    rf"|(?P<wday>(?:last|next|on|this)\s+(?:{'|'.join(_DAYS)}))"
    r"|(?P<word>yesterday|tomorrow|the day before yesterday))\b",
    re.IGNORECASE,
)
_ADDED = re.compile(r" \[\d{4}[\d-]*(?: to [\d-]+)?\]")


class Period(Struct, frozen=True):
    """The days that a part of a text stands for."""

    first: date
    last: date
    start: int
    """Where the part is in the text."""
    end: int
    relative: bool
    """Whether the part means nothing without the day on which it was written."""

    def __str__(self) -> str:
        """Write the days as in a note."""
        if self.first == self.last:
            return f"{self.first}"
        if self.first.day == 1 and self.last == _month(self.first.year, self.first.month)[1]:
            return f"{self.first:%Y-%m}"
        if (self.first.month, self.first.day, self.last.month, self.last.day) == (1, 1, 12, 31):
            return f"{self.first:%Y}"
        return f"{self.first} to {self.last}"


def find_periods(text: str, today: date) -> Iterator[Period]:
    """Yield the days that a text of `today` speaks of."""
    for found in _PATTERN.finditer(text):
        try:
            days = _days(found, today)
        except (ValueError, OverflowError):  # 31 February, 900 years ago
            continue
        absolute = found["iso"] or found["dy"] or found["my"] or found["year"] or found["in"]
        yield Period(*days, found.start(), found.end(), not absolute)


def with_days(text: str, today: date) -> str:
    """Return a text with the days added that its relative words stand for: "yesterday [2026-11-14]"."""
    parts: list[str] = []
    end = 0
    for period in find_periods(text, today):
        if period.relative and not text.startswith(" [", period.end):
            parts += [text[end : period.end], f" [{period}]"]
            end = period.end
    return "".join([*parts, text[end:]])


def without_days(text: str) -> str:
    """Return a text without the days that `with_days` added."""
    return _ADDED.sub("", text)


def _days(found: re.Match[str], today: date) -> tuple[date, date]:
    groups = found.groupdict()
    if iso := groups["iso"]:
        year, month, *day = map(int, iso.split("-"))
        return _day(date(year, month, day[0])) if day else _month(year, month)
    for day_name, month_name, year_name in (("day", "dm", "dy"), ("mday", "md", "my")):
        if groups[month_name]:
            return _day(_dated(groups[year_name], _month_number(groups[month_name]), int(groups[day_name]), today))
    if groups["month"]:
        return _month(int(groups["year"]), _month_number(groups["month"]))
    if groups["only"]:
        ahead = found[0].lower().startswith("next")
        number = _month_number(groups["only"])
        return _month(
            today.year + (1 if ahead and number <= today.month else -1 if not ahead and number > today.month else 0),
            number,
        )
    if groups["in"]:
        return date(int(groups["in"]), 1, 1), date(int(groups["in"]), 12, 31)
    if groups["count"]:
        return _ago(_number(groups["count"]), groups["unit"].lower(), today)
    if groups["span"]:
        return _span(groups["which"].lower(), groups["span"].lower(), today)
    if groups["wday"]:
        which, name = groups["wday"].lower().split()
        back = (today.weekday() - _DAYS[name]) % 7 or (7 if which == "last" else 0)
        ahead = (_DAYS[name] - today.weekday()) % 7 or 7
        return _day(today + timedelta(ahead) if which == "next" else today - timedelta(back))
    return _day(today + timedelta({"yesterday": -1, "tomorrow": 1}.get(groups["word"].lower(), -2)))


def _day(day: date) -> tuple[date, date]:
    return day, day


def _month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])


def _month_number(name: str) -> int:
    return _MONTHS.get(name.lower()) or _SHORT[name.lower()]


def _dated(year: str | None, month: int, day: int, today: date) -> date:
    if year:
        return date(int(year), month, day)
    same_year = date(today.year, month, day)
    return same_year if same_year <= today + timedelta(60) else date(today.year - 1, month, day)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else _NUMBERS[text.lower()]


def _ago(count: int, unit: str, today: date) -> tuple[date, date]:
    if unit == "day":
        return _day(today - timedelta(count))
    if unit == "week":
        day = today - timedelta(7 * count)
        return day - timedelta(3), day + timedelta(3)
    months = today.year * 12 + today.month - 1 - (count if unit == "month" else 12 * count)
    if unit == "month":
        return _month(months // 12, months % 12 + 1)
    return date(months // 12, 1, 1), date(months // 12, 12, 31)


def _span(which: str, span: str, today: date) -> tuple[date, date]:
    step = {"last": -1, "past": -1, "next": 1}.get(which, 0)
    if span == "night":
        return _day(today + timedelta(step))
    if span.startswith("week"):
        monday = today - timedelta(today.weekday()) + timedelta(7 * step)
        return (monday + timedelta(5), monday + timedelta(6)) if span == "weekend" else (monday, monday + timedelta(6))
    if span == "month":
        months = today.year * 12 + today.month - 1 + step
        return _month(months // 12, months % 12 + 1)
    return date(today.year + step, 1, 1), date(today.year + step, 12, 31)
