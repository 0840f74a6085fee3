# ruff: noqa: SIM905 - lists of words
"""Conversations over simulated months, with questions of five kinds and the messages that answer them.

Four styles are written apart: two friends who chat, a user who reports on work to an assistant, a diary, terse chats.
Questions use other words than the messages in part; an answer may stand in the message after the one with their words.
What a person tells is drawn from a seed. `docs/benchmarks.md` tells what was chosen by looking at which of them.
"""

from dataclasses import dataclass, field
from datetime import datetime

ONE, TWO, TIME, CHANGE, NEVER = "one place", "two places", "time", "change", "never said"
KINDS = (ONE, TWO, TIME, CHANGE, NEVER)


@dataclass(frozen=True)
class Said:
    """A message: of the user (True) or the assistant, its text and its time."""

    by_user: bool
    text: str
    at: datetime


@dataclass(frozen=True)
class Question:
    """A question, and what has to be in a request that can answer it."""

    kind: str
    text: str
    evidence: tuple[str, ...] = ()
    """Sentences, all of which are needed."""
    wrong: tuple[str, ...] = ()
    """Sentences that look like an answer: an older value, or the answer to a question about another person."""


@dataclass
class Talk:
    """A conversation, and the questions that are asked at its end."""

    messages: list[Said] = field(default_factory=list[Said])
    questions: list[Question] = field(default_factory=list[Question])


NAMES = (
    "Alma Boris Celia Dario Edith Fergus Gwen Hector Imogen Jonas Kirsten Leopold Mabel Nikolai Odette Percy Quentin "
    "Rosalind Stefan Thea Ulla Viktor Wendy Xavier Yvonne Zacharias"
).split()
PLACES = (
    "Lisbon|Reykjavik|Kyoto|Tallinn|Valparaiso|Marrakesh|Ljubljana|Edinburgh|Quebec|Hanoi|Cusco|Palermo|Bergen|Tbilisi"
).split("|")
MONTHS = ("January February March April May June July August September October November December").split()
