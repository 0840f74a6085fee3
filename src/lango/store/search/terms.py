"""Split text into folded words, for the index and for queries.

A word is a run of letters and digits; case, accents and width are ignored. Scripts without spaces (Chinese, Japanese,
Thai, ...) are split into pairs of neighbouring characters, so that any part of such a text is found, also a single
character. A query has no syntax: it is only split into words.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from msgspec import Struct

from lango.config import Language

MAX_WORD_LENGTH = 64
_STEM_MARK = "\u00a7"
"""Before a stem in the index: no word has it, and SQLite's tokenizer takes it for a letter."""
MAX_TERMS = 32

_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# compiled at first use: that takes longer than importing the rest of the store
_WORD = cache(lambda: re.compile(rf"(?:[^\W_]|[{_MARKS}])+"))
_ASCII_WORD = cache(lambda: re.compile("[a-z0-9]+"))
_PART = cache(lambda: re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+"))
_IS_UNSPACED = cache(lambda: re.compile(f"[{_UNSPACED}]"))
_ACCENTS = dict.fromkeys(range(0x300, 0x370))

Span = tuple[int, int]
_MIN_STEMMED = 4
_SCRIPTS = (
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x04FF, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)


class FoundWord(Struct, frozen=True):
    """A word of a text, or one character of a script without spaces."""

    text: str
    start: int
    end: int
    run: int
    """The number of the run that a character belongs to; 0: a word."""


class Term(Struct, frozen=True):
    """A part of a query: a word, the beginning of a word, or neighbouring characters."""

    text: str
    prefix: bool = False
    run: bool = False
    stem: str = ""
    """The stem of a word whose other forms are found, too."""

    @property
    def keys(self) -> list[tuple[str, bool]]:
        """The words to look up in the index; True: as prefixes."""
        if not self.run:
            return [(self.text, self.prefix)]
        if len(self.text) == 1:
            return [(self.text, True)]
        return [(pair, False) for pair in _pairs(self.text)]

    @property
    def forms(self) -> list[str]:
        """The entries of the index for a word with any of the forms of its stem."""
        return list(dict.fromkeys([self.text, self.stem, f"{_STEM_MARK}{self.stem}"]))


def index_words(text: str) -> list[str]:
    """Return the distinct words of a text as a query looks them up."""
    if text.isascii():  # most texts: this is ten times as fast
        return list(dict.fromkeys(word[:MAX_WORD_LENGTH] for word in _ASCII_WORD().findall(text.lower())))
    words: dict[str, None] = {}
    runs: dict[int, str] = {}
    for found in _split_words(unicodedata.normalize("NFC", text)):
        if found.run:
            runs[found.run] = runs.get(found.run, "") + found.text
        else:
            words[found.text] = None
    for run in runs.values():
        words.update(dict.fromkeys([*_pairs(run), run[-1]]))
    return list(words)


def index_stems(text: str, language: Language) -> list[str]:
    """Return the entries of the index for the stems of a text that are no words of it; no query is like them."""
    if text.isascii():
        ascii_words = set(_ASCII_WORD().findall(text.lower()))
        stems = {stem[:MAX_WORD_LENGTH] for word in ascii_words if (stem := stem_of(word, language)) != word}
        return sorted(f"{_STEM_MARK}{stem}" for stem in stems)
    normal = unicodedata.normalize("NFC", text)
    words = {(word.text, normal[word.start : word.end].lower()) for word in _split_words(normal) if not word.run}
    stems = {stem for folded, word in words if (stem := _folded_stem(word, language)) != folded}
    return sorted(f"{_STEM_MARK}{stem}" for stem in stems)


def stems_in_order(text: str, language: Language) -> list[str]:
    """Return the stem of each word of a text, and each pair of characters of a script without spaces."""
    if text.isascii():
        return [stem_of(word, language)[:MAX_WORD_LENGTH] for word in _ASCII_WORD().findall(text.lower())]
    normal = unicodedata.normalize("NFC", text)
    found: list[str] = []
    before: FoundWord | None = None
    for word in _split_words(normal):
        if not word.run:
            found.append(_folded_stem(normal[word.start : word.end].lower(), language))
        elif before is not None and before.run == word.run:
            found.append(before.text + word.text)
        before = word
    return found


def _folded_stem(word: str, language: Language) -> str:
    return _fold(stem_of(word, language))[:MAX_WORD_LENGTH]


def parse_terms(query: str) -> list[Term]:
    """Split a query into terms; the last word may be the beginning of a word."""
    found = split_terms(query)
    if found and not found[-1].run:
        found[-1] = Term(found[-1].text, prefix=True)
    return list(dict.fromkeys(found))[:MAX_TERMS]


def split_terms(query: str, language: Language | None = None) -> list[Term]:
    """Split a text into all of its words, and runs of characters of scripts without spaces, in order.

    With a language, a word stands for its other forms, too.
    """
    found: list[Term] = []
    run = 0
    normal = unicodedata.normalize("NFC", query)
    for word in _split_words(normal):
        if not word.run:
            stem = _folded_stem(normal[word.start : word.end].lower(), language) if language else ""
            found.append(Term(word.text, stem=stem))
        elif word.run == run:
            found[-1] = Term(found[-1].text + word.text, run=True)
        else:
            found.append(Term(word.text, run=True))
        run = word.run
    return found


def find_spans(text: str, wanted: Iterable[Term]) -> list[Span] | None:
    """Return the matches of the terms in a text, in order, or None if a term is missing."""
    found = list(_split_words(text))
    marks: set[Span] = set()
    for term in wanted:
        places = list(_find_term(found, term))
        if not places:
            return None
        marks.update(places)
    return _merge_spans(sorted(marks))


def is_phrase_in(text: str, wanted: Sequence[Term]) -> bool:
    """Whether several terms follow each other in a text."""
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


@lru_cache(maxsize=50_000)
def stem_of(word: str, language: Language) -> str:
    """Return the stem of a word in lower case, or the word if it is short, has digits, or its script has no stemmer."""
    if len(word) < _MIN_STEMMED or not word.isalpha():
        return word
    code = ord(word[0])
    name = language if code < 0x0250 else next((name for first, last, name in _SCRIPTS if first <= code <= last), "")
    return cast("str", _stemmer(name).stemWord(word)) if name else word


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - imported when it is used: it takes 30 ms

    return cast("Any", snowballstemmer).stemmer(language)
