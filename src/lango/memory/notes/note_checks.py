"""Check the notes of an observer against the messages that it was shown, without a model, and add days to them.

A model may make up names and numbers, cite the wrong message, or do what a text in the transcript says. And it may miss
what a user asked to remember: that becomes a pinned note in any case. A note has the day on which it was said. "We
moved last week" happened on other days, which can no longer be told once the words stand beside another date.
"""

import re
from collections.abc import Sequence
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from lango.memory.dates import find_periods, with_days
from lango.memory.notes import transcript
from lango.memory.notes.key_terms import asks_to_remember, content_words, key_terms, words_of
from lango.memory.notes.note_format import Note, clean_text
from lango.sessions import StoredEvent, as_datetime

_SMALL_NUMBER = 12  # smaller numbers may count things
_DATE = re.compile(r"^(?:\d{4}(?:-\d\d){0,2}|\d{1,2}:\d\d|\d{1,2}(?:st|nd|rd|th)?)$")
_RELATIVE_TIME = re.compile(
    r"\b(?:to(?:day|morrow|night)|yesterday|(?:mon|tues|wednes|thurs|fri|satur|sun)day|next|last|ago|in \w+ "
    r"(?:days?|weeks?|months?|hours?)|week|month|year|morning|noon|evening|heute|morgen|gestern|woche)\b",
    re.IGNORECASE,
)
_MAX_PINNED = 20
_MAX_PINNED_CHARACTERS = 600


class _Shown(Struct):
    """A message that the observer was shown."""

    seq: int
    text: str
    by_user: bool
    terms: frozenset[str]
    """Its words and key terms."""


def check_notes(notes: Sequence[Note], shown: Sequence[StoredEvent]) -> list[Note]:
    """Return the notes that the messages support, and a pinned note for each message that asks to remember something.

    A note with a number that no message has, or only with names that none has, is dropped. A note that cites other
    messages than those with its names and numbers cites those, too. A fact about the user must come from the user: else
    it is a note, or dropped if no message has it. Only the user pins. It takes CPU time: call it in a thread.
    """
    messages = [_shown(stored) for stored in shown]
    every = frozenset[str]().union(*(message.terms for message in messages))
    days = {transcript.day_of(stored) for stored in shown}
    relative = any(_RELATIVE_TIME.search(message.text) for message in messages)
    kept = [
        _checked_kind(_cite(note, messages), messages)
        for note in notes
        if _is_supported(_claim(note), every, days, relative) and (note.kind != "fact" or _is_said(note, every))
    ]
    return [*kept, *_asked_for(kept, messages)]


def _shown(stored: StoredEvent) -> _Shown:
    text = transcript.text_of(stored)
    by_user = stored.message is not None and stored.message.role == "user"
    whole = f"{transcript.head_of(stored)} {text}"
    terms = key_terms(whole) | frozenset(words_of(whole))
    return _Shown(stored.seq, text, by_user, terms)


def _claim(note: Note) -> str:
    """Return what a note says: of a fact its value, as the observer chooses its name."""
    return (note.text.partition(":")[2] if note.kind == "fact" else "") or note.text


def _is_supported(text: str, every: frozenset[str], days: set[str], relative: bool) -> bool:
    terms = key_terms(text)
    missing = {term for term in terms if not _has(every, term)}
    for term in missing:
        if any(char.isdigit() for char in term) and not _may_be_derived(term, days, relative):
            return False
    names = {term for term in terms if not any(char.isdigit() for char in term)}
    return not names or not names <= missing


def _is_said(fact: Note, every: frozenset[str]) -> bool:
    """Whether any message has a word of the value of a fact."""
    value = content_words(_claim(fact))
    return not value or bool(value & every)


def _has(words: frozenset[str], term: str) -> bool:
    return term in words or all(part in words for part in words_of(term))


def _may_be_derived(term: str, days: set[str], relative: bool) -> bool:
    """Whether a number that no message has may count things, or be the date of a message."""
    if term.isdecimal() and int(term) <= _SMALL_NUMBER:
        return True
    if any(term in day for day in days):
        return True
    return relative and _DATE.match(term) is not None


def _cite(note: Note, messages: Sequence[_Shown]) -> Note:
    """Extend what a note cites to the messages with its key terms, if the cited ones have none of them."""
    terms = key_terms(note.text) or content_words(note.text)
    cited = [message for message in messages if note.first_seq <= message.seq <= note.last_seq]
    if not terms or any(not terms.isdisjoint(message.terms) for message in cited):
        return note
    counted = [(len(terms & message.terms), message.seq) for message in messages]
    most = max(counted, default=(0, 0))[0]
    found = [seq for count, seq in counted if count == most and count]
    return replace(note, first_seq=found[0], last_seq=found[-1]) if found else note


def _checked_kind(note: Note, messages: Sequence[_Shown]) -> Note:
    said = [message for message in messages if message.by_user and note.first_seq <= message.seq <= note.last_seq]
    if note.kind == "pinned" and not any(asks_to_remember(message.text) for message in said):
        return replace(note, kind="high")
    if note.kind == "fact":
        value = content_words(_claim(note))
        if value and not any(value & message.terms for message in said):
            return replace(note, kind="medium")
    return note


def _asked_for(notes: Sequence[Note], messages: Sequence[_Shown]) -> list[Note]:
    """Return a pinned note for each message of the user that asks to remember something and has none."""
    found: list[Note] = []
    for message in messages:
        if not (message.by_user and asks_to_remember(message.text)):
            continue
        has_note = any(
            note.kind == "pinned"
            and note.first_seq <= message.seq <= note.last_seq
            and key_terms(message.text) <= key_terms(note.text) | content_words(note.text)
            for note in notes
        )
        if not has_note and len(found) < _MAX_PINNED:
            text = clean_text(message.text.removeprefix("user: "))[:_MAX_PINNED_CHARACTERS]
            found.append(Note("pinned", message.seq, message.seq, f"The user asked to remember: {text}"))
    return found


# -- days --------------------------------------------------------------------------------------------------------------

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
