"""Reduce words to their stems, so that a question finds other forms of its words ("lives", "living").

The script of a word decides the language; for Latin letters it is a setting, English by default.
"""

from functools import cache, lru_cache
from typing import Any, cast

from lango.config import Language

_MIN_STEMMED = 4
_SCRIPTS = (
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x04FF, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)


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
