"""Conversations with planted facts, and a stand-in for every model that takes part in them.

Two conversations are generated in different ways, so that a mechanism that fits one of them only is found out. The
stand-in keeps every planted sentence of its prompt, the later of two about the same thing, and a line about the rest:
so systems are compared by what they show a model, when, and what later requests hold, not by how well a model sums up.
"""

import datetime
import random
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from lango.history import count_tokens
from lango.memory.notes.note_format import OBSERVE_PROMPT, REFLECT_PROMPT
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta

_REST = "They also talked about "
_LINE = re.compile(r"^#(\d+) |^- \[\w+\] \((\d+-\d+)\)", re.MULTILINE)
_ADK_PROMPT = "The following is a conversation history"

_VOCABULARY = (
    "harbour lantern meadow copper violin thunder saddle orchard marble falcon ribbon quarry cinder willow "
    "anchor parcel velvet beacon timber saffron glacier pepper canyon mirror bridge cotton ember forest garnet"
    " hollow"
)
_FIRST_NAMES = "Mara Ines Tilo Arne Greta Oskar Lena Pavel Nadia Bruno Silke Yusuf Clara Emil Hanna Ivo"
_LAST_NAMES = (
    "Lindt Berger Sommer Kranz Vogel Adler Brandt Fuchs Hartel Jansen Keller Lorenz Maurer Nagel Otten Peters "
    "Rauch Seidel Thoma Ulrich Wagner Zander Blum Dorn Ebner Falk Gruber Huber Immel Jung"
)
_THINGS = (
    "invoice contract meeting printer roadmap survey training backup ticket holiday slide report audit "
    "delivery workshop draft review proposal interview schedule"
)
_DONE = (
    "was moved to the afternoon|still needs a second look|went out yesterday|looks good to me|is on my "
    "list|took longer than we hoped|was discussed at length|can wait until the others are back|has three open "
    "comments|was sent to the wrong address"
)


# -- the conversations ------------------------------------------------------------------------------------------------


@dataclass
class Conversation:
    """The messages of user and agent turn by turn, and the facts that are true after each."""

    dice: random.Random
    truth: dict[str, str] = field(default_factory=dict[str, str])
    """The value of each fact."""
    stale: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Its earlier values."""

    def message(self, number: int) -> str:
        """Return the user's message of a turn."""
        raise NotImplementedError

    def answer(self) -> str:
        """Return an answer that tells nothing."""
        raise NotImplementedError

    def question(self, name: str) -> str:
        """Return a question for a fact."""
        raise NotImplementedError

    @staticmethod
    def statements(text: str) -> Iterator[tuple[int, str, str]]:
        """Find planted sentences: the place of each, the name of its fact, and the sentence as a note has it."""
        raise NotImplementedError

    def set_fact(self, name: str, value: str) -> None:
        """Set a fact to a new value."""
        if name in self.truth:
            self.stale.setdefault(name, set()).add(self.truth[name])
        self.truth[name] = value


class Values(Conversation):
    """Random words; every eighth message plants a fact of the form "My x y is z", every eighth changes one."""

    _WORDS: ClassVar = _VOCABULARY.split()
    _PLANTED: ClassVar = re.compile(r"My (\w+ \w+) is (\w+)\.")

    def message(self, number: int) -> str:
        words = " ".join(self.dice.choices(self._WORDS, k=60))
        if number % 8 == 4 and self.truth:
            return f"{self._plant(self.dice.choice(sorted(self.truth)))} {words}."
        if number % 8 == 0:
            return f"{words}. {self._plant(f'{self.dice.choice(self._WORDS)} {_letters(number)}')}"
        return f"{words}?"

    def answer(self) -> str:
        return f"I see. {' '.join(self.dice.choices(self._WORDS, k=40))}."

    def question(self, name: str) -> str:
        return f"What is my {name}?"

    @staticmethod
    def statements(text: str) -> Iterator[tuple[int, str, str]]:
        return ((found.start(), found[1], found[0]) for found in Values._PLANTED.finditer(text))

    def _plant(self, name: str) -> str:
        self.set_fact(name, f"value{_letters(len(self.truth) + sum(map(len, self.stale.values())))}")
        return f"My {name} is {self.truth[name]}."


def _letters(number: int) -> str:
    """Return a number in letters, which are distinct words to a tokenizer and a search."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number)) + "q"


@dataclass(frozen=True)
class _Kind:
    """A kind of fact: how it is said first, how a change is said, how a note says it, and how it is asked for."""

    first: str
    change: str
    note: str
    question: str
    value: Callable[[int], str]

    def pattern(self, form: str) -> re.Pattern[str]:
        """Return an expression for the sentences of a form."""
        text = re.escape(form).replace(r"\{name\}", r"(?P<name>[A-Z][a-z]+ [A-Z][a-z]+)")
        return re.compile(text.replace(r"\{value\}", r"(?P<value>[\w-]+(?:[ .][\w-]+)*?)") + r"(?!\S)")


class Office(Conversation):
    """Work in an office: messages of any length, five kinds of facts at irregular places, changes in other words.

    People have several facts, share parts of their names, and are mentioned in messages that tell no fact. Questions
    use other words than the sentence that planted the fact.
    """

    _DAY: ClassVar = datetime.date(2031, 1, 1)
    _KINDS: ClassVar = {
        "release": _Kind(
            "{name} ships on {value}.",
            "{name} is late and ships on {value} now.",
            "{name} ships on {value}.",
            "When will {name} be out?",
            lambda number: f"{Office._DAY + datetime.timedelta(number):%d %B %Y}",
        ),
        "phone": _Kind(
            "The phone number of {name} is {value}.",
            "{name} has a new phone number, it is {value}.",
            "The phone number of {name} is {value}.",
            "Which number do I dial for {name}?",
            lambda number: f"0555-{number:05}",
        ),
        "budget": _Kind(
            "The budget of {name} is {value} euros.",
            "They have set the budget of {name} to {value} euros.",
            "The budget of {name} is {value} euros.",
            "How much may {name} spend?",
            lambda number: str(10_000 + 7 * number),
        ),
        "room": _Kind(
            "{name} works in room {value}.",
            "{name} moved, the new room is {value}.",
            "{name} works in room {value}.",
            "Where do I find {name}?",
            lambda number: f"K-{number}",
        ),
        "version": _Kind(
            "The client {name} runs version {value}.",
            "After the upgrade {name} is on version {value}.",
            "The client {name} runs version {value}.",
            "What did we install at {name}?",
            lambda number: f"{number // 90}.{number % 90}.4",
        ),
    }
    _FIRST: ClassVar = _FIRST_NAMES.split()
    _LAST: ClassVar = _LAST_NAMES.split()
    _SENTENCES: ClassVar = 10

    def message(self, number: int) -> str:
        sentences = [self._noise() for _ in range(self.dice.randint(0, self._SENTENCES))]
        chance = self.dice.random()
        if chance < 0.12:
            kind = self.dice.choice(sorted(self._KINDS))
            name = f"{self.dice.choice(self._FIRST)} {self.dice.choice(self._LAST)}"
            sentences.insert(self.dice.randint(0, len(sentences)), self._plant(f"{kind}:{name}", number))
        elif chance < 0.2 and self.truth:
            changed = self.dice.choice(sorted(self.truth))
            sentences.insert(self.dice.randint(0, len(sentences)), self._plant(changed, number))
        return " ".join(sentences) or "Go on."

    def answer(self) -> str:
        return " ".join(["All right.", *(self._noise() for _ in range(self.dice.randint(0, self._SENTENCES)))])

    def question(self, name: str) -> str:
        kind, _, who = name.partition(":")
        return self._KINDS[kind].question.format(name=who)

    @staticmethod
    def statements(text: str) -> Iterator[tuple[int, str, str]]:
        found = [
            (match.start(), f"{name}:{match['name']}", kind.note.format(**match.groupdict()))
            for name, kind in Office._KINDS.items()
            for form in dict.fromkeys([kind.first, kind.change, kind.note])
            for match in kind.pattern(form).finditer(text)
        ]
        return iter(sorted(found))

    def _plant(self, name: str, number: int) -> str:
        kind = self._KINDS[name.partition(":")[0]]
        form = kind.change if name in self.truth else kind.first
        self.set_fact(name, kind.value(number))
        return form.format(name=name.partition(":")[2], value=self.truth[name])

    def _noise(self) -> str:
        sentence = f"The {self.dice.choice(_THINGS.split())} {self.dice.choice(_DONE.split('|'))}"
        if self.truth and self.dice.random() < 0.1:
            return f"{sentence}, says {self.dice.choice(sorted(self.truth)).partition(':')[2]}."
        return f"{sentence}."


# -- the stand-in -----------------------------------------------------------------------------------------------------


class StandIn:
    """A stand-in for the models of agent, observer, reflector and summariser, which counts their requests."""

    name = "standin"

    def __init__(self, talk: type[Conversation]) -> None:
        self.request: Request | None = None
        """The newest request for an answer."""
        self.next_answer = ""
        self.memory_calls = 0
        self.memory_tokens = 0
        self.request_tokens = 0
        """Its tokens."""
        self.all_tokens = 0
        self.requests = 0
        self.tokens = 0
        """Of the counted requests for answers."""
        self.unchanged_tokens = 0.0
        """Of these, the tokens in a common prefix with the request before."""
        self.asking = False
        """Whether a question is asked in a copy of the session: it counts for nothing but its request."""
        self.cpu_s = 0.0
        """CPU time of the stand-in itself, which is no part of a system's."""
        self._talk = talk
        self._before = ""

    def start_counting(self) -> None:
        """Count requests from the second one on: the first has none to be compared with."""
        self.requests = self.tokens = 0
        self.unchanged_tokens = 0.0
        self._before = ""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        began = time.process_time()
        tokens = count_tokens(request.messages) + count_tokens(request.system)
        answer = self._summary(request)
        if answer is None:
            answer = self.next_answer
            self.request, self.request_tokens = request, tokens
            if not self.asking:
                self._count(request, tokens)
        elif not self.asking:
            self.memory_calls += 1
            self.memory_tokens += tokens + count_tokens(answer)
        used = count_tokens(answer)
        self.cpu_s += time.process_time() - began
        yield TextDelta(answer)
        yield UsageDelta(tokens, used)
        yield Finish("stop")

    def _count(self, request: Request, tokens: int) -> None:
        text = "\x00".join([request.system, *(f"{message.role}:{message.content}" for message in request.messages)])
        if self._before:
            self.requests += 1
            self.tokens += tokens
            self.unchanged_tokens += tokens * len(common_prefix(self._before, text)) / len(text)
        self._before = text

    def _summary(self, request: Request) -> str | None:
        text = request.messages[-1].content
        if request.system.startswith((OBSERVE_PROMPT, REFLECT_PROMPT)):
            return self._kept(text, request.system.startswith(REFLECT_PROMPT), "- [high] ({seqs}) {sentence}")
        return self._kept(text, _REST in text, "{sentence}") if text.startswith(_ADK_PROMPT) else None

    def _kept(self, text: str, condense: bool, form: str) -> str:
        """Return the planted sentences, each fact once with its latest value, and a line about new other text."""
        found: dict[str, str] = {}
        for place, name, sentence in self._talk.statements(text):
            found.pop(name, None)
            found[name] = form.format(seqs=_seqs_before(text, place), sentence=sentence)
        lines = list(found.values())
        if not condense:
            rest = f"{_REST}{' and '.join(re.findall(r'[a-z]{5,}', text)[-6:])}."
            lines.append(form.replace("high", "low").format(seqs=_seqs_before(text, len(text)), sentence=rest))
        return "\n".join(lines or ["- [low] nothing of note"])


def _seqs_before(text: str, place: int) -> str:
    start = max(text.rfind("\n#", 0, place), text.rfind("\n- [", 0, place)) + 1
    found = _LINE.match(text, start)
    return (found[1] or found[2]) if found else "0"


def common_prefix(one: str, other: str) -> str:
    """Return the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if one[:half] == other[:half] else (low, half - 1)
    return one[:low]
