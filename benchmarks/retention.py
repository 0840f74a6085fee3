"""Retention alone, without a model: is a planted fact in the request when it is asked for?

The conversation and the stand-in for the model are those of `benchmarks.memory`. Its messages are stored directly, and
only the questions are turns, each in a fork of its own: so 5,000 turns take a minute or two.
"""

import asyncio
import logging
import sys
import tempfile
import time
from typing import Any

from google.adk.events import Event
from google.genai import types

from benchmarks.memory import BUDGET_TOKENS, INSTRUCTION, KEEP_TURNS, MOST_QUESTIONS, Conversation, StandIn, ask_facts
from benchmarks.table import print_line, quick, table
from lango import Settings, open_runtime
from lango.adk import SqlSessionService
from lango.history import count_tokens
from lango.runtime.runtime import Runtime
from lango.store import SessionId

CHECKPOINTS = (100, 1_000) if quick() else (100, 1_000, 5_000)
_OBSERVE_EVERY = 4


async def _measure(checkpoints: tuple[int, ...]) -> None:
    standin = StandIn()
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {
                "store": {"url": f"sqlite:///{folder}/lango.db"},
                "agent": {"instruction": INSTRUCTION},
                "history": {"max_message_token_budget": BUDGET_TOKENS},
                "memory": {"enabled": True, "keep_turns": KEEP_TURNS},
            }
        )
        async with open_runtime(settings, provider=standin) as runtime:
            talk = Conversation()
            writer = _Writer(runtime)
            began = time.process_time()
            for number in range(1, checkpoints[-1] + 1):
                await writer.add(talk.next_message(number), standin.chat())
                if number in checkpoints:
                    rows.append([number, *await _ask(runtime, standin, talk, writer), time.process_time() - began])
    print_line(f"A budget of {BUDGET_TOKENS:,} tokens; at most {MOST_QUESTIONS} of the facts are asked for.")
    columns = ["turns", "facts in the request", "only an old value", "old beside new", "tokens", "full history"]
    columns += ["calls for memory", "tokens of those", "lost by", "CPU s"]
    table("Facts in the request when they are asked for", columns, rows)


class _Writer:
    """Appends turns to the session without running them, and lets it be observed."""

    def __init__(self, runtime: Runtime) -> None:
        self.name = SessionId(runtime.app_name, "user", "s")
        self.tokens = 0
        self._runtime = runtime
        self._service = SqlSessionService("", store=runtime.store)
        self._session: Any = None
        self._turns = 0

    async def add(self, question: str, answer: str) -> None:
        if self._session is None:
            self._session = await self._service.create_session(
                app_name=self.name.app_name, user_id=self.name.user_id, session_id=self.name.id
            )
        for author, role, text in (("user", "user", question), ("lango", "model", answer)):
            content = types.Content(role=role, parts=[types.Part(text=text)])
            await self._service.append_event(self._session, Event(author=author, content=content))
            self.tokens += count_tokens(text) + 4
        self._session.events.clear()
        self._turns += 1
        if self._turns % _OBSERVE_EVERY == 0:
            self._runtime.memory.observe_in_background(self.name)
            await self._runtime.memory.settle()


async def _ask(runtime: Runtime, standin: StandIn, talk: Conversation, writer: _Writer) -> list[Any]:
    asked = await ask_facts(runtime, standin, talk.truth, talk.stale)
    found = asked.checked
    lost = ", ".join(f"{step}: {count}" for step, count in asked.lost.items()) or "-"
    share = f"{found.latest} of {found.planted}"
    spent = standin.memory_calls, standin.memory_tokens
    return [share, found.only_stale, found.beside_stale, asked.tokens, writer.tokens, *spent, lost]


def main() -> None:
    """Run the benchmark."""
    run(CHECKPOINTS)


def run(checkpoints: tuple[int, ...]) -> None:
    """Run the benchmark up to the last of some turns."""
    logging.getLogger("lango").setLevel(logging.ERROR)
    asyncio.run(_measure(checkpoints))


if __name__ == "__main__":  # `python -m benchmarks.retention 100 1000`
    run(tuple(int(turns) for turns in sys.argv[1:]) or CHECKPOINTS)
