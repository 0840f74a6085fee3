"""Find notes that a later note replaced: the newest one holds, and keeps the earlier ones as its history.

Two notes are about the same thing if they have the same words before "is" or "are". No note is deleted for that: a
note that only looks replaced stays readable behind the newer one.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from lango.store.memory.observations import Observation

_STATEMENT = re.compile(r"^(?P<about>[^.!?:=]{3,80}?)\s+(?:is|are|was|were)(?:\s+now)?\s+(?P<value>\S.*)$")
_GENERIC = frozenset(
    """
    a agent an assistant fact he her his i it its my note our s she that the their there they this user we what which
    who you your
    """.split()  # noqa: SIM905 - a list of words
)
_FIRST_WORDS = frozenset(["a", "an", "at", "by", "for", "from", "in", "not", "of", "on", "the", "to", "under", "with"])
_MAX_VALUE_WORDS = 8
_WORD = re.compile(r"[^\W_]+")


class CurrentNote(Struct, frozen=True):
    """A note that holds, and the notes that it replaced, the newest first."""

    note: Observation
    number: str = ""
    """The number of its batch, and its number in there: `3.1`."""
    earlier: tuple[Observation, ...] = ()


@lru_cache(maxsize=4096)
def statement_of(text: str) -> tuple[str, str] | None:
    """Return what a note is about and what it says of it; None: it is no statement of one value."""
    found = _STATEMENT.match(text)
    if found is None:
        return None
    about = [word.lower() for word in _WORD.findall(found["about"])]
    value = found["value"].strip()
    words = [word.lower() for word in _WORD.findall(value)]
    if not set(about) - _GENERIC or not words or len(words) > _MAX_VALUE_WORDS:
        return None
    # "the meeting is on ..." and "the meeting is in ..." are two things
    return " ".join([*about, *(words[:1] if words[0] in _FIRST_WORDS else [])]), value


def current_notes(notes: Sequence[Observation], numbers: Sequence[str] = ()) -> list[CurrentNote]:
    """Return the notes that hold, each with those that it replaced; what replaces a pinned note is pinned."""
    newest: dict[str, int] = {}
    earlier: dict[int, list[Observation]] = {}
    replaced: set[int] = set()
    pinned: set[int] = set()
    for place, note in enumerate(notes):
        said = statement_of(note.text)
        if said is None:
            continue
        before = newest.get(said[0])
        if before is not None:
            replaced.add(before)
            same = _same(notes[before].text, note.text)
            earlier[place] = ([] if same else [notes[before]]) + earlier.pop(before, [])
            pinned |= {place} if before in pinned else set()
        pinned |= {place} if note.priority == "pinned" else set()
        newest[said[0]] = place
    return [
        CurrentNote(
            replace(note, priority="pinned") if place in pinned else note,
            numbers[place] if numbers else "",
            tuple(earlier.get(place, ())),
        )
        for place, note in enumerate(notes)
        if place not in replaced
    ]


def _same(one: str, other: str) -> bool:
    return _WORD.findall(one.lower()) == _WORD.findall(other.lower())
