"""Run a turn, keep the store as it is after each commit, and go on from each of these states in a new runtime.

A copy of the file after a commit is what a kill right after this commit leaves. The model answers by what it is sent,
so a turn that goes on rightly ends with the same conversation as one that was never killed.
"""

import asyncio
import itertools
import json
import logging
import os
import signal
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from msgspec import Struct, field

from lango import Settings, open_runtime
from lango.runtime.runtime import Runtime
from lango.runtime.trace.steps import Step
from lango.store import Store
from lango.store.engine.database import Operation, Row
from lango.store.turns.lease import mark_seen
from tests.agents.parts import TIMEOUT_S, collect, settings_for
from tests.support.runtimes import store_of

PlanStep = str | dict[str, Any] | list[dict[str, Any]]
"""What a model answers: a text, a call, or several calls."""


class Journal(Struct):
    """What really happened: model calls and effects of tools, in order."""

    model_calls: list[str] = field(default_factory=list[str])
    effects: list[str] = field(default_factory=list[str])

    @property
    def calls_by_agent(self) -> Counter[str]:
        return Counter(call.split()[0] for call in self.model_calls)

    @property
    def effects_by_name(self) -> Counter[str]:
        return Counter(effect.split()[0] for effect in self.effects)


class PlannedModel(BaseLlm):
    """Answers step i of a plan, where i is the number of results of this plan's calls in the request."""

    plan: Any = ()  # of `PlanStep`
    agent: str = ""
    journal: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        steps: list[list[Any]] = [step if isinstance(step, list) else [step] for step in self.plan]
        names: set[str] = {call["name"] for step in steps for call in step if not isinstance(call, str)}
        parts = [part for content in llm_request.contents for part in content.parts or []]
        results = sum(bool(part.function_response and part.function_response.name in names) for part in parts)
        number = 0
        while number < len(steps) - 1 and results > 0:
            results -= len(steps[number])
            number += 1
        self.journal.model_calls.append(f"{self.agent} {number}")
        content = [
            types.Part(text=step)
            if isinstance(step, str)
            else types.Part(function_call=types.FunctionCall(name=step["name"], args=step["args"]))
            for step in steps[number]
        ]
        yield LlmResponse(content=types.Content(role="model", parts=content), partial=False, turn_complete=True)


class Run(Struct):
    """A conversation as it is stored at the end, and what happened on the way."""

    story: list[str]
    status: str
    event_ids: list[str]
    state: dict[str, Any]
    journal: Journal


class LeftBehind(Struct):
    """What a killed process left in the store."""

    event_ids: list[str]
    responses: Counter[str]
    """How many model responses are stored, by agent."""
    finished: Counter[str]
    """How many tools and nodes have finished, by name."""


MakeAgent = Callable[[Journal], Any]

_EVENT_IDS = "SELECT event_id FROM messages ORDER BY seq"


async def run_and_copy(
    make: MakeAgent, folder: Path, text: str = "go", *more: str, settings: Settings | None = None, **fields: Any
) -> tuple[Run, list[Path]]:
    """Run a turn to its end; return it, and a copy of the store after each commit from its acceptance on.

    `more` are further messages, queued behind the first; `fields` come with each of them.
    """
    journal = Journal()
    settings = settings or settings_for(f"sqlite:///{folder}/first.db")
    async with open_runtime(settings, root_agent=make(journal)) as runtime:

        async def run() -> None:
            for turn in [await runtime.submit("s", each, **fields) for each in (text, *more)]:
                await collect(turn.follow())

        await runtime.sessions.create("s")
        copies = await copy_after_each_commit(runtime, folder, run)
        return await _run(store_of(runtime), journal), copies


async def copy_after_each_commit(runtime: Runtime, folder: Path, run: Callable[[], Awaitable[None]]) -> list[Path]:
    """Copy the store `first.db` of a runtime after each commit while something runs, unless only a heartbeat is new."""
    copies: list[Path] = []
    newest: dict[str, Any] = {}
    database: Any = vars(store_of(runtime))["_database"]
    write = database.write
    copying = asyncio.Lock()
    numbers = itertools.count()

    async def write_and_copy(*args: Any, **kwargs: Any) -> Any:
        nonlocal newest
        result = await write(*args, **kwargs)
        async with copying:
            copy = folder / f"after-{next(numbers):03d}.db"
            await asyncio.to_thread(copy_store, folder / "first.db", copy)
            content = _content(copy)
            if content.get("turns") and content != newest:  # a group of writes has one commit
                newest = content
                copies.append(copy)  # complete: the task may be cancelled meanwhile, with the end of its turn
        return result

    database.write = write_and_copy
    try:
        await run()
    finally:
        database.write = write
    return copies


def _content(copy: Path) -> dict[str, Any]:
    """Return the rows of each table, without the heartbeats of processes."""
    connection: Any = apsw.Connection(str(copy))
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('owners', 'replicas')"
    try:
        names = [name for [name] in connection.execute(tables).fetchall()]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
    finally:
        connection.close()


async def go_on(make: MakeAgent, copy: Path) -> Run:
    """Open a runtime on a copy, wait until nothing is open any more, and return the conversation."""
    journal = Journal()
    async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=make(journal)) as runtime:
        await until_idle(runtime)
        await check_trace(runtime)
        return await _run(store_of(runtime), journal)


async def check_trace(runtime: Runtime) -> None:
    """Check that the trace has each response of a model once, with a start and an end, whichever process made it."""

    def flat(steps: list[Step]) -> list[Step]:
        return [found for step in steps for found in (step, *flat(step.steps))]

    by_model = "role = 'assistant' AND COALESCE(extra, '') NOT LIKE '%from_code%'"
    stored = await _rows(
        store_of(runtime), f"SELECT seq FROM messages WHERE {by_model} AND COALESCE(extra, '') NOT LIKE '%output_text%'"
    )
    [session] = await runtime.sessions.list()
    steps = [step for turn in (await runtime.sessions.trace(session.name.id)).turns for step in flat(turn.steps)]
    responses = [step for step in steps if step.kind == "model_call" and step.seq is not None]
    assert sorted(step.seq or 0 for step in responses) == sorted(seq for [seq] in stored)
    assert all(step.duration_s is not None and step.status == "done" for step in responses), responses
    for turn in (await runtime.sessions.trace(session.name.id)).turns:
        assert max(Counter(step.id for step in flat(turn.steps)).values(), default=1) == 1, "ids are unique in a turn"


def left_behind(copy: Path) -> LeftBehind:
    """Read what a kill left in a copy of the store."""
    connection: Any = apsw.Connection(str(copy))
    by_model = (
        "role = 'assistant' AND COALESCE(extra, '') NOT LIKE '%from_code%' "
        "AND COALESCE(extra, '') NOT LIKE '%output_text%'"
    )
    responses = connection.execute(f"SELECT author FROM messages WHERE {by_model}").fetchall()
    journaled = connection.execute("SELECT name, call_id FROM tool_journal WHERE status = 'finished'").fetchall()
    event_ids = connection.execute(_EVENT_IDS).fetchall()
    connection.close()
    nested = [name for name, step_id in journaled if "#" in step_id and "node:" not in step_id]
    finished = [name for name, step_id in journaled if "#" not in step_id or "node:" in step_id]
    return LeftBehind(
        [event_id for [event_id] in event_ids], Counter([author for [author] in responses] + nested), Counter(finished)
    )


def check_resumed(where: str, whole: Run, before: LeftBehind, resumed: Run, *, in_order: bool) -> None:
    """Check that a turn that went on ended as the one that was never killed, and did nothing again."""
    assert resumed.status == "done", f"{where}: {resumed}"
    assert resumed.event_ids[: len(before.event_ids)] == before.event_ids, f"{where}: what was stored stays"
    # a tool that had begun, and may have taken effect, is never run again: the model reads that its outcome is unknown
    if not any("outcome is unknown" in line for line in resumed.story):
        stories = (resumed.story, whole.story) if in_order else (sorted(resumed.story), sorted(whole.story))
        assert stories[0] == stories[1], where
        assert resumed.state == whole.state, where
        asked = resumed.journal.calls_by_agent + before.responses
        assert asked == whole.journal.calls_by_agent, f"{where}: no stored response is asked for again"
    names = whole.journal.effects_by_name  # an agent that is a tool has no effect of its own
    done = resumed.journal.effects_by_name + Counter({name: before.finished[name] for name in names})
    assert done <= names, f"{where}: nothing that finished runs again"


def run_until_killed(pipe: Connection, shape: str, file: str, commits: int) -> None:
    """Run a turn in a process of its own, and kill the process right after so many commits."""
    from tests.support.agent_shapes import SHAPES

    async def run() -> None:
        url = f"sqlite:///{file}"
        async with open_runtime(settings_for(url), root_agent=SHAPES[shape](Journal())) as runtime:
            await runtime.sessions.create("s")
            database: Any = vars(store_of(runtime))["_database"]
            write, count = database.write, 0

            async def write_and_count(*args: Any, **kwargs: Any) -> Any:
                nonlocal count
                result = await write(*args, **kwargs)
                count += getattr(args[0], "func", None) is not mark_seen  # the process announces itself at any moment
                if count == commits:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            database.write = write_and_count
            await collect((await runtime.submit("s", "go")).follow())
            pipe.send("ended")

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.run(run())


async def _run(store: Store, journal: Journal) -> Run:
    state = [json.loads(text) for [text] in await _rows(store, "SELECT state FROM session_states")]
    return Run(await story(store), await _status(store), await _event_ids(store), state[0] if state else {}, journal)


async def _event_ids(store: Store) -> list[str]:
    return [event_id for [event_id] in await _rows(store, _EVENT_IDS)]


async def until_idle(runtime: Runtime) -> None:
    """Wait until no turn is queued or running."""
    async with asyncio.timeout(TIMEOUT_S):
        while await _rows(store_of(runtime), "SELECT 1 FROM turns WHERE status IN ('queued', 'running')"):
            await asyncio.sleep(0.01)


async def story(store: Store) -> list[str]:
    """Return the conversation: each message with its author, text, calls and results, without ids."""
    found = await _rows(store, "SELECT author, role, content, tool_calls FROM messages ORDER BY seq")
    return [f"{author} {role}: {content} {_without_ids(calls)}".strip() for author, role, content, calls in found]


def _without_ids(calls: str | None) -> str:
    if not calls:
        return ""
    return json.dumps([{name: value for name, value in call.items() if name != "id"} for call in json.loads(calls)])


async def _status(store: Store) -> str:
    return ", ".join(status for [status] in await _rows(store, "SELECT status FROM turns ORDER BY turn"))


async def _rows(store: Store, sql: str) -> list[Any]:
    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    return [tuple(row) for row in await store.read(operation)]


def copy_store(source: Path, target: Path) -> None:
    """Copy a database by SQLite's own backup, with the same library: another one would drop the locks of the file."""
    reader, writer = apsw.Connection(str(source)), apsw.Connection(str(target))
    with writer.backup("main", reader, "main") as backup:
        backup.step()
    reader.close()
    writer.close()


async def check_every_kill(make: MakeAgent, folder: Path) -> list[str]:
    """Run a turn, go on from every commit, and return its story."""
    whole, copies = await run_and_copy(make, folder)
    assert whole.status == "done"
    for copy in copies:
        before = left_behind(copy)
        check_resumed(copy.name, whole, before, await go_on(make, copy), in_order=True)
    return whole.story
