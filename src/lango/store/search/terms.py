"""Text to words, for the index of the search and for what is asked of it: pure functions.

A word is a run of letters and digits, folded: case, accents and width make no difference. Scripts that are written
without spaces (Chinese, Japanese, Thai, ...) are cut into pairs of neighbouring characters, so that any part of such a
text is found, one character too. What is asked is only ever taken apart into words: there is no syntax in it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

MAX_WORD_LENGTH = 64
MAX_TERMS = 32

_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# compiled at first use: that takes longer than to import all the rest of a store
_WORD = cache(lambda: re.compile(rf"(?:[^\W_]|[{_MARKS}])+"))
_PART = cache(lambda: re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+"))
_IS_UNSPACED = cache(lambda: re.compile(f"[{_UNSPACED}]"))
_ACCENTS = dict.fromkeys(range(0x300, 0x370))

Span = tuple[int, int]


class FoundWord(Struct, frozen=True):
    """A word of a text, or one character of a script without spaces."""

    text: str
    start: int
    end: int
    run: int
    """Characters of one run have the same number; 0: a word."""


class Term(Struct, frozen=True):
    """What must be found: a word, its beginning, or characters that follow each other."""

    text: str
    prefix: bool = False
    run: bool = False

    @property
    def keys(self) -> list[tuple[str, bool]]:
        """What to look up in the index; True: anything that begins so."""
        if not self.run:
            return [(self.text, self.prefix)]
        if len(self.text) == 1:
            return [(self.text, True)]
        return [(pair, False) for pair in _pairs(self.text)]


def index_words(text: str) -> list[str]:
    """Return the different words of a text as the index holds them."""
    words: dict[str, None] = {}
    runs: dict[int, str] = {}
    for found in _split_words(text):
        if found.run:
            runs[found.run] = runs.get(found.run, "") + found.text
        else:
            words[found.text] = None
    for run in runs.values():
        words.update(dict.fromkeys([*_pairs(run), run[-1]]))
    return list(words)


def parse_terms(query: str) -> list[Term]:
    """Take apart what somebody asks for. The last word may be the beginning of one."""
    found: list[Term] = []
    run = 0
    for word in _split_words(query):
        if not word.run:
            found.append(Term(word.text))
        elif word.run == run:
            found[-1] = Term(found[-1].text + word.text, run=True)
        else:
            found.append(Term(word.text, run=True))
        run = word.run
    if found and not found[-1].run:
        found[-1] = Term(found[-1].text, prefix=True)
    return list(dict.fromkeys(found))[:MAX_TERMS]


def find_spans(text: str, wanted: Iterable[Term]) -> list[Span] | None:
    """Return where the terms stand in a text, in order; None: one of them does not."""
    found = list(_split_words(text))
    marks: set[Span] = set()
    for term in wanted:
        places = list(_find_term(found, term))
        if not places:
            return None
        marks.update(places)
    return _merge_spans(sorted(marks))


def is_phrase_in(text: str, wanted: Sequence[Term]) -> bool:
    """Whether several terms stand in a text one after the other."""
    wanted_words = [(letter, False) for term in wanted for letter in (term.text if term.run else [term.text])]
    if len(wanted) < 2:
        return False
    wanted_words[-1] = wanted_words[-1][0], wanted[-1].prefix
    found = [word.text for word in _split_words(text)]
    return any(
        all(
            word.startswith(letter) if prefix else word == letter
            for word, (letter, prefix) in zip(found[place:], wanted_words, strict=False)
        )
        for place in range(len(found) - len(wanted_words) + 1)
    )


def _find_term(found: list[FoundWord], term: Term) -> Iterator[Span]:
    if not term.run:
        for word in found:
            if not word.run and (word.text.startswith(term.text) if term.prefix else word.text == term.text):
                yield word.start, word.end
        return
    length = len(term.text)
    for place in range(len(found) - length + 1):
        part = found[place : place + length]
        if part[0].run and part[0].run == part[-1].run and "".join(word.text for word in part) == term.text:
            yield part[0].start, part[-1].end


def _merge_spans(places: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in places:
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _split_words(text: str) -> Iterator[FoundWord]:
    run = 0
    for word in _WORD().finditer(text):
        for part in _PART().finditer(text, word.start(), word.end()):
            start, end = part.span()
            if not _IS_UNSPACED().match(part[0]):
                folded = _fold(part[0])[:MAX_WORD_LENGTH]
                if folded:
                    yield FoundWord(folded, start, end, 0)
                continue
            run += 1
            for place in range(start, end):
                folded = _fold(text[place])
                if len(folded) == 1:
                    yield FoundWord(folded, place, place + 1, run)


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word).casefold().translate(_ACCENTS)
    return "".join(char for char in unicodedata.normalize("NFKC", plain) if _WORD().match(char))


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]
