"""Add the days to notes on which something happened, where the messages tell them.

A note has the day on which it was said. "We moved last week" happened on other days, which cannot be
told any more once the words stand beside another date.
"""

import re
from collections.abc import Sequence
from datetime import date

from msgspec.structs import replace

from lango.memory.dates import find_periods, with_days
from lango.memory.notes import transcript
from lango.memory.notes.key_terms import content_words
from lango.memory.notes.note_format import Note
from lango.sessions import StoredEvent, as_datetime

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_SHARED = 0.5


def with_days_of_messages(notes: Sequence[Note], shown: Sequence[StoredEvent]) -> list[Note]:
    """Return the notes with the days of what they tell: those of their own words, or of the sentence they come from."""
    messages = {stored.seq: stored for stored in shown}
    return [_dated(note, messages[note.last_seq]) if note.last_seq in messages else note for note in notes]


def _dated(note: Note, stored: StoredEvent) -> Note:
    if note.kind == "fact":
        return note
    said_on = as_datetime(stored.created_at).date()
    if any(True for _ in find_periods(note.text, said_on)):
        return replace(note, text=with_days(note.text, said_on))
    if note.first_seq != note.last_seq:
        return note
    days = _day_in_message(note, transcript.text_of(stored), said_on)
    return replace(note, text=f"{note.text} [{days}]") if days else note


def _day_in_message(note: Note, text: str, said_on: date) -> str:
    """Return the days of the sentence that a note has its words from, or "" if it names none."""
    words = content_words(note.text)
    for sentence in _SENTENCE_END.split(text):
        if words and len(words & content_words(sentence)) >= _SHARED * len(words):
            for period in find_periods(sentence, said_on):
                return str(period)
    return ""
