"""Schedules: what is to run when, and which of its times are due. Pure: no store, no clock."""

from lango.schedules.slots import due_at, key_of, next_slot, next_times, session_of, text_of
from lango.schedules.spec import MAX_PER_USER, ScheduleSpec, checked_spec, spec_from_texts

__all__ = [
    "MAX_PER_USER",
    "ScheduleSpec",
    "checked_spec",
    "due_at",
    "key_of",
    "next_slot",
    "next_times",
    "session_of",
    "spec_from_texts",
    "text_of",
]
