"""kill -9 at every boundary of a turn, hundreds of times: the runtime beside ADK's Runner on its own SQL service.

`python -m benchmarks.crash --rounds 300`. A round starts a process that runs one turn (a message, a tool that pays, an
answer), kills it at a boundary or at a random moment, sends the same message again, as a client without an answer does,
and then the next message. Both runtimes get the same boundaries, the same model and the same tools.
"""

import asyncio
import itertools
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from benchmarks.sessions import postgres_server
from benchmarks.table import bar, print_line, quick, table
from lango.adk.model.content import contents_to_messages
from lango.adk.services.events_to_rows import event_to_entry
from lango.messages import Message
from lango.store import SessionId, Store
from lango.store.sessions.window import read_session_events
from lango.testing import ScriptedProvider
from tests.agents.parts import broken_for
from tests.support.provider_rules import broken_rules
from tests.support.store_workers import Worker
from tests.support.turn_worker import Kill, answer, kill_at, open_paying_runtime

OURS, ADK = "lango runtime", "ADK Runner, DatabaseSessionService"
WHERE = [
    "message stored",
    "model called",
    "call stored",
    "tool running",
    "tool finished",
    "result stored",
    "model speaking",
    "answer stored",
    "random",
    "random",
    "random",
    "random",
]
PER_SESSION = len(WHERE)
Point = Callable[[str], None]


@dataclass
class Tally:
    """The faults of all rounds, by kind."""

    kills: int = 0
    lost: int = 0
    stored_twice: int = 0
    paid_twice: int = 0
    unanswered: int = 0
    invalid: int = 0
    failed: int = 0
    where: Counter[str] = field(default_factory=Counter[str])

    def count(self, name: str, how_many: int, where: str) -> None:
        """Add the faults found after a kill."""
        setattr(self, name, getattr(self, name) + how_many)
        if how_many:
            self.where[f"{name} after {where}"] += how_many

    @property
    def faults(self) -> int:
        """The number of all faults."""
        return self.lost + self.stored_twice + self.paid_twice + self.unanswered + self.invalid + self.failed


def count_faults(tally: Tally, kill: Kill, messages: Sequence[Message], folder: Path, before: int) -> None:
    """Count the faults in the part of a conversation that a round added."""
    stored = Counter(one.content for one in messages if one.role == "user")
    tally.count("lost", int("accepted" in kill.received and stored[kill.text] == 0), kill.where)
    tally.count("stored_twice", max(0, stored[kill.text] - 1), kill.where)
    file = folder / "effects"
    paid = Counter(file.read_text().split() if file.exists() else [])
    text, payments = "", Counter[str]()
    for one in messages:
        text = one.content if one.role == "user" else text
        if one.role == "assistant":
            payments[text] += sum(paid[call.id] for call in one.tool_calls)
    tally.count("paid_twice", max(0, payments[kill.text] - 1), kill.where)
    made = [call.id for one in messages[before:] if one.role == "assistant" for call in one.tool_calls]
    answered = {call.id for one in messages if one.role == "tool" for call in one.tool_calls}
    tally.count("unanswered", sum(call not in answered for call in made), kill.where)


# -- ours ------------------------------------------------------------------------------------------------------------


async def ours(url: str, folder: Path, rounds: int, dice: random.Random) -> Tally:
    """Kill the runtime, round after round."""
    tally = Tally()
    before = 0
    for number in range(rounds):
        where = WHERE[number % PER_SESSION]
        session = f"s{number // PER_SESSION}"
        before = before if number % PER_SESSION else 0
        kill = Kill(session, f"message {number}", f"k{number}", where)
        kill = await asyncio.to_thread(kill_at, url, folder, kill, dice if where == "random" else None)
        tally.kills += 1
        provider = ScriptedProvider(itertools.repeat(answer))
        async with open_paying_runtime(url, folder, provider) as runtime:
            for text, key in ((kill.text, kill.key), (f"after {kill.text}", None)):
                try:
                    async with asyncio.timeout(30):
                        await runtime.run(session, text, idempotency_key=key)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                    # the repeated request may fail because its turn was interrupted; the next one must work
                    tally.count("failed", int(key is None or isinstance(error, TimeoutError)), where)
        tally.count("invalid", sum(bool(broken_for(request)) for request in provider.requests), where)
        async with Store(url) as store:
            found = await store.read(read_session_events, SessionId("crash", "user", session))
        messages = [one.message for one in found[1] if one.message] if found else []
        count_faults(tally, kill, messages, folder, before)
        before = len(messages)
    return tally


# -- ADK's -----------------------------------------------------------------------------------------------------------


class Recording(BaseLlm):
    """The same model for ADK: reports each boundary, and keeps its requests."""

    model: str = "recording"
    point: Any = None
    sent: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.sent.append([content.model_copy(deep=True) for content in llm_request.contents])
        self.point("model called")
        results = [part for part in llm_request.contents[-1].parts or [] if part.function_response]
        if results:
            self.point("model speaking")
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="it is done")]))
            return
        unique = os.urandom(6).hex()
        calls = [
            types.FunctionCall(id=f"pay-{unique}", name="pay", args={"amount": 1}),
            types.FunctionCall(id=f"look-{unique}", name="look", args={}),
        ]
        parts = [types.Part(text="I pay. "), *(types.Part(function_call=call) for call in calls)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class AnnouncingService(DatabaseSessionService):
    """ADK's session service, which reports each stored event."""

    point: Point = staticmethod(lambda _: None)

    async def append_event(self, session: Any, event: Any) -> Any:
        stored = await super().append_event(session, event)
        if event.author == "user":
            self.point("message stored")
        elif event.get_function_calls():
            self.point("call stored")
        elif event.get_function_responses():
            self.point("result stored")
        elif not event.partial:
            self.point("answer stored")
        return stored


def adk_runner(service: DatabaseSessionService, folder: Path, point: Point, sent: list[Any]) -> Runner:
    """Make ADK's Runner with the same tools."""

    async def pay(amount: int, tool_context: ToolContext) -> str:
        """Pay."""
        point("tool running")
        with (folder / "effects").open("a") as effects:
            effects.write(f"{tool_context.function_call_id}\n")
        point("tool finished")
        return f"paid {amount}"

    def look() -> str:
        """Look."""
        return "seen"

    agent = LlmAgent(
        name="payer",
        model=Recording(point=point, sent=sent),
        tools=[FunctionTool(pay), FunctionTool(look)],
    )
    return Runner(app_name="crash", agent=agent, session_service=service)


async def adk_turn(runner: Runner, session_id: str, text: str, heard: Callable[[str], None]) -> None:
    """Run a turn. The first event acknowledges the message, because ADK sends none before."""
    service = runner.session_service
    if await service.get_session(app_name="crash", user_id="user", session_id=session_id) is None:
        await service.create_session(app_name="crash", user_id="user", session_id=session_id)
    content = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id="user", session_id=session_id, new_message=content):
        heard("accepted")


def run_adk_turn(pipe: Connection, url: str, folder: str, session: str, text: str, stop_at: str) -> None:
    """Run one turn in this process, and wait at a boundary to be killed."""

    def point(name: str) -> None:
        if name == stop_at:
            pipe.send("here")
            pipe.recv()  # the process is killed here

    async def run() -> None:
        service = AnnouncingService(url)
        service.point = point
        runner = adk_runner(service, Path(folder), point, [])
        pipe.send("ready")
        await adk_turn(runner, session, text, pipe.send)

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    asyncio.run(run())


def kill_adk(url: str, folder: Path, kill: Kill, dice: random.Random) -> Kill:
    """Start a worker and kill it."""
    at_random = kill.where == "random"
    worker = Worker(run_adk_turn, url, str(folder), kill.session, kill.text, "" if at_random else kill.where)
    assert worker.recv() == "ready"
    if at_random:
        time.sleep(dice.uniform(0, 0.15))  # its turn takes about so long
    else:
        while (report := worker.recv()) != "here":
            kill.received.append(report)
    worker.kill()
    kill.received += [report for report in worker.drain() if report != "here"]
    return kill


async def adks(url: str, folder: Path, rounds: int, dice: random.Random) -> Tally:
    """Kill ADK's Runner, round after round."""
    tally = Tally()
    before = 0
    for number in range(rounds):
        where = WHERE[number % PER_SESSION]
        session = f"s{number // PER_SESSION}"
        before = before if number % PER_SESSION else 0
        kill = Kill(session, f"message {number}", "", where)
        kill = await asyncio.to_thread(kill_adk, url, folder, kill, dice)
        tally.kills += 1
        sent: list[list[types.Content]] = []
        service = DatabaseSessionService(url)
        runner = adk_runner(service, folder, lambda _: None, sent)
        for text in (kill.text, f"after {kill.text}"):
            try:
                async with asyncio.timeout(30):
                    await adk_turn(runner, session, text, lambda _: None)
            except Exception:  # noqa: BLE001 - whatever it is, it is counted
                tally.count("failed", 1, where)
        tally.count("invalid", sum(bool(broken_rules(contents_to_messages(one))) for one in sent), where)
        found = await service.get_session(app_name="crash", user_id="user", session_id=session)
        entries = [event_to_entry(event) for event in found.events] if found else []
        messages = [entry.message for entry in entries if entry.message]
        count_faults(tally, kill, messages, folder, before)
        before = len(messages)
        await service.close()
    return tally


# -- main ------------------------------------------------------------------------------------------------------------


def rounds_wanted() -> int:
    """Return the number of rounds: `--rounds 300`."""
    if "--rounds" in sys.argv:
        return int(sys.argv[sys.argv.index("--rounds") + 1])
    return PER_SESSION if quick() else 4 * PER_SESSION


async def run(postgres: str) -> None:
    """Run both contestants on both databases."""
    rounds = rounds_wanted()
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="lango-crash-") as name:
        folders = [Path(name) / str(n) for n in range(4)]
        for folder in folders:
            folder.mkdir()
        schema = f"&schema=crash_{uuid.uuid4().hex[:8]}"
        adk_postgres = postgres.replace("postgresql://", "postgresql+asyncpg://")
        for label, kill_all, url, folder in (
            (f"{OURS}, SQLite", ours, f"sqlite:///{folders[0]}/ours.db", folders[0]),
            (f"{ADK}, SQLite", adks, f"sqlite+aiosqlite:///{folders[1]}/adk.db", folders[1]),
            (f"{OURS}, PostgreSQL", ours, postgres + schema, folders[2]),
            (f"{ADK}, PostgreSQL", adks, adk_postgres, folders[3]),
        ):
            start = time.perf_counter()
            tallies[label] = await kill_all(url, folder, rounds, random.Random(1))
            print_line(f"{label}: {rounds} kills in {time.perf_counter() - start:.0f} s")
    show(tallies)


def show(tallies: dict[str, Tally]) -> None:
    """Print the faults of all contestants."""
    names = [one.name for one in fields(Tally) if one.name != "where"]
    table(
        f"kill -9 in a turn, at {len(set(WHERE)) - 1} boundaries and at random; then the same message, and another",
        ["", *(name.replace("_", " ") for name in names)],
        [[label, *(getattr(tally, name) for name in names)] for label, tally in tallies.items()],
        "lost: acknowledged and not stored; paid twice: one message, two payments; unanswered: calls without a result;",
        "invalid: requests that break a provider's rules; failed: the next message was not answered",
        *(
            bar(f"faults, {label}", tally.faults, at_most=0)
            for label, tally in tallies.items()
            if label.startswith(OURS)
        ),
    )
    for label, tally in tallies.items():
        for what, count in tally.where.most_common(6):
            print_line(f"  {label}: {count} x {what}")


def main() -> None:
    """Print the table."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"  # for the processes that are killed
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.support.preloaded", "benchmarks.crash"])
    with postgres_server() as postgres:
        asyncio.run(run(postgres))


if __name__ == "__main__":
    main()
