"""Adversarial histories as ADK sessions hold them: calls and results that do not fit each other, in every way.

Every text and every result carries a word of its own, so that a request shows what of the history it holds.
"""

import random
from collections.abc import Callable, Iterator

from google.adk.events import Event
from google.genai import types
from msgspec import Struct, field

ROOT, OTHER = "root", "expert"
HUGE_WORDS = 60_000
"""More than any budget that these histories are sent under."""

_NAMES = ("search", "read", "exec")


class History(Struct):
    """The events of a session, and the words by which its texts and results are known."""

    events: list[Event] = field(default_factory=list[Event])
    texts: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])


class _Writer:
    """Writes one history, event by event."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.history = History()
        self._count = 0

    def _word(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}q{self.rng.randrange(10**6)}z"

    def text(self) -> types.Part:
        word = self._word("text")
        self.history.texts.append(word)
        return types.Part(text=f"{word} " + "words of a conversation " * self.rng.randrange(4))

    def call(self, name: str, call_id: str | None) -> types.Part:
        signature = b"of another model" if self.rng.random() < 0.1 else None
        call = types.FunctionCall(id=call_id, name=name, args={"q": self._word("args")})
        return types.Part(function_call=call, thought_signature=signature)

    def result(self, name: str | None, call_id: str | None, *, huge: bool = False) -> types.Part:
        word = self._word("result")
        self.history.results.append(word)
        more = "data " * (HUGE_WORDS if huge else self.rng.randrange(30))
        response = types.FunctionResponse(id=call_id, name=name, response={"out": f"{word} {more}"})
        return types.Part(function_response=response)

    def add(self, author: str, role: str | None, *parts: types.Part) -> None:
        event = Event(
            author=author,
            invocation_id=f"e{len(self.history.events)}",
            content=types.Content(role=role, parts=list(parts)),
            timestamp=float(len(self.history.events) + 1),
        )
        self.history.events.append(event)

    def name(self) -> str:
        return self.rng.choice(_NAMES)

    def id(self) -> str:
        return self._word("id")

    def result_role(self) -> str | None:
        return self.rng.choice(["user", "user", "function", "model", None])


def _talk(w: _Writer) -> None:
    w.add("user", w.rng.choice(["user", "user", None]), w.text())
    w.add(ROOT, w.rng.choice(["model", "model", None]), w.text())


def _sound_turn(w: _Writer) -> None:
    ids = [w.id() for _ in range(w.rng.randint(1, 3))]
    names = [w.name() for _ in ids]
    w.add("user", "user", w.text())
    w.add(ROOT, "model", w.text(), *(w.call(name, one) for name, one in zip(names, ids, strict=True)))
    w.add(ROOT, w.result_role(), *(w.result(name, one) for name, one in zip(names, ids, strict=True)))
    w.add(ROOT, "model", w.text())


def _orphan_call(w: _Writer) -> None:
    w.add(ROOT, "model", w.text(), w.call(w.name(), w.id()))


def _orphan_result(w: _Writer) -> None:
    w.add(w.rng.choice([ROOT, "user"]), w.result_role(), w.result(w.name(), w.id()))


def _result_first(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, w.result_role(), w.result(name, one))
    w.add(ROOT, "model", w.call(name, one))


def _second_result(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, "model", w.call(name, one))
    w.add(ROOT, w.result_role(), w.result(name, one))
    if w.rng.random() < 0.5:
        w.add(ROOT, "model", w.text())
    w.add(ROOT, w.result_role(), w.result(name, one))


def _no_id(call_has_one: bool, result_has_one: bool) -> Callable[[_Writer], None]:
    def turn(w: _Writer) -> None:
        name = w.name()
        w.add(ROOT, "model", w.call(name, w.id() if call_has_one else w.rng.choice([None, ""])))
        w.add(ROOT, w.result_role(), w.result(name, w.id() if result_has_one else w.rng.choice([None, ""])))

    return turn


def _parallel_without_ids(w: _Writer) -> None:
    name = w.name()
    w.add(ROOT, "model", w.call(name, w.id()), w.call(name, None), w.call(w.name(), w.id()))
    w.add(ROOT, "function", w.result(name, None), w.result(name, None))


def _same_ids(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, "model", w.call(name, one), w.call(name, one))
    w.add(ROOT, w.result_role(), w.result(name, one))
    w.add(ROOT, w.result_role(), w.result(name, one))


def _id_again(w: _Writer) -> None:
    name, one = w.name(), w.id()
    for _ in range(2):
        w.add(ROOT, "model", w.call(name, one))
        w.add(ROOT, w.result_role(), w.result(name, one))


def _partly_answered(w: _Writer) -> None:
    ids = [w.id() for _ in range(3)]
    w.add(ROOT, "model", *(w.call("read", one) for one in ids))
    w.add(ROOT, w.result_role(), w.result("read", ids[1]))
    w.add("user", "user", w.text())


def _mixed_results(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, "model", w.text(), w.call(name, one))
    w.add(ROOT, w.result_role(), w.result(name, one), w.result(w.name(), w.id()), w.text())


def _late_result(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, "model", w.call(name, one))
    _talk(w)
    w.add(ROOT, w.result_role(), w.result(name, one))


def _call_and_result_in_one(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(ROOT, "model", w.call(name, one), w.result(name, one), w.text())


def _unnamed_result(w: _Writer) -> None:
    w.add(ROOT, "model", w.call(w.name(), w.id()))
    w.add(ROOT, "function", w.result(None, None))


def _another_agent(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add(OTHER, "model", w.text(), w.call(name, one))
    w.add(OTHER, w.result_role(), w.result(name, w.rng.choice([one, None])))
    w.add(OTHER, w.rng.choice(["model", None]), w.text())
    w.add(OTHER, w.result_role(), w.result(name, w.id()))


def _empty(w: _Writer) -> None:
    w.add("user", "user", types.Part(text=w.rng.choice(["", " ", "\n"])))
    w.add(
        ROOT, "model", types.Part(text="", thought_signature=b"of another model"), types.Part(text="hm", thought=True)
    )


def _huge_result(w: _Writer) -> None:
    name, one = w.name(), w.id()
    w.add("user", "user", w.text())
    w.add(ROOT, "model", w.text(), w.call(name, one))
    w.add(ROOT, "user", w.result(name, one, huge=True))
    w.add(ROOT, "model", w.text())


def _many_small(w: _Writer) -> None:
    w.add("user", "user", w.text())
    for _ in range(5):
        name, one = w.name(), w.id()
        w.add(ROOT, "model", w.call(name, one))
        w.add(ROOT, "user", w.result(name, one))


_PIECES: dict[Callable[[_Writer], None], int] = {
    _talk: 4,
    _sound_turn: 3,
    _orphan_call: 1,
    _orphan_result: 1,
    _result_first: 1,
    _second_result: 1,
    _no_id(call_has_one=True, result_has_one=False): 1,
    _no_id(call_has_one=False, result_has_one=True): 1,
    _no_id(call_has_one=False, result_has_one=False): 1,
    _parallel_without_ids: 1,
    _same_ids: 1,
    _id_again: 1,
    _partly_answered: 1,
    _mixed_results: 1,
    _late_result: 1,
    _call_and_result_in_one: 1,
    _unnamed_result: 1,
    _another_agent: 1,
    _empty: 1,
    _huge_result: 1,
    _many_small: 1,
}


def histories(count: int, seed: int = 1) -> Iterator[History]:
    """Write so many histories, the same ones for the same seed."""
    for number in range(count):
        writer = _Writer(random.Random(f"{seed}/{number}"))
        for piece in writer.rng.choices(list(_PIECES), list(_PIECES.values()), k=writer.rng.randint(3, 10)):
            piece(writer)
        yield writer.history
