"""Memory over long conversations: the plain window, ADK's own compaction, and observational memory, side by side.

Facts are planted in a synthetic conversation, and some are changed later. All three use the same stand-in for a model:
it keeps every planted sentence of its prompt, the later of two about the same thing, and a line about the rest. So the
benchmark compares the mechanisms - what each one shows the model, when, and what later requests still hold - and not
how well a model summarises.
"""

import asyncio
import itertools
import logging
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.runners import Runner
from google.genai import types

from benchmarks.table import print_line, quick, table
from lango import Settings, open_runtime
from lango.adk import ProviderLlm, SqlSessionService
from lango.history import count_tokens
from lango.memory.lost import trace_text
from lango.memory.note_format import OBSERVE_PROMPT, REFLECT_PROMPT
from lango.messages import Message
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta
from lango.runtime.runtime import Runtime

BUDGET_TOKENS = 8_000
CHECKPOINTS = (50, 200) if quick() else (50, 200, 1_000)
KEEP_TURNS = 2
INSTRUCTION = "You are a helpful assistant."
PLAIN, ADK, OURS = "plain window", "ADK's compaction", "observational memory"

MOST_QUESTIONS = 130
States = dict[int, tuple[dict[str, str], dict[str, set[str]]]]
"""The facts planted before a turn, and their old values."""
_PLANTED = re.compile(r"My (\w+ \w+) is (\w+)\.")
_REST = "They also talked about "
_LINE = re.compile(r"^#(\d+) |^- \[\w+\] \((\d+-\d+)\)", re.MULTILINE)
_ADK_PROMPT = "The following is a conversation history"
_TALK = (
    "harbour lantern meadow copper violin thunder saddle orchard marble falcon ribbon quarry cinder willow anchor "
    "parcel velvet beacon timber saffron glacier pepper canyon mirror bridge cotton ember forest garnet hollow"
)
_WORDS = _TALK.split()


# -- the conversation -------------------------------------------------------------------------------------------------


@dataclass
class Conversation:
    """The user's messages turn by turn, and the facts that are true at each."""

    dice: random.Random = field(default_factory=lambda: random.Random(7))
    truth: dict[str, str] = field(default_factory=dict)
    stale: dict[str, set[str]] = field(default_factory=dict)
    _values: Iterable[int] = field(default_factory=itertools.count)

    def next_message(self, number: int) -> str:
        """Return the next message: every eighth plants a fact, every eighth changes one, the rest is noise."""
        words = " ".join(self.dice.choices(_WORDS, k=60))
        if number % 8 == 4 and self.truth:
            return f"{self._plant(self.dice.choice(sorted(self.truth)))} {words}."
        if number % 8 == 0:
            return f"{words}. {self._plant(f'{self.dice.choice(_WORDS)} {_letters(number)}')}"
        return f"{words}?"

    def _plant(self, name: str) -> str:
        value = f"value{_letters(next(iter(self._values)))}"
        if name in self.truth:
            self.stale.setdefault(name, set()).add(self.truth[name])
        self.truth[name] = value
        return f"My {name} is {value}."


def _letters(number: int) -> str:
    """Return a number in letters, which are distinct words to a tokenizer and a search."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number)) + "q"


# -- the stand-in -----------------------------------------------------------------------------------------------------


class StandIn:
    """A stand-in for the models of agent, observer, reflector and summariser, which counts its requests."""

    name = "standin"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers = 0
        self.memory_calls = 0
        self.memory_tokens = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        tokens = count_tokens(request.messages) + count_tokens(request.system)
        answer = self._summary(request)
        if answer is None:
            self.requests.append(request)
            answer = self.chat()
        else:
            self.memory_calls += 1
            self.memory_tokens += tokens + count_tokens(answer)
        yield TextDelta(answer)
        yield UsageDelta(tokens, count_tokens(answer))
        yield Finish("stop")

    def chat(self) -> str:
        """Return an answer that says nothing."""
        self._answers += 1
        return f"I see. {' '.join(random.Random(self._answers).choices(_WORDS, k=40))}."

    def _summary(self, request: Request) -> str | None:
        text = request.messages[-1].content
        if request.system.startswith((OBSERVE_PROMPT, REFLECT_PROMPT)):
            return _kept(text, request.system.startswith(REFLECT_PROMPT), "- [high] ({seqs}) {sentence}")
        if text.startswith(_ADK_PROMPT):
            return _kept(text, _REST in text, "{sentence}")
        return None


def _kept(text: str, condense: bool, form: str) -> str:
    """Return the planted sentences, each name once with its latest value, and a line about new other text."""
    found: dict[str, tuple[str, str]] = {}
    for planted in _PLANTED.finditer(text):
        found.pop(planted[1], None)
        found[planted[1]] = (_seqs_before(text, planted.start()), planted[0])
    lines = [form.format(seqs=seqs, sentence=sentence) for seqs, sentence in found.values()]
    if not condense:
        rest = f"{_REST}{' and '.join(_words(text)[-6:])}."
        lines.append(form.replace("high", "low").format(seqs=_seqs_before(text, len(text)), sentence=rest))
    return "\n".join(lines or ["- [low] nothing of note"])


def _seqs_before(text: str, place: int) -> str:
    found = [one[1] or one[2] for one in _LINE.finditer(text, 0, place)]
    return found[-1] if found else "0"


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]+", text) if word in _WORDS]


# -- measurement ------------------------------------------------------------------------------------------------------


@dataclass
class Checked:
    """Which of the facts planted before a request are in it."""

    planted: int
    latest: int
    only_stale: int
    beside_stale: int


def check_facts(request: Request, truth: dict[str, str], stale: dict[str, set[str]]) -> Checked:
    text = " ".join(message.content for message in request.messages)
    latest = only_stale = beside = 0
    for name, value in truth.items():
        old = any(f"My {name} is {one}." in text for one in stale.get(name, ()))
        new = f"My {name} is {value}." in text
        latest += new
        only_stale += old and not new
        beside += old and new
    return Checked(len(truth), latest, only_stale, beside)


@dataclass
class Asked:
    """What the requests hold that ask for a fact each."""

    checked: Checked
    tokens: float
    lost: Counter[str]


async def ask_facts(
    runtime: Runtime, standin: StandIn, truth: dict[str, str], stale: dict[str, set[str]], most: int = MOST_QUESTIONS
) -> Asked:
    """Ask for every planted fact, or for some of many, each in a fork of the session."""
    names = sorted(truth)[:: max(1, -(-len(truth) // most))]
    kept = only_old = beside = tokens = 0
    calls, memory_tokens, made = standin.memory_calls, standin.memory_tokens, len(standin.requests)
    lost: Counter[str] = Counter()
    batches = await runtime.memory.history("s")
    for name in names:
        fork = await runtime.sessions.fork("s")
        await runtime.run(fork.name.id, f"What is my {name}?")
        checked = check_facts(standin.requests[-1], {name: truth[name]}, stale)
        tokens += count_tokens(standin.requests[-1].messages)
        kept, only_old, beside = kept + checked.latest, only_old + checked.only_stale, beside + checked.beside_stale
        if not checked.latest:
            lost[trace_text(f"My {name} is {truth[name]}", batches)] += 1
    del standin.requests[made:]
    standin.memory_calls, standin.memory_tokens = calls, memory_tokens
    return Asked(Checked(len(names), kept, only_old, beside), tokens / max(1, len(names)), lost)


# -- the contestants --------------------------------------------------------------------------------------------------


async def _run_lango(
    standin: StandIn, messages: list[str], folder: str, states: States, asked: dict[int, Asked], *, memory: bool
) -> None:
    settings = Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/lango-{memory}.db"},
            "agent": {"instruction": INSTRUCTION},
            "history": {"max_message_token_budget": BUDGET_TOKENS},
            "memory": {"enabled": memory, "keep_turns": KEEP_TURNS},
        }
    )
    async with open_runtime(settings, provider=standin) as runtime:
        for number, text in enumerate(messages, 1):
            if memory and number in states:
                asked[number] = await ask_facts(runtime, standin, *states[number])
            await runtime.run("s", text)
            await runtime.memory.settle()


async def _run_adk(standin: StandIn, messages: list[str], folder: str) -> None:
    llm = ProviderLlm(standin, "standin", budget_tokens=10**9, max_messages=None)
    compaction = EventsCompactionConfig(
        summarizer=LlmEventSummarizer(llm=llm),
        token_threshold=BUDGET_TOKENS * 3 // 4,
        event_retention_size=2 * KEEP_TURNS,
    )
    agent = LlmAgent(name="lango", model=llm, instruction=INSTRUCTION)
    app = App(name="bench", root_agent=agent, events_compaction_config=compaction)
    async with SqlSessionService(f"sqlite:///{folder}/adk.db") as service:
        await service.create_session(app_name="bench", user_id="u", session_id="s")
        runner = Runner(app=app, session_service=service)
        for text in messages:
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
                pass


# -- the tables --------------------------------------------------------------------------------------------------------


def _text(request: Request) -> str:
    return "\x00".join([request.system, *(_one(message) for message in request.messages)])


def _one(message: Message) -> str:
    return f"{message.role}:{message.content}"


def _unchanged(requests: list[Request]) -> float:
    """Return the share of all tokens that are in a common prefix with the request before."""
    same = total = 0
    before = ""
    for request in requests:
        text = _text(request)
        total += count_tokens(text)
        same += count_tokens(_common(before, text))
        before = text
    return same / total


def _common(one: str, other: str) -> str:
    """Return the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if one[:half] == other[:half] else (low, half - 1)
    return one[:low]


async def _measure(contestants: Sequence[str]) -> None:
    talk = Conversation()
    messages: list[str] = []
    states: States = {}
    for number in range(1, CHECKPOINTS[-1] + 1):
        if number in CHECKPOINTS:  # the facts planted before this turn
            states[number] = (dict(talk.truth), {name: set(old) for name, old in talk.stale.items()})
        messages.append(talk.next_message(number))
    standins = {name: StandIn() for name in contestants}
    asked: dict[int, Asked] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, standin in standins.items():
            if name == ADK:
                await _run_adk(standin, messages, folder)
            else:
                await _run_lango(standin, messages, folder, states, asked, memory=name == OURS)
    _print(standins, states, asked)


def _print(standins: dict[str, StandIn], states: States, asked: dict[int, Asked]) -> None:
    print_line(f"{CHECKPOINTS[-1]} turns, a budget of {BUDGET_TOKENS:,} tokens, {KEEP_TURNS} turns kept unchanged.")
    print_line("The same deterministic stand-in answers for all three: it keeps every planted sentence of its prompt,")
    print_line("the later of two about the same thing. It also writes the summaries, so only the mechanisms differ.")
    print_line(
        "A request of the first two holds the same facts whatever is asked; with our memory each one is asked for."
    )
    rows: list[list[Any]] = []
    for turn, (truth, stale) in states.items():
        for name, standin in standins.items():
            checked = asked[turn].checked if name == OURS else check_facts(standin.requests[turn - 1], truth, stale)
            tokens = [count_tokens(one.messages) for one in standin.requests[:turn]]
            rows.append(
                [
                    f"turn {turn:>5}: {name}",
                    f"{checked.latest} of {checked.planted}",
                    checked.only_stale,
                    checked.beside_stale,
                    tokens[-1],
                    sum(tokens) / len(tokens),
                ]
            )
    columns = ["", "facts in the request", "only an old value", "old beside new", "tokens now", "tokens a turn"]
    table("Planted facts and what a request costs", columns, rows)
    rows = [
        [
            name,
            len(standin.requests),
            standin.memory_calls,
            standin.memory_tokens,
            f"{_unchanged(standin.requests):.0%}",
        ]
        for name, standin in standins.items()
    ]
    columns = ["", "calls for answers", "calls for memory", "tokens of those", "unchanged prefix of requests"]
    table("Calls and tokens", columns, rows)


def main() -> None:
    """Run the benchmark with all systems."""
    run([PLAIN, ADK, OURS])


def run(chosen: Sequence[str]) -> None:
    """Run the benchmark with some systems."""
    logging.getLogger("lango").setLevel(logging.ERROR)
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")
    asyncio.run(_measure(chosen))


if __name__ == "__main__":  # `python -m benchmarks.memory ADK observational` leaves the plain window out
    run([name for name in (PLAIN, ADK, OURS) if name.startswith(tuple(sys.argv[1:]) or ("",))])
