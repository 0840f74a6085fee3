"""Compare texts by their words: ROUGE-1, as ADK's `response_match_score`.

The stems are those of Porter's published algorithm. ADK's score uses a variant, which differs in a few words.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

_MIN_STEMMED = 4
_ONE_BY_ONE = ((0x4E00, 0x9FFF), (0x3040, 0x309F), (0x30A0, 0x30FF), (0xAC00, 0xD7AF))
"""Chinese, Japanese and Korean: each character counts as a word."""
_WITHOUT_SPACES = ((0x0E00, 0x0E7F), (0x0E80, 0x0EFF), (0x1780, 0x17FF), (0x1000, 0x109F))
"""Thai, Lao, Khmer and Burmese: a letter with its marks counts as a word."""


def similarity(answer: str, expected: str) -> float:
    """Return how much the words of two texts overlap, from 0 to 1: the F-measure of ROUGE-1."""
    words, expected_words = Counter(_words(answer)), Counter(_words(expected))
    common = (words & expected_words).total()
    if not common:
        return 0.0
    precision, recall = common / words.total(), common / expected_words.total()
    return 2 * precision * recall / (precision + recall)


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, the English ones as stems."""
    stemmer = cast("Any", snowballstemmer).stemmer("porter")
    spaced = "".join(map(_with_spaces, unicodedata.normalize("NFKC", text).lower()))
    for word in spaced.split():
        yield stemmer.stemWord(word) if word.isascii() and len(word) >= _MIN_STEMMED else word


def _with_spaces(char: str) -> str:
    code, is_mark = ord(char), unicodedata.category(char).startswith("M")
    if _is_in(code, _ONE_BY_ONE):
        return f" {char} "
    if _is_in(code, _WITHOUT_SPACES):
        return char if is_mark else f" {char}"
    return char if char.isalnum() or is_mark else " "


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)
