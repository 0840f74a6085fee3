"""Reduce English words to their stems with Porter's algorithm, in the variant that ROUGE scores are computed with.

The variant is that of NLTK, which ADK's `response_match_score` uses: it differs from the published algorithm in short
words, in `-ied`, `-y`, `-fully` and `-logy`, and knows a few irregular words.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

_IRREGULAR = {
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "innings": "inning",
    "outings": "outing",
    "cannings": "canning",
} | {word: word for word in ("sky", "news", "inning", "outing", "canning", "howe", "proceed", "exceed", "succeed")}

_STEP_2 = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
    ("logi", "log"),
]
_STEP_3 = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
]
_STEP_4 = [
    (suffix, "")
    for suffix in (
        *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment"),
        *("ent", "ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
    )
]


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """Return the stem of a word in lower case."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _step_2, _step_3, _step_4, _final_e, _double_l):
        word = step(word)
    return word


def _is_consonant(word: str, at: int) -> bool:
    if word[at] in "aeiou":
        return False
    return word[at] != "y" or at == 0 or not _is_consonant(word, at - 1)


def _measure(text: str) -> int:
    """Count the vowels that a consonant follows."""
    kinds = [_is_consonant(text, at) for at in range(len(text))]
    return sum(after and not before for before, after in pairwise(kinds))


def _has_vowel(text: str) -> bool:
    return not all(_is_consonant(text, at) for at in range(len(text)))


def _ends_short(text: str) -> bool:
    """Whether a text ends with consonant, vowel, consonant, or is a vowel and a consonant."""
    if len(text) == 2:
        return not _is_consonant(text, 0) and _is_consonant(text, 1)
    return (
        len(text) >= 3
        and _is_consonant(text, len(text) - 3)
        and not _is_consonant(text, len(text) - 2)
        and _is_consonant(text, len(text) - 1)
        and text[-1] not in "wxy"
    )


def _replace(word: str, rules: Sequence[tuple[str, str]], applies: Callable[[str, str], bool]) -> str:
    """Replace the first suffix that fits, if its rule applies to what is before it."""
    for suffix, new in rules:
        if word.endswith(suffix):
            before = word.removesuffix(suffix)
            return before + new if applies(before, suffix) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replace(word, [("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")], lambda before, suffix: True)


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        before = word.removesuffix(suffix)
        if before != word and _has_vowel(before):
            return _past_stem(before)
    return word


def _past_stem(word: str) -> str:
    """Repair the end of a word that lost `-ed` or `-ing`."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) >= 2 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _final_y(word: str) -> str:
    return _replace(
        word, [("y", "i")], lambda before, suffix: len(before) > 1 and _is_consonant(before, len(before) - 1)
    )


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _step_2(word[:-2])
    # the `l` of `-logi` counts as a part of the stem
    return _replace(word, _STEP_2, lambda before, suffix: _measure(before + ("l" if suffix == "logi" else "")) > 0)


def _step_3(word: str) -> str:
    return _replace(word, _STEP_3, lambda before, suffix: _measure(before) > 0)


def _step_4(word: str) -> str:
    return _replace(
        word, _STEP_4, lambda before, suffix: _measure(before) > 1 and (suffix != "ion" or before[-1] in "st")
    )


def _final_e(word: str) -> str:
    before = word.removesuffix("e")
    if before == word:
        return word
    measure = _measure(before)
    return before if measure > 1 or (measure == 1 and not _ends_short(before)) else word


def _double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
