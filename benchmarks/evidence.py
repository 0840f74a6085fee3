"""Evidence: is what answers a question in its request, in conversations over months and in those of BFCL v4?

    python -m benchmarks.evidence                              # all styles, budgets and systems
    python -m benchmarks.evidence --styles friends --seeds 1 --budgets 8000 --systems ours
    python -m benchmarks.evidence --wheel bfcl_eval-*.whl      # and BFCL's conversations

Notes and summaries are written by the stand-in of `benchmarks.bfcl`, which keeps the sentences with names and numbers.
The messages are stored with their times; the last ones are run as turns, which shows how much of a request a provider's
prompt cache has from the one before. Each question is asked in a copy of the session.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from benchmarks._conversations import common_prefix
from benchmarks._talk_at_work import work
from benchmarks._talk_of_diary import diary
from benchmarks._talk_of_friends import friends
from benchmarks._talk_of_messages import messages
from benchmarks._talks import CHANGE, KINDS, NEVER, Question, Said, Talk
from benchmarks.bfcl import Recorder, is_in, read_data
from benchmarks.memory import AdkSystem, quiet
from benchmarks.table import print_line, quick, table
from lango import Settings, open_runtime
from lango.adk import SqlSessionService
from lango.history import count_tokens
from lango.memory.dates import without_days
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from tests.support.runtimes import store_of

TRUNCATED, ADK, OURS = "newest that fit", "ADK's compaction", "Lango"
SYSTEMS = {"newest": TRUNCATED, "adk": ADK, "ours": OURS}
STYLES: dict[str, Callable[[int], Talk]] = {"friends": friends, "work": work, "diary": diary, "messages": messages}
SEEDS = (1,) if quick() else (1, 2, 901)
BUDGETS = (8_000, 4_000)
INSTRUCTION = "You are a helpful assistant."
_RUN_TURNS = 30
_LONG_AGO = datetime.now(UTC) - timedelta(days=30)


@dataclass
class Held:
    """What the requests of a system held in one conversation."""

    asked: Counter[str] = field(default_factory=Counter[str])
    found: Counter[str] = field(default_factory=Counter[str])
    only_old: int = 0
    wrong_recalled: int = 0
    """Questions about what was never said whose recalled text looks like an answer."""
    tokens: int = 0
    recalled_tokens: int = 0
    prefix: list[float] = field(default_factory=list[float])
    missed: list[str] = field(default_factory=list[str])

    def add(self, other: "Held") -> None:
        """Add what was held in another conversation."""
        self.asked += other.asked
        self.found += other.found
        self.only_old += other.only_old
        self.wrong_recalled += other.wrong_recalled
        self.tokens += other.tokens
        self.recalled_tokens += other.recalled_tokens
        self.prefix += other.prefix
        self.missed += other.missed


class _Lango:
    def __init__(self, runtime: Runtime, recorder: Recorder) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._name = SessionId(runtime.app_name, "user", "s")
        self._service = SqlSessionService("", store=store_of(runtime))

    async def store(self, messages: Sequence[Said]) -> None:
        app, user = self._name.app_name, self._name.user_id
        newest = GetSessionConfig(num_recent_events=1)
        session = await self._service.get_session(app_name=app, user_id=user, session_id="s", config=newest)
        session = session or await self._service.create_session(app_name=app, user_id=user, session_id="s")
        for said in messages:
            author, role = ("user", "user") if said.by_user else ("lango", "model")
            content = types.Content(role=role, parts=[types.Part(text=said.text)])
            event = Event(author=author, content=content, timestamp=said.at.timestamp())
            await self._service.append_event(session, event)
            if not said.by_user:
                self._runtime.memory.observe_in_background(self._name)
                await self._runtime.memory.settle()

    async def turn(self, text: str) -> None:
        await self._runtime.run("s", text)
        await self._runtime.memory.settle()

    async def ask(self, text: str) -> None:
        fork = await self._runtime.sessions.fork("s")
        await self._runtime.run(fork.name.id, text)


class _Adk:
    def __init__(self, recorder: Recorder, budget: int) -> None:
        self._adk = AdkSystem(recorder, budget, INSTRUCTION)
        self._recorder = recorder

    async def store(self, messages: Sequence[Said]) -> None:
        for said, answer in zip(messages[::2], messages[1::2], strict=False):
            self._recorder.answer = answer.text
            await self._adk.turn(said.text, measured=True)

    async def turn(self, text: str) -> None:
        await self._adk.turn(text, measured=True)

    async def ask(self, text: str) -> None:
        await self._adk.ask(text)


@asynccontextmanager
async def _opened(system: str, recorder: Recorder, budget: int) -> AsyncGenerator[_Lango | _Adk]:
    if system == ADK:
        yield _Adk(recorder, budget)
        return
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {
                "store": {"url": f"sqlite:///{folder}/lango.db"},
                "agent": {"instruction": INSTRUCTION},
                "history": {"max_message_token_budget": budget, "max_messages": 100_000},
                "memory": {"enabled": system == OURS},
            }
        )
        async with open_runtime(settings, provider=recorder) as runtime:
            yield _Lango(runtime, recorder)


async def measure(system: str, talk: Talk, budget: int, holds: Callable[[str, str], bool] | None = None) -> Held:
    """Put a conversation into a system, and ask its questions."""
    recorder, held = Recorder(None), Held()
    has = holds or _has
    async with _opened(system, recorder, budget) as opened:
        pairs = list(zip(talk.messages[::2], talk.messages[1::2], strict=False))
        stored = pairs[: len(pairs) - _RUN_TURNS]
        await opened.store([said for pair in stored for said in pair])
        before = ""
        for said, answer in pairs[len(stored) :]:
            recorder.answer = answer.text
            await opened.turn(said.text)
            assert recorder.request
            now = _whole(recorder.request)
            if before:
                held.prefix.append(len(common_prefix(before, now)) / len(now))
            before = now
        for question in talk.questions:
            recorder.answer = "I do not know."
            await opened.ask(question.text)
            assert recorder.request
            _judge(recorder.request, question, held, has)
    return held


def _judge(request: Request, question: Question, held: Held, has: Callable[[str, str], bool]) -> None:
    shown = "\n".join(message.content for message in request.messages if message.content != question.text)
    recalled = "\n".join(one.content for one in request.messages if one.content.startswith("<recalled>"))
    held.tokens += count_tokens(request.messages)
    held.recalled_tokens += count_tokens(recalled)
    held.asked[question.kind] += 1
    found = all(has(sentence, shown) for sentence in question.evidence)
    if question.kind == NEVER:
        looks = any(has(sentence, recalled) for sentence in question.wrong)
        held.wrong_recalled += looks
        found = not looks
    held.found[question.kind] += found
    held.only_old += question.kind == CHANGE and not found and any(has(one, shown) for one in question.wrong)
    if not found:
        held.missed.append(f"{question.kind}: {question.text} | {question.evidence}")


def _has(sentence: str, text: str) -> bool:
    return " ".join(sentence.split()) in " ".join(without_days(text).split())  # notes add the day of "last week"


def _whole(request: Request) -> str:
    return "\x00".join([request.system, *(f"{message.role}:{message.content}" for message in request.messages)])


def bfcl_talks(wheel: Path) -> list[Talk]:
    """Return the conversations of BFCL v4, each with its questions; a conversation has one time."""
    said, questions = read_data(wheel)
    talks: list[Talk] = []
    for scenario, texts in said.items():
        messages = [
            Said(by_user, text if by_user else "I see.", _LONG_AGO) for text in texts for by_user in (True, False)
        ]
        asked = [
            Question("BFCL", one.text, ("\x00".join(one.answers),)) for one in questions if one.scenario == scenario
        ]
        talks.append(Talk(messages, asked))
    return talks


def _has_answer(answers: str, text: str) -> bool:
    return is_in(answers.split("\x00"), text)


def main() -> None:
    """Run the benchmark with its defaults."""
    run(_parse([]))


def run(options: argparse.Namespace) -> None:
    """Run the benchmark."""
    quiet()
    for budget in options.budgets:
        for style in options.styles:
            _print(f"{style}, seeds {options.seeds}", budget, options, [STYLES[style](seed) for seed in options.seeds])
        if options.wheel:
            _print("BFCL v4", budget, options, bfcl_talks(options.wheel), _has_answer)


def _print(
    title: str,
    budget: int,
    options: argparse.Namespace,
    talks: Sequence[Talk],
    holds: Callable[[str, str], bool] | None = None,
) -> None:
    rows: list[list[Any]] = []
    for system in options.systems:
        held = Held()
        for talk in talks:
            held.add(asyncio.run(measure(SYSTEMS[system], talk, budget, holds)))
        asked = sum(count for kind, count in held.asked.items() if kind != NEVER)
        found = sum(count for kind, count in held.found.items() if kind != NEVER)
        kinds = [f"{held.found[kind]} of {held.asked[kind]}" for kind in KINDS if kind != NEVER and held.asked[kind]]
        count = max(1, sum(held.asked.values()))
        rows.append(
            [
                SYSTEMS[system],
                f"{found / asked:.1%}",
                *kinds,
                held.only_old,
                f"{held.wrong_recalled} of {held.asked[NEVER]}",
                held.tokens // count,
                held.recalled_tokens // count,
                f"{sum(held.prefix) / max(1, len(held.prefix)):.1%}",
            ]
        )
        if options.missed:
            for line in random.Random(0).sample(held.missed, min(options.missed, len(held.missed))):
                print_line(f"    {line}")
    shown = [
        kind for kind in KINDS if kind != NEVER and any(one.kind == kind for talk in talks for one in talk.questions)
    ]
    columns = ["", "evidence in the request", *shown, "only an old value", "never said: a wrong answer recalled"]
    columns += ["tokens in the request", "of these recalled", "unchanged prefix"]
    table(f"{title}: a budget of {budget:,} tokens", columns, rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--styles", nargs="*", default=list(STYLES), choices=list(STYLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--wheel", type=Path, help="the wheel of bfcl-eval")
    parser.add_argument("--missed", type=int, default=0, help="how many questions without evidence are printed")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(_parse(sys.argv[1:]))
