"""Memory on data of others: the memory questions of the Berkeley Function-Calling Leaderboard (BFCL v4).

Five people tell an assistant about themselves in 37 conversations; then 155 questions ask for what they said. An answer
is right if it contains one of the accepted ones, so no judge is needed. The data comes from the wheel `bfcl-eval`:

    pip download --no-deps bfcl-eval
    python -m benchmarks.bfcl bfcl_eval-*.whl                               # is the answer in the request?
    python -m benchmarks.bfcl bfcl_eval-*.whl --model local/qwen2.5-coder-1.5b --minutes 20 --results answers.jsonl

With a model, 20 questions are drawn; `--questions 0` asks all. Notes and summaries are written by a stand-in: the
sentences with names and numbers. It serves all systems, so only the mechanisms differ. Answers are kept in the file of
results, and a second run goes on where the first stopped.
"""

import argparse
import asyncio
import itertools
import json
import logging
import math
import random
import re
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory import AdkSystem
from benchmarks.table import print_line, table
from lango import Settings, open_runtime
from lango.adk.agents.model_registry import ModelRegistry
from lango.history import count_tokens
from lango.memory.notes.key_terms import key_terms
from lango.memory.notes.note_format import OBSERVE_PROMPT, REFLECT_PROMPT
from lango.providers import Provider, Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta

BUDGET_TOKENS = 3_000
KEEP_TURNS = 2
INSTRUCTION = "You know the user from the conversation. Answer the last question briefly, only with what it asks for."
FULL, TRUNCATED, ADK, OURS = "full history", "truncation", "ADK's compaction", "observational memory"
SYSTEMS = (FULL, TRUNCATED, ADK, OURS)
_DATA = "bfcl_eval/data/"
_LINE = re.compile(r"^#(\d+) (?:\S+ \S+ )?user: (.+)$")
_ADK_PROMPT = "The following is a conversation history"
_KEPT_SHARE = 0.25
_TIMEOUTS = {"request_timeout_s": 7_200, "idle_timeout_s": 7_200}  # a small machine reads 4 tokens a second
_WITH_MODEL = 20  # questions: a small model on two cores takes an hour for four systems


@dataclass(frozen=True)
class Question:
    """A question about a person, and the accepted answers."""

    id: str
    scenario: str
    text: str
    answers: tuple[str, ...]


@dataclass
class Answered:
    """What a system sent and answered for a question."""

    system: str
    question: str
    in_request: bool
    right: bool | None
    tokens: int
    seconds: float
    answer: str = ""


# -- the data ---------------------------------------------------------------------------------------------------------


def read_data(wheel: Path) -> tuple[dict[str, list[str]], list[Question]]:
    """Return what each person said, message by message, and the questions."""
    with zipfile.ZipFile(wheel) as archive:

        def rows(name: str) -> list[dict[str, Any]]:
            return [json.loads(line) for line in archive.read(_DATA + name).decode().splitlines() if line.strip()]

        answers = {row["id"]: tuple(row["ground_truth"]) for row in rows("possible_answer/BFCL_v4_memory.json")}
        questions = [
            Question(row["id"], row["scenario"], row["question"][0][0]["content"], answers[row["id"]])
            for row in rows("BFCL_v4_memory.json")
        ]
        said = {
            scenario: [
                message["content"]
                for row in rows(f"memory_prereq_conversation/memory_{scenario}.json")
                for turn in row["question"]
                for message in turn
                if message["role"] == "user"
            ]
            for scenario in dict.fromkeys(question.scenario for question in questions)
        }
    return said, questions


def is_in(answers: Iterable[str], text: str) -> bool:
    """Whether a text contains one of the answers, without regard to case and punctuation."""
    plain = f" {_plain(text)} "
    return any(f" {_plain(answer)} " in plain for answer in answers)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


# -- the models -------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes notes and summaries itself, and passes questions to a model, if there is one."""

    name = "bench"

    def __init__(self, model: tuple[Provider, str] | None) -> None:
        self.request: Request | None = None
        self.asks = False
        self.answer = "I see."
        """What it answers in place of a model."""
        self._model = model

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        text = request.messages[-1].content
        if request.system.startswith((OBSERVE_PROMPT, REFLECT_PROMPT)):
            answer = _notes(text)
        elif text.startswith(_ADK_PROMPT):
            answer = " ".join(_important(text.splitlines()))
        else:
            self.request = request
            answer = self.answer
            if self.asks and self._model is not None:
                provider, model = self._model
                async for delta in provider.stream(_with_model(request, model)):
                    yield delta
                return
        yield TextDelta(answer)
        yield UsageDelta(count_tokens(request.messages) + count_tokens(request.system), count_tokens(answer))
        yield Finish("stop")


def _with_model(request: Request, model: str) -> Request:
    from msgspec.structs import replace

    return replace(request, model=model, max_tokens=60, temperature=0.0)


def _notes(text: str) -> str:
    """Write a note for each important sentence of a transcript, or repeat notes as they are."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("- ["):
            lines.append(line)
        elif found := _LINE.match(line):
            lines += [f"- [medium] ({found[1]}) {sentence}" for sentence in _important([found[2]])]
    return "\n".join(lines) or "- [low] nothing of note"


def _important(texts: Iterable[str]) -> list[str]:
    """Return the sentences with the most names and numbers, about a quarter of the text, in their order."""
    sentences = [one.strip() for text in texts for one in re.split(r"(?<=[.!?])\s+", text) if one.strip()]
    room = sum(map(len, sentences)) * _KEPT_SHARE
    kept: set[int] = set()
    for place in sorted(range(len(sentences)), key=lambda at: -len(key_terms(sentences[at]))):
        room -= len(sentences[place])
        if room < 0:
            break
        kept.add(place)
    return [sentence for place, sentence in enumerate(sentences) if place in kept]


# -- the systems ------------------------------------------------------------------------------------------------------

Ask = Callable[[Question], Any]


async def _run_lango(
    system: str, recorder: Recorder, said: Sequence[str], folder: str, use: Callable[[Ask], Any]
) -> None:
    budget = 10**6 if system == FULL else BUDGET_TOKENS
    settings = Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/lango.db"},
            "agent": {"instruction": INSTRUCTION, **_TIMEOUTS},
            "history": {"max_message_token_budget": budget, "max_messages": 100_000},
            "memory": {"enabled": system == OURS, "keep_turns": KEEP_TURNS},
        }
    )
    async with open_runtime(settings, provider=recorder) as runtime:
        for text in said:
            await runtime.run("s", text)
            await runtime.memory.settle()

        async def ask(question: Question) -> str:
            fork = await runtime.sessions.fork("s")
            return await runtime.run(fork.name.id, question.text)

        await use(ask)


async def _run_adk(recorder: Recorder, said: Sequence[str], use: Callable[[Ask], Any]) -> None:
    adk = AdkSystem(recorder, BUDGET_TOKENS, INSTRUCTION)
    for text in said:
        await adk.turn(text, measured=True)

    async def ask(question: Question) -> str:
        return await adk.ask(question.text)

    await use(ask)


# -- measurement ------------------------------------------------------------------------------------------------------


async def _measure(options: argparse.Namespace) -> None:
    said, questions = read_data(options.wheel)
    questions = [one for one in questions if not options.people or one.scenario in options.people]
    if options.questions:
        questions = _sample(questions, options.questions, options.seed)
    results: Path | None = options.results
    known = (
        [Answered(**json.loads(line)) for line in results.read_text().splitlines()]
        if results and results.exists()
        else []
    )
    done = {(one.system, one.question): one for one in known}

    def keep(one: Answered) -> None:
        done[one.system, one.question] = one
        if results:
            with results.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")

    async with OpenedModel(options.model) as model:
        for system in options.systems:
            ends = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
            # the shortest first, so that a limit of time leaves out as few questions as possible
            for scenario, texts in sorted(said.items(), key=lambda one: sum(map(len, one[1]))):
                todo = [one for one in questions if one.scenario == scenario and (system, one.id) not in done]
                if todo and time.monotonic() < ends:
                    await _ask_all(system, texts, todo, model, ends, keep)
    asked = {question.id for question in questions}
    print_line(f"{len(asked)} of the 155 questions; {options.minutes or 'no limit of'} minutes for each system.")
    _print([one for one in done.values() if one.question in asked], options.systems)


def _sample(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """Return some of the questions of each person, in their order."""
    shuffled = list(questions)
    random.Random(seed).shuffle(shuffled)
    by_person: dict[str, list[Question]] = {}
    for question in shuffled:
        by_person.setdefault(question.scenario, []).append(question)
    in_turns = [one for row in itertools.zip_longest(*by_person.values()) for one in row if one is not None]
    chosen = {question.id for question in in_turns[:count]}
    return [question for question in questions if question.id in chosen]


async def _ask_all(
    system: str,
    said: Sequence[str],
    questions: Sequence[Question],
    model: tuple[Provider, str] | None,
    ends: float,
    keep: Callable[[Answered], None],
) -> None:
    recorder = Recorder(model)

    async def use(ask: Ask) -> None:
        recorder.asks = True
        for question in questions:
            if time.monotonic() > ends:
                return
            began = time.perf_counter()
            answer = await ask(question)
            assert recorder.request
            sent = recorder.request.messages
            shown = "\n".join(message.content for message in sent if message.content != question.text)
            held = is_in(question.answers, shown)
            right = is_in(question.answers, answer) if model else None
            seconds = time.perf_counter() - began
            keep(Answered(system, question.id, held, right, count_tokens(sent), seconds, answer))

    with tempfile.TemporaryDirectory() as folder:
        if system == ADK:
            await _run_adk(recorder, said, use)
        else:
            await _run_lango(system, recorder, said, folder, use)


class OpenedModel:
    """Open the model of the options, if there is one."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._models: ModelRegistry | None = None

    async def __aenter__(self) -> tuple[Provider, str] | None:
        if self._name is None:
            return None
        self._models = ModelRegistry(Settings.model_validate({"agent": {"model": self._name, **_TIMEOUTS}}), None)
        llm = self._models.get(self._name)
        return llm.provider, llm.model

    async def __aexit__(self, *_: object) -> None:
        if self._models is not None:
            await self._models.close()


def _print(found: Sequence[Answered], systems: Sequence[str]) -> None:
    print_line(f"BFCL v4 memory, a budget of {BUDGET_TOKENS:,} tokens except for the full history.")
    rows: list[list[Any]] = []
    for system in systems:
        own = [one for one in found if one.system == system]
        judged = [one.right for one in own if one.right is not None]
        rows.append(
            [
                system,
                len(own),
                f"{sum(one.in_request for one in own) / max(1, len(own)):.0%}",
                f"{sum(judged) / len(judged):.0%}" if judged else "-",
                sum(one.tokens for one in own) / max(1, len(own)),
                sum(one.seconds for one in own) / max(1, len(own)),
            ]
        )
    columns = [
        "",
        "questions",
        "answer in the request",
        "right answers",
        "input tokens a question",
        "seconds a question",
    ]
    table("What is still known", columns, rows)


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark. It needs the wheel, so `make bench` leaves it out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the wheel of bfcl-eval")
    parser.add_argument("--model", help="the model that answers; without one, only the requests are examined")
    parser.add_argument("--questions", type=int, help="how many questions, drawn of all people; 0: all")
    parser.add_argument("--people", nargs="+", help="ask only about these: customer, finance, healthcare ...")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument("--minutes", type=float, default=0, help="the most time for each system; 0: no limit")
    parser.add_argument("--results", type=Path, help="a file of answers, which a later run continues")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    logging.getLogger("lango").setLevel(logging.ERROR)
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")
    options = parser.parse_args(arguments)
    if options.questions is None:
        options.questions = _WITH_MODEL if options.model else 0
    asyncio.run(_measure(options))


if __name__ == "__main__":
    main(sys.argv[1:])
