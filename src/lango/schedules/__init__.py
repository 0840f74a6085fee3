"""Schedules: what is to run when, and which of its times are due. Pure: no store, no clock."""

from lango.schedules.slots import due_at, key_of, next_slot, next_times, session_of, text_of
from lango.schedules.spec import MAX_PER_USER, ScheduleSpec, checked_spec, parse_duration_s, parse_time

__all__ = [
    "MAX_PER_USER",
    "ScheduleSpec",
    "checked_spec",
    "due_at",
    "key_of",
    "next_slot",
    "next_times",
    "parse_duration_s",
    "parse_time",
    "session_of",
    "text_of",
]
