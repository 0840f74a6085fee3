"""Memory over long conversations: full history, truncation, ADK's compaction and observational memory, side by side.

All four get the same conversations with planted facts (`benchmarks._conversations`), the same stand-in for every model,
the same budget, and are asked in the same way: in the last turns before each checkpoint, each question in a copy of the
session, so that no question changes what the next one finds, and no system is measured only just after a summary.

    python -m benchmarks.memory                            # 100, 1,000 and 5,000 turns
    python -m benchmarks.memory 100 1000 --systems ours    # one system, other checkpoints
"""

import argparse
import asyncio
import logging
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.genai import types

from benchmarks._conversations import Conversation, Office, StandIn, Values
from benchmarks.table import print_line, quick, table
from lango import Settings, open_runtime
from lango.adk import ProviderLlm, SqlSessionService
from lango.history import count_tokens
from lango.messages import Message
from lango.providers import Provider, Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.sessions.window import read_session_events
from tests.support.runtimes import store_of

BUDGET_TOKENS = 8_000
CHECKPOINTS = (100, 1_000) if quick() else (100, 1_000, 5_000)
KEEP_TURNS = 2
INSTRUCTION = "You are a helpful assistant."
FULL, TRUNCATED, ADK, OURS = "full history", "truncation", "ADK's compaction", "observational memory"
CONVERSATIONS: tuple[tuple[str, type[Conversation], int], ...] = (("values", Values, 7), ("office", Office, 11))
_ASKED_TURNS = 480  # before a checkpoint: several summaries of each system
_QUESTIONS = 120
_LOWEST_SHARE = {100: 0.0, 1_000: 1.0, 5_000: 0.98}


class System(Protocol):
    """A way to keep a conversation within bounds."""

    async def turn(self, text: str, *, measured: bool) -> None:
        """Run a turn of the session; one that is not `measured` may take a shorter way to the same result."""
        ...

    async def ask(self, text: str) -> object:
        """Run a turn in a copy of the session."""
        ...


class FullHistory:
    """Sends everything that was said. Nothing decides anything here, so its requests are built without a run."""

    def __init__(self, standin: StandIn) -> None:
        self._standin = standin
        self._messages: list[Message] = []
        self._tokens = count_tokens(INSTRUCTION)

    async def turn(self, text: str, *, measured: bool) -> None:
        standin = self._standin
        if measured:
            standin.requests += 1
            standin.unchanged_tokens += self._tokens
        self._add(Message("user", text))
        standin.tokens += self._tokens if measured else 0
        standin.all_tokens += self._tokens
        self._add(Message("assistant", standin.next_answer))

    async def ask(self, text: str) -> None:
        question = Message("user", text)
        self._standin.request = Request("", (*self._messages, question), system=INSTRUCTION)
        self._standin.request_tokens = self._tokens + count_tokens(question)

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._tokens += count_tokens(message)


class LangoSystem:
    """Lango, with memory or with truncation to the budget.

    Turns that are not measured are stored and observed without being run.
    """

    def __init__(self, runtime: Runtime, standin: StandIn) -> None:
        self.runtime = runtime
        self._standin = standin
        self._name = SessionId(runtime.app_name, "user", "s")
        self._service = SqlSessionService("", store=store_of(runtime))

    async def turn(self, text: str, *, measured: bool) -> None:
        if measured:
            await self.runtime.run("s", text)
        else:
            await self._store(text, self._standin.next_answer)
            self.runtime.memory.observe_in_background(self._name)
        await self.runtime.memory.settle()

    async def _store(self, text: str, answer: str) -> None:
        app, user = self._name.app_name, self._name.user_id
        newest = GetSessionConfig(num_recent_events=1)
        session = await self._service.get_session(app_name=app, user_id=user, session_id="s", config=newest)
        session = session or await self._service.create_session(app_name=app, user_id=user, session_id="s")
        for author, role, said in (("user", "user", text), ("lango", "model", answer)):
            content = types.Content(role=role, parts=[types.Part(text=said)])
            await self._service.append_event(session, Event(author=author, content=content))

    async def lost(self, value: str) -> str:
        """Return where a value went: into a note that is not shown, out of the notes again, or into none."""
        batches = await self.runtime.memory.history("s")
        noted = {batch.standing for batch in batches for note in batch.observations if value in note.text}
        return "recalled only" if "current" in noted else "condensed away" if noted else "not noted"

    async def ask(self, text: str) -> None:
        fork = await self.runtime.sessions.fork("s")
        await self.runtime.run(fork.name.id, text)
        await self.runtime.memory.settle()


class AdkSystem:
    """ADK's Runner with its compaction, over sessions that are kept in memory and never copied: its best case.

    It reads all events in each turn, so that 5,000 turns take an hour. Events that a summary replaced are in no request
    any more: they are set aside, and put back for the turns that are measured. Questions are not measured.
    """

    def __init__(self, standin: Provider, budget: int, instruction: str = INSTRUCTION) -> None:
        llm = ProviderLlm(standin, "standin", budget_tokens=10**9, max_messages=None)
        compaction = EventsCompactionConfig(
            summarizer=LlmEventSummarizer(llm=llm),
            token_threshold=budget * 3 // 4,
            event_retention_size=2 * KEEP_TURNS,
        )
        agent = LlmAgent(name="lango", model=llm, instruction=instruction)
        app = App(name="bench", root_agent=agent, events_compaction_config=compaction)
        self._sessions = _SessionsInMemory()
        self._runner = Runner(app=app, session_service=self._sessions)
        self._aside: list[Event] = []

    async def turn(self, text: str, *, measured: bool) -> None:
        session = self._sessions.of("s")
        if measured and self._aside:
            session.events, self._aside = [*self._aside, *session.events], []
        await self._run("s", text)
        if not measured:
            self._set_aside(session)

    def _set_aside(self, session: Session) -> None:
        summaries = [event for event in session.events if event.actions.compaction]
        if not summaries:
            return
        compaction = summaries[-1].actions.compaction
        assert compaction
        kept: list[Event] = []
        for event in session.events:
            replaced = event.timestamp <= compaction.end_timestamp or event.actions.compaction
            (self._aside if replaced and event is not summaries[-1] else kept).append(event)
        session.events = kept

    async def ask(self, text: str) -> str:
        session, aside = self._sessions.of("s"), list(self._aside)
        events = list(session.events)
        self._set_aside(session)
        answer = await self._run("s", text)
        session.events, self._aside = events, aside
        return answer

    async def _run(self, session_id: str, text: str) -> str:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        answer = ""
        async for event in self._runner.run_async(user_id="u", session_id=session_id, new_message=message):
            parts = (event.content and event.content.parts) or []
            answer = "".join(part.text or "" for part in parts) or answer
        return answer


class _SessionsInMemory(BaseSessionService):
    """ADK's own service in memory copies a whole session for each turn, which takes an hour here."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def of(self, session_id: str) -> Session:
        return self._sessions.setdefault(session_id, Session(id=session_id, app_name="bench", user_id="u"))

    async def create_session(self, *, session_id: str | None = None, **_: Any) -> Session:
        return self.of(session_id or "")

    async def get_session(self, *, session_id: str, **_: Any) -> Session:
        return self.of(session_id)

    async def list_sessions(self, **_: Any) -> ListSessionsResponse:
        return ListSessionsResponse(sessions=list(self._sessions.values()))

    async def delete_session(self, *, session_id: str, **_: Any) -> None:
        self._sessions.pop(session_id, None)


@asynccontextmanager
async def _opened(name: str, standin: StandIn, budget: int) -> AsyncGenerator[System]:
    if name == FULL:
        yield FullHistory(standin)
    elif name == ADK:
        yield AdkSystem(standin, budget)
    else:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings.model_validate(
                {
                    "store": {"url": f"sqlite:///{folder}/lango.db"},
                    "agent": {"instruction": INSTRUCTION},
                    "history": {"max_message_token_budget": budget},
                    "memory": {"enabled": name == OURS, "keep_turns": KEEP_TURNS},
                }
            )
            async with open_runtime(settings, provider=standin) as runtime:
                yield LangoSystem(runtime, standin)


# -- measurement ------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What a system did up to a checkpoint, and what its requests held when it was asked."""

    system: str
    turns: int
    asked: int = 0
    found: int = 0
    only_old: int = 0
    beside_old: int = 0
    question_tokens: int = 0
    requests: int = 0
    request_tokens: int = 0
    unchanged_tokens: float = 0.0
    all_tokens: int = 0
    """Of the requests of all turns; only known for the full history."""
    memory_calls: int = 0
    memory_tokens: int = 0
    cpu_s: float = 0.0
    """CPU time of a turn, in the last turns."""
    named: tuple[int, int] = (0, 0)
    """The statements in memory whose messages have what they say, and all."""
    lost: list[str] = field(default_factory=list[str])


async def measure(
    name: str, kind: type[Conversation], seed: int, checkpoints: Sequence[int], *, budget: int = BUDGET_TOKENS
) -> list[Measured]:
    """Run a conversation with a system."""
    talk = kind(random.Random(seed))
    standin = StandIn(kind)
    rows: list[Measured] = []
    async with _opened(name, standin, budget) as system:
        for start, end in zip((0, *checkpoints), checkpoints, strict=False):
            row = Measured(name, end)
            asking = range(max(start, end - _ASKED_TURNS) + 1, end + 1)
            dice = random.Random(seed + end)
            for number in range(start + 1, end + 1):
                text, standin.next_answer = talk.message(number), talk.answer()
                if number == asking.start:
                    standin.start_counting()
                began = time.process_time() - standin.cpu_s
                await system.turn(text, measured=number in asking)
                if number in asking:
                    row.cpu_s += (time.process_time() - standin.cpu_s - began) / len(asking)
                    share = _QUESTIONS * (number - asking.start + 1) // len(asking) - row.asked
                    for fact in dice.choices(sorted(talk.truth), k=share) if talk.truth else ():
                        await _ask(system, standin, talk, fact, row)
            row.requests, row.request_tokens = standin.requests, standin.tokens
            row.unchanged_tokens, row.all_tokens = standin.unchanged_tokens, standin.all_tokens
            row.memory_calls, row.memory_tokens = standin.memory_calls, standin.memory_tokens
            if name == OURS and isinstance(system, LangoSystem):
                row.named = await _named(system.runtime, talk)
            rows.append(row)
    return rows


async def _ask(system: System, standin: StandIn, talk: Conversation, fact: str, row: Measured) -> None:
    standin.asking, answer, standin.next_answer = True, standin.next_answer, "I do not know."
    await system.ask(talk.question(fact))
    standin.asking, standin.next_answer = False, answer
    assert standin.request
    messages = standin.request.messages
    words = " ".join(message.content for message in messages)
    new = _has(words, talk.truth[fact])
    old = any(_has(words, value) for value in talk.stale.get(fact, ()))
    row.asked += 1
    row.found += new
    row.only_old += old and not new
    row.beside_old += old and new
    row.question_tokens += standin.request_tokens
    if not new:
        row.lost.append(await system.lost(talk.truth[fact]) if isinstance(system, LangoSystem) else "summary")


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)", text) is not None


async def _named(runtime: Runtime, talk: Conversation) -> tuple[int, int]:
    """Count the planted statements in the notes, and those whose messages say the same."""
    found = await store_of(runtime).read(read_session_events, SessionId(runtime.app_name, "user", "s"))
    texts = {one.seq: one.message.content for one in found[1] if one.message} if found else {}
    named = total = 0
    for batch in (await runtime.memory.show("s")).batches:
        for note in batch.observations:
            for _, name, sentence in talk.statements(note.text):
                total += 1
                cited = " ".join(texts.get(seq, "") for seq in range(note.first_seq, note.last_seq + 1))
                named += any((fact, said) == (name, sentence) for _, fact, said in talk.statements(cited))
    return named, total


# -- the tables --------------------------------------------------------------------------------------------------------


def print_rows(title: str, rows: Sequence[Measured]) -> None:
    """Print what was measured in one conversation, a line for each system and checkpoint."""
    columns = ["turns", "", "facts in the request", "only an old value", "old beside new", "tokens in the request"]
    columns += ["calls for memory", "tokens of those", "unchanged prefix", "CPU ms a turn"]
    cells = [
        [
            row.turns,
            row.system,
            f"{row.found} of {row.asked}",
            row.only_old,
            row.beside_old,
            row.question_tokens // max(1, row.asked),
            row.memory_calls,
            row.memory_tokens,
            f"{row.unchanged_tokens / row.request_tokens:.2%}",
            "-" if row.system == FULL else row.cpu_s * 1e3,
        ]
        for row in sorted(rows, key=lambda row: row.turns)
    ]
    table(title, columns, cells, *_goals(rows))


def _goals(rows: Sequence[Measured]) -> list[str]:
    lines: list[str] = []
    for ours in (row for row in rows if row.system == OURS):
        others = {row.system: row for row in rows if row.turns == ours.turns}
        checks = [
            (f"facts in the request: {ours.found / ours.asked:.1%}", ours.found >= _least(ours.turns) * ours.asked),
            (f"only an old value: {ours.only_old}", ours.only_old == 0),
            (
                f"statements that name their messages: {ours.named[0]} of {ours.named[1]}",
                ours.named[0] == ours.named[1],
            ),
        ]
        if full := others.get(FULL):
            share = ours.question_tokens / full.question_tokens
            saved = full.all_tokens - ours.turns * ours.request_tokens / ours.requests
            cost = ours.memory_tokens / saved if saved > 0 else float("inf")
            checks.append((f"tokens relative to the full history: {share:.1%}", share <= 0.2 or ours.turns < 1_000))
            checks.append((f"tokens for memory relative to what it saves: {cost:.1%}", cost <= 0.15))
        if (adk := others.get(ADK)) and ours.turns >= 1_000:
            behind = _behind(ours, adk)
            checks.append((f"behind ADK's compaction in: {', '.join(behind) or 'nothing'}", not behind))
        lines += [f"{'met   ' if met else 'MISSED'}  {ours.turns:>5} turns, {what}" for what, met in checks]
    return lines


def _least(turns: int) -> float:
    return next((share for at, share in _LOWEST_SHARE.items() if turns <= at), 0.98)


def _behind(ours: Measured, adk: Measured) -> list[str]:
    """Return the columns in which ours is behind ADK's compaction."""
    columns = {
        "facts": (-ours.found, -adk.found),
        "only an old value": (ours.only_old, adk.only_old),
        "old beside new": (ours.beside_old, adk.beside_old),
        "tokens in the request": (ours.question_tokens, adk.question_tokens),
        "calls for memory": (ours.memory_calls, adk.memory_calls),
        "tokens of those": (ours.memory_tokens, adk.memory_tokens),
        "unchanged prefix": (
            -ours.unchanged_tokens / ours.request_tokens,
            -adk.unchanged_tokens / adk.request_tokens,
        ),
        "CPU": (ours.cpu_s, adk.cpu_s),
    }
    return [name for name, (mine, its) in columns.items() if mine > its]


def main() -> None:
    """Run the benchmark with all systems."""
    run(CHECKPOINTS, (FULL, TRUNCATED, ADK, OURS))


def run(checkpoints: Sequence[int], systems: Sequence[str], conversations: Sequence[str] = ()) -> None:
    """Run the benchmark with some systems up to the last of some turns."""
    quiet()
    print_line(f"A budget of {BUDGET_TOKENS:,} tokens, {KEEP_TURNS} turns kept unchanged; default settings otherwise.")
    print_line("ADK's sessions are kept in memory, ours on disk. The full history is computed, not run.")
    for title, kind, seed in CONVERSATIONS:
        if not conversations or title in conversations:
            rows = [row for name in systems for row in asyncio.run(measure(name, kind, seed, checkpoints))]
            print_rows(f'Conversation "{title}"', rows)


def quiet() -> None:
    """Print only the tables."""
    logging.getLogger("lango").setLevel(logging.ERROR)
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    short = {"full": FULL, "truncation": TRUNCATED, "adk": ADK, "ours": OURS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", nargs="*", type=int)
    parser.add_argument("--systems", nargs="+", default=list(short), choices=list(short))
    parser.add_argument("--conversations", nargs="+", default=[], choices=[name for name, *_ in CONVERSATIONS])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    options.systems = [short[name] for name in options.systems]
    return options


if __name__ == "__main__":
    chosen = _parse(sys.argv[1:])
    run(chosen.turns or CHECKPOINTS, chosen.systems, chosen.conversations)
