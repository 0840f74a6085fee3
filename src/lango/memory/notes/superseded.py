"""Find notes that a later note replaced: the newest one holds, and keeps the earlier ones as its history.

Two notes are about the same thing if they have the same words before "is" or "are", or before a verb for what holds at
one time only ("lives in", "costs"). No note is deleted for that: a note that only looks replaced stays behind the newer
one, and is shown to a user who asks about the past.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from lango.memory.notes.key_terms import all_terms, content_words, key_terms, words_of
from lango.store.memory.observations import Observation

_BE = frozenset(["are", "is", "was", "were"])
_ONE_AT_A_TIME = (
    "arrives|begins|belongs|closes|costs|departs|drives|earns|ends|expires|leaves|lives|measures|meets|opens|owes|pays|"
    "reports|runs|ships|sits|starts|stays|studies|takes|teaches|uses|weighs|works"
)
_STATEMENT = re.compile(
    rf"^(?P<about>[^.!?:=]{{3,80}}?)\s+(?P<verb>is|are|was|were|{_ONE_AT_A_TIME})(?:\s+now)?\s+(?P<value>\S.*)$"
)
_GENERIC = frozenset(
    """
    a agent an assistant fact he her his i it its my note our s she that the their there they this user we what which
    who you your
    """.split()  # noqa: SIM905 - a list of words
)
_FIRST_WORDS = frozenset(["a", "an", "at", "by", "for", "from", "in", "not", "of", "on", "the", "to", "under", "with"])
_MAX_VALUE_WORDS = 8


class CurrentNote(Struct, frozen=True):
    """A note that holds, and the notes that it replaced, the newest first."""

    note: Observation
    number: str = ""
    """The number of its batch, and its number in there: `3.1`."""
    earlier: tuple[Observation, ...] = ()


@lru_cache(maxsize=4096)
def statement_of(text: str) -> tuple[str, str] | None:
    """Return what a note is about and what it says of it, or None if it does not state one value."""
    found = _STATEMENT.match(text)
    if found is None:
        return None
    about, value = words_of(found["about"]), found["value"].strip()
    words = words_of(value)
    if not words or len(words) > _MAX_VALUE_WORDS:
        return None
    if found["verb"] in _BE:  # "the meeting is on ..." and "the meeting is in ..." are two things
        first = words[:1] if words[0] in _FIRST_WORDS else []
        return (" ".join([*about, *first]), value) if set(about) - _GENERIC else None
    terms = {part for term in key_terms(text) for part in words_of(term)}
    kind = [word for word in words if word not in terms and word != "now"]
    # "runs version 3" and "runs in the park" are two things, and "works with care" states no value
    return (" ".join([*about, found["verb"], *kind]), value) if terms & set(words) else None


def replaces(sentence: str, text: str) -> bool:
    """Whether a later sentence has another value for what a note states, perhaps in other words.

    Then it has the names of the note, another of its words, and other numbers or names that look like its value.
    """
    stated = statement_of(text)
    if stated is None or _same(sentence, text):
        return False
    said = statement_of(sentence)
    if said is not None and said[0] == stated[0]:
        return True
    value = key_terms(text) & all_terms(stated[1])
    names = key_terms(text) - value
    words = all_terms(sentence)
    further = content_words(text) - content_words(" ".join((*names, *value)))
    if not (value and names and names <= words and further & words):
        return False
    return {_shape(term) for term in value} <= {_shape(term) for term in key_terms(sentence) - all_terms(text)}


def _shape(term: str) -> str:
    """Return what a term looks like: `k-317` and `b-4` are alike, `317` and `May` are not."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "9", term))


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
    return _words(one) == _words(other)


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words_of(text))
