"""Find what notes must keep: names, numbers, dates, decisions, promises, and what a user asked to remember.

It needs no model, so it also checks what a model wrote.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

_WORD = re.compile(r"\d+(?:[.,:/'\u2019-]\d+)+\w*|[^\W_](?:[\w@./:+&'\u2019-]*\w)?")
_WORDS = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?:^|[.!?:;(\"\u201c]\s*|- )$")
_TITLE = re.compile(r"\b(?:Dr|Mrs?|Ms|Prof|St)\.\s*$")
_QUOTED = re.compile(r"[\"\u201c\u201d`]([^\"\u201c\u201d`]{2,80})[\"\u201c\u201d`]")
_COMMON = frozenset(
    """
    a about after agent agreed all also an and any are as asked assistant at be because been before both but by can
    current currently did do does each earlier every first for from had has have he her here his how i if in into is it
    its later message messages more my new no not note notes now of on one open or other our please reported said she
    since so some still such system than that the their them then there these they this those to tool tools until user
    users was we were what when where which while who why will with without yes you your
    """.split()  # noqa: SIM905 - a list of words
)
_COMMITMENT = re.compile(
    r"\b(?:decided|decision|chose|agreed|agreement|promised?|promises|committed|must|deadline|due|todo|to do|pending|"
    r"unresolved|not yet|still open|open:|remind|waits?|waiting|owes?|follow up|next step)\b",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"(?:^|[.!?:;,\n]\s*|\b(?:please|also|and|bitte|por favor|you to|you|to you:?)\s+)"
    r"(?P<ask>(?:please\s+)?(?:remember(?:\s+(?:that|this|it|my|our|the|for|to)\b|\s*:)|"
    r"(?:don[\u2019']?t(?: you)?|do not|never) forget|keep in mind|bear in mind|make a note|note down|"
    r"merk dir|vergiss nicht|denk daran|souviens-toi|n[\u2019']oublie pas|recuerda que|no olvides)|for later:)"
    r"(?P<what>[^\n]{0,600})",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"\b(?:I|I[\u2019'](?:m|ve|ll|d)|my|mine|me|we|our|ours|us|ich|mein\w*|mir|mich|wir|uns\w*|je|mon|ma|mes|moi|notre|nos|"
    r"mi|mis|nuestr\w+)\b",
    re.IGNORECASE,
)
_TO_DO = re.compile(r"\s*(?:to|zu|de|d[\u2019'])\b", re.IGNORECASE)
_EARLIER = re.compile(
    r"\b(?:before|earlier|previous(?:ly)?|former(?:ly)?|used to|originally|initially|at first|back then|in the past|"
    r"old|changed?|changes|history|no longer|anymore|until now|so far|fr\u00fcher|vorher|urspr\u00fcnglich|avant|"
    r"antes)\b",
    re.IGNORECASE,
)
_VERBS = frozenset(["and", "can", "had", "has", "is", "lives", "must", "said", "says", "was", "wants", "will", "works"])
_MAX_CACHED_CHARACTERS = 1_200
_LOOK_BACK = 8  # characters before a word that tell whether it begins a sentence
_KEPT_SHARE = 0.6  # of its words: a decision may be reworded


def cached_if_short(find: Callable[[str], frozenset[str]]) -> Callable[[str], frozenset[str]]:
    """Cache the results of a function for notes, which are short; messages may be large."""
    cached = lru_cache(maxsize=4096)(find)
    return lambda text: cached(text) if len(text) <= _MAX_CACHED_CHARACTERS else find(text)


@cached_if_short
def key_terms(text: str) -> frozenset[str]:
    """Return the names, numbers, dates, codes and quoted words of a text, in lower case."""
    found: set[str] = set()
    for match in _WORD.finditer(text):
        word = match[0]
        plain = _singular(word.lower())
        if any(char.isdigit() for char in word):
            found.add(_number(plain))
        elif any(char in "@_/" for char in word) or any(char.isupper() for char in word[1:]):
            found.add(plain)
        elif word[0].isupper() and plain not in _COMMON:
            before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
            begins = _SENTENCE_END.search(before) is not None and _TITLE.search(before) is None
            if not begins or _is_subject(text, match.end(), plain):
                found.add(plain)
    for quoted in _QUOTED.finditer(text):
        found |= {word for word in words_of(quoted[1]) if word not in _COMMON}
    return frozenset(found)


def _is_subject(text: str, end: int, word: str) -> bool:
    """Whether the first word of a sentence is a name: a verb follows it, or another name."""
    following = _WORD.search(text, end)
    if following is None:
        return False
    after = following[0]
    if after[0].isupper() or after in _VERBS or (text[end - 1 : end] == "s" and text[end - 2 : end - 1] in "'\u2019"):
        return True
    return not word.endswith(("ed", "ing", "s")) and after.endswith(("ed", "s"))


@cached_if_short
def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that carry its content, in lower case."""
    return frozenset(word for word in words_of(text) if word not in _COMMON and (len(word) > 2 or word.isdigit()))


def missing_terms(text: str, kept: Iterable[str]) -> frozenset[str]:
    """Return the key terms of a text that none of the kept texts has."""
    wanted = key_terms(text)
    if not wanted:
        return wanted
    have = frozenset[str]().union(*(all_terms(other) for other in kept))
    return frozenset(term for term in wanted if term not in have and not set(words_of(term)) <= have)


@cached_if_short
def all_terms(text: str) -> frozenset[str]:
    """Return the words and the key terms of a text, in lower case."""
    words = words_of(text)
    return key_terms(text) | frozenset(words) | {_singular(word) for word in words}


def keeps_words(text: str, kept: Iterable[str]) -> bool:
    """Whether one of the kept texts still has most words of a text."""
    words = content_words(text)
    return not words or any(len(words & content_words(other)) >= _KEPT_SHARE * len(words) for other in kept)


def is_commitment(text: str) -> bool:
    """Whether a note is about a decision, or about something that is still open."""
    return _COMMITMENT.search(text) is not None


def asks_to_remember(text: str) -> bool:
    """Whether a user's message asks to remember something: a name, a number, or something about the user.

    An advice is none ("don't forget to stay positive"), and neither is a question ("do you remember the boat?").
    """
    for found in _REMEMBER.finditer(text):
        before, what = text[: found.start("ask")].rstrip().lower(), found["what"]
        if before.endswith(("do you", "did you", "don't you", "don\u2019t you", "i", "we", "they", "who")):
            continue
        ended = re.split(r"(?<=[.!?])\s", what, maxsplit=1)
        told = what if found["ask"].rstrip().endswith(("this", "it", ":", "for later:")) else ended[0]
        is_to_do = _TO_DO.match(told) or re.search(r"\bto$", found["ask"])
        if key_terms(f"Note: {told}") or (not is_to_do and _OWN.search(told)):
            return True
    return False


def asks_for_the_past(text: str) -> bool:
    """Whether a question is also about what held before."""
    return _EARLIER.search(text) is not None


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [match[0].lower() for match in _WORDS.finditer(text)]


def _singular(word: str) -> str:
    return re.sub(r"[\u2019']s?$", "", word)


def _number(word: str) -> str:
    """Return a number without the marks between thousands."""
    return re.sub(r"(?<=\d)[,\u2019'](?=\d{3})", "", word)
