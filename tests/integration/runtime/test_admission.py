"""A process runs a bounded number of turns; further ones queue in order, see their place, and lose no time limit."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lango import open_runtime
from lango.errors import TurnCancelled, TurnReleased
from lango.events import Queued, TurnDone
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime import Runtime
from lango.runtime.execution.admission import Admission
from lango.testing import ScriptedProvider
from lango.tools import tool
from lango.turns.running_turn import RunningTurn
from tests.agents.parts import TIMEOUT_S, Gate, Leaps, collect, settings_for, statuses, text_of


def answer(request: Request) -> str:
    return f"re: {request.messages[-1].content}"


def places(turn: RunningTurn) -> list[int]:
    return [event.place for event in turn.events if isinstance(event, Queued)]


async def until_queued(turn: RunningTurn) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not places(turn):
            await turn.log.changed.wait()


@asynccontextmanager
async def one_runs_two_queue(store_url: str) -> AsyncGenerator[tuple[Runtime, Gate, list[RunningTurn]]]:
    """Open a runtime that runs one turn at once: the first waits at the gate, two more are queued."""
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "first", answer, answer])
    settings = settings_for(store_url, max_running_turns=1)
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        turns = [await runtime.submit("a", "first")]
        await gate.wait()
        for session, text in (("b", "second"), ("c", "third")):
            turns.append(await runtime.submit(session, text))
            await until_queued(turns[-1])
        yield runtime, gate, turns


async def test_turns_beyond_the_limit_queue_in_order_and_see_their_place(sqlite_url: str) -> None:
    async with one_runs_two_queue(sqlite_url) as (runtime, gate, turns):
        first, second, third = turns
        assert runtime.turns_without_slot == 2
        assert (places(second), places(third)) == ([1], [2])
        gate.may_end.set()
        ends = [(await collect(turn.follow()))[-1] for turn in turns]
        assert all(isinstance(end, TurnDone) for end in ends), ends
        assert places(first) == []
        assert (places(second)[0], places(second)[-1]) == (1, 0)
        assert (places(third)[0], places(third)[-1]) == (2, 0)
        assert text_of(third.events) == "re: third"
        assert runtime.turns_without_slot == 0


async def test_a_queued_turn_can_be_cancelled_and_gives_up_its_place(sqlite_url: str) -> None:
    async with one_runs_two_queue(sqlite_url) as (runtime, gate, turns):
        first, second, third = turns
        assert await runtime.cancel("b")
        await second.wait()
        assert isinstance(second.error, TurnCancelled)
        assert sorted(await statuses(runtime)) == ["cancelled", "running", "running"]
        assert runtime.turns_without_slot == 1
        gate.may_end.set()
        assert text_of(await collect(third.follow())) == "re: third"
        await first.wait()


async def test_time_limits_count_from_the_moment_a_turn_is_admitted(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, clock = Gate(), Leaps(monkeypatch)
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "first", answer])
    settings = settings_for(
        sqlite_url, max_running_turns=1, idle_timeout_s=120, tool_timeout_s=10_000, request_timeout_s=10_000
    )
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        await runtime.submit("a", "first")
        await gate.wait()
        second = await runtime.submit("b", "second")
        await until_queued(second)
        await clock.pass_by(500)  # longer than a turn that runs may be silent
        assert not second.finished
        gate.may_end.set()
        assert text_of(await collect(second.follow())) == "re: second"


async def test_a_turn_that_a_tool_starts_runs_in_the_slot_of_its_caller(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "ask_another", {}), "inner answer", "outer answer"])

    @tool
    async def ask_another() -> str:
        """Ask another session."""
        return await runtime.run("inner", "question")

    settings = settings_for(sqlite_url, max_running_turns=1)
    async with open_runtime(settings, provider=provider, tools=[ask_another]) as runtime:
        async with asyncio.timeout(TIMEOUT_S):
            events = await collect(runtime.stream("outer", "go"))
        assert text_of(events) == "outer answer"


async def test_closing_a_runtime_hands_over_turns_that_wait_for_a_slot(sqlite_url: str) -> None:
    gate = Gate(effect="idempotent")
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {})])
    settings = settings_for(sqlite_url, max_running_turns=1, drain_s=0)
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        await runtime.submit("a", "first", idempotency_key="a")
        await gate.wait()
        second = await runtime.submit("b", "second", idempotency_key="b")
        await until_queued(second)
    assert isinstance(second.error, TurnReleased)
    gate.may_end.set()
    provider = ScriptedProvider(itertools.repeat(lambda request: f"re: {said_by_user(request)}"))
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        assert await runtime.run("b", "second", idempotency_key="b") == "re: second"
        assert await runtime.run("a", "first", idempotency_key="a") == "re: first"
    assert gate.runs == 2, "it may run again, and its turn had no result of it"


def said_by_user(request: Request) -> str:
    return [one.content for one in request.messages if one.role == "user"][-1]


@pytest.mark.parametrize("admitted_first", [True, False])
async def test_a_slot_is_not_lost_when_its_turn_is_cancelled_on_entering(admitted_first: bool) -> None:
    """Cancelled just after the slot was handed over, or just before: the next turn gets it in both cases."""
    admission, entered, may_leave = Admission(1), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with admission.admitted(lambda place: None):
            entered.set()
            await may_leave.wait()

    async def pass_through() -> bool:
        async with admission.admitted(lambda place: None):
            return True

    holder = asyncio.create_task(hold())
    await entered.wait()
    cancelled, last = asyncio.create_task(pass_through()), asyncio.create_task(pass_through())
    await asyncio.sleep(0)
    assert admission.waiting == 2
    if not admitted_first:
        cancelled.cancel()
    may_leave.set()
    while admission.waiting == 2 and not cancelled.done():
        await asyncio.sleep(0)
    cancelled.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        await holder
        await asyncio.wait([cancelled])
        assert await last
    assert admission.waiting == 0


class Clock:
    """The clock of the running loop, which stands still unless a test moves it on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._now)

    async def advance(self, seconds: float) -> None:
        """Move the clock on, and let everything that is due by then happen."""
        self._now += seconds
        for _ in range(10):
            await asyncio.sleep(0)


class Crowd:
    """Twenty turns that want to run at the same moment, on a clock that the test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admission, self.clock = Admission(1_000), Clock(monkeypatch)
        self.entered: list[int] = []
        self._may_leave = asyncio.Event()
        self._tasks = [asyncio.create_task(self._hold(number)) for number in range(20)]

    async def _hold(self, number: int) -> None:
        async with self.admission.admitted(lambda place: None):
            self.entered.append(number)
            await self._may_leave.wait()

    async def leave(self) -> None:
        """Let all of them end."""
        self._may_leave.set()
        await asyncio.wait(self._tasks)


async def test_no_turn_begins_until_the_event_loop_was_on_time_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    crowd.admission.note_event()
    for _ in range(50):
        await crowd.clock.advance(0.2)  # every timer fires late
    assert crowd.entered == list(range(16)), "some run in any case, and no more while it is late"
    assert crowd.admission.waiting == 4
    for _ in range(20):
        await crowd.clock.advance(0.02)  # every timer fires on time
    assert crowd.entered == list(range(16)), "0.4 s on time is not long enough"
    for _ in range(100):
        before = len(crowd.entered)
        await crowd.clock.advance(0.02)
        assert len(crowd.entered) <= before + 1, "one after the other"
    assert crowd.entered == list(range(20)), "first come, first served"
    await crowd.leave()


async def test_few_turns_run_until_the_first_one_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    for _ in range(100):
        await crowd.clock.advance(0.02)
    assert crowd.entered == list(range(16)), "the first ones import: what they will cost is not known yet"
    crowd.admission.note_event()
    for _ in range(100):
        await crowd.clock.advance(0.02)
    assert crowd.entered == list(range(20))
    await crowd.leave()


async def test_the_first_event_of_a_turn_admits_others(sqlite_url: str) -> None:
    gate = Gate()
    held = [ToolCall(f"c{number}", gate.tool.name, {}) for number in range(17)]
    provider = ScriptedProvider([*held, *[answer] * 17])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        turns = [await runtime.submit(f"s{number}", "go") for number in range(17)]
        async with asyncio.timeout(TIMEOUT_S):
            while gate.runs < 17:  # all are held in a tool: none of them has ended
                await asyncio.sleep(0.01)
        gate.may_end.set()
        for turn in turns:
            await turn.wait()
            assert turn.error is None


async def test_queued_turns_learn_their_new_places_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    admission, clock, may_leave = Admission(1), Clock(monkeypatch), asyncio.Event()
    places: list[list[int]] = [[] for _ in range(6)]

    async def hold(number: int) -> None:
        async with admission.admitted(places[number].append):
            await may_leave.wait()

    tasks = [asyncio.create_task(hold(number)) for number in range(6)]
    await clock.advance(0.02)
    tasks[1].cancel()
    for _ in range(300):
        before = sum(map(len, places))
        await clock.advance(0.02)
        assert sum(map(len, places)) <= before + 1, "all at once would make the loop late"
    assert places == [[], [1], [2, 1], [3, 2], [4, 3], [5, 4]]
    may_leave.set()
    while admission.waiting:
        await clock.advance(0.02)
    await asyncio.wait(tasks)


async def test_a_turn_that_has_run_before_is_admitted_before_those_that_have_not_begun() -> None:
    """A turn that is handed over or run again keeps its place, also where many new ones wait."""
    admission, admitted, may_leave = Admission(1), list[str](), asyncio.Event()

    async def enter(name: str, *, has_run: bool) -> None:
        async with admission.admitted(lambda place: None, has_run=has_run):
            admitted.append(name)
            await may_leave.wait()

    names = ["holder", "new", "again 1", "newer", "again 2"]
    tasks = [asyncio.create_task(enter(name, has_run=name.startswith("again"))) for name in names]
    while admission.waiting < 4:
        await asyncio.sleep(0)
    may_leave.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.wait(tasks)
    assert admitted == ["holder", "again 1", "again 2", "new", "newer"]
