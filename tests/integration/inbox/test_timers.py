"""Timers and events: a turn ends, no process waits, and any replica continues it once."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.workflow import START, Workflow, node

from lango import Settings, open_runtime, tool
from lango.adk import event_data, sleep, wait_for_event
from lango.errors import IdempotencyKeyReused, InvalidAnswer, TimedOut, UsageError, WaitNotOpen
from lango.events import ToolEnd, TurnDone, WaitClosed, WaitOpened
from lango.messages import ToolCall
from lango.runtime import RunningTurn, Runtime
from lango.runtime.checks import judge_turns
from lango.runtime.opening import build_agent_app
from lango.server.app import create_app
from lango.store import Store
from lango.testing import ScriptedProvider
from lango.waits import Approve, EventWait, Result, TimerWait, Wake
from tests.agents.parts import TIMEOUT_S, Gate, collect, messages, results_in, rows, settings_for, statuses
from tests.support.runtimes import expire_waits, store_of, supervisor_of

HOUR = 3600.0


def with_timer(url: str) -> Settings:
    return settings_for(url, tools={"enabled": ["wait_until"]})


def wait_call(**arguments: Any) -> ToolCall:
    return ToolCall("c1", "wait_until", {"seconds": HOUR, "reason": "look at the oven"} | arguments)


async def ended(runtime: Runtime, turns: int) -> list[str]:
    """Wait until so many turns have ended; return what became of them."""
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := await statuses(runtime)) < turns or {*found} & {"queued", "running"}:
            await asyncio.sleep(0.01)
    return found


async def wait_of(runtime: Runtime, session: str = "s") -> Any:
    [wait] = await runtime.waits(session)
    return wait


async def until_waiting(runtime: Runtime, kind: type[Any], session: str = "s") -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        while not (found := [one for one in await runtime.waits(session) if isinstance(one, kind)]):
            await asyncio.sleep(0.01)
    return found[0]


async def test_any_replica_continues_a_turn_once_when_its_time_has_come(store_url: str) -> None:
    provider = ScriptedProvider([wait_call(), "the oven is hot"])
    async with open_runtime(with_timer(store_url), provider=provider) as runtime:
        events = await collect(runtime.stream("s", "tell me when"))
        assert isinstance(done := events[-1], TurnDone)
        assert done.status == "waiting"
        [opened] = [event.wait for event in events if isinstance(event, WaitOpened)]
        assert isinstance(opened, TimerWait)
        assert (opened.tool, opened.reason, done.waits) == ("wait_until", "look at the oven", (opened,))
        assert opened.expires_at is not None
        assert timedelta(minutes=59) < opened.expires_at - opened.opened_at < timedelta(minutes=61)
        assert [item.wait for item in await runtime.inbox.list()] == [opened]
        assert supervisor_of(runtime).running_turns() == []
    # everything was down; then several replicas find it due
    async with (
        open_runtime(with_timer(store_url), provider=provider) as one,
        open_runtime(with_timer(store_url), provider=provider) as other,
    ):
        await asyncio.gather(*(expire_waits(runtime) for runtime in (one, other) * 3))
        assert await ended(one, 2) == ["done", "done"]
        assert (await messages(other))[-1].content == "the oven is hot"
        assert results_in(provider.requests[1])["c1"]["woken_by"] == "time"
        assert len(provider.requests) == 2
        assert await one.inbox.list() == []
        assert await rows(store_of(one), "SELECT closed, answered_by FROM waits") == [("answered", None)]


async def test_a_person_wakes_a_timer_once_or_cancels_it(store_url: str) -> None:
    provider = ScriptedProvider([wait_call(), "woken", wait_call(), "well"])
    async with open_runtime(with_timer(store_url), provider=provider) as runtime:
        await runtime.run("s", "wait")
        wait = await wait_of(runtime)
        with pytest.raises(InvalidAnswer, match="answered with wake"):
            await runtime.answer("s", wait.id, Approve())
        events = await collect((await runtime.answer("s", wait.id, Wake())).follow())
        assert [(event.outcome, event.answered_by) for event in events if isinstance(event, WaitClosed)] == [
            ("answered", "user")
        ]
        assert results_in(provider.requests[1])["c1"]["woken_by"] == "person"
        with pytest.raises(WaitNotOpen):
            await runtime.answer("s", wait.id, Wake())
        assert not await runtime.cancel_wait("s", wait.id)

        await runtime.run("t", "wait")
        assert await runtime.cancel_wait("t", (await wait_of(runtime, "t")).id)
        assert await runtime.waits("t") == []
        await expire_waits(runtime)
        assert await runtime.run("t", "and now?") == "well"
        assert "cancelled" in results_in(provider.requests[3])["c1"]["error"]
        assert len(provider.requests) == 4, "nothing ran for a cancelled timer"


async def test_the_conversation_continues_meanwhile_and_a_timer_queues_behind_a_running_turn(store_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([wait_call(), "busy", ToolCall("c2", "wait_here", {}), "here", "late"])
    async with open_runtime(with_timer(store_url), provider=provider, tools=[gate.tool]) as runtime:
        await runtime.run("s", "wait")
        assert await runtime.run("s", "how are you?") == "busy"
        assert isinstance(await wait_of(runtime), TimerWait), "a message does not close it"
        running = await runtime.submit("s", "work")
        await gate.wait()
        await expire_waits(runtime)
        async with asyncio.timeout(TIMEOUT_S):
            while await statuses(runtime) != ["done", "done", "running", "queued"]:
                await asyncio.sleep(0.01)
        gate.may_end.set()
        await running.wait()
        assert await ended(runtime, 4) == ["done"] * 4
        assert (await messages(runtime))[-1].content == "late"


async def test_a_tool_of_ones_own_waits_and_one_that_cannot_says_so(sqlite_url: str) -> None:
    def ready(item: str) -> Any:
        """Wait until something is ready."""
        return wait_for_event("ready", {"item": item})

    @tool(long_running=True)
    async def nap(seconds: float) -> Any:
        """Sleep."""
        return sleep(seconds)

    def hasty() -> Any:
        """Sleep, which it may not."""
        return sleep(1)

    calls = [
        ToolCall("a", "ready", {"item": "boat"}),
        ToolCall("b", "nap", {"seconds": 0.0}),
        ToolCall("c", "hasty", {}),
    ]
    provider = ScriptedProvider([calls, "all there"])
    agent = LlmAgent(name="clerk", tools=[LongRunningFunctionTool(ready), FunctionTool(hasty)])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent, tools=[nap]) as runtime:
        events = await collect(runtime.stream("s", "go"))
        assert [event.name for event in events if isinstance(event, ToolEnd)] == ["hasty"]
        assert isinstance(await until_waiting(runtime, EventWait), EventWait)
        assert (await runtime.send_event("ready", {"item": "car"})).answered == 0
        assert (await runtime.send_event("ready", {"item": "boat", "at": [1, 2]})).answered == 1
        async with asyncio.timeout(TIMEOUT_S):
            while len(provider.requests) < 2:
                await asyncio.sleep(0.01)
        shown = results_in(provider.requests[1])
        assert shown["a"]["data"] == {"item": "boat", "at": [1, 2]}
        assert shown["b"]["woken_by"] == "time"
        assert "LongRunningFunctionTool" in shown["c"]["error"]


@node
async def pause(node_input: Any) -> AsyncGenerator[Any, None]:
    yield sleep(HOUR, reason="roasting")


def paid(node_input: Any) -> Any:
    return wait_for_event("payment", {"order.id": 7}, timedelta(days=3))


def ship(node_input: Any) -> str:
    try:
        return f"shipped after {event_data(node_input)['amount']}"
    except TimedOut:
        return "given up"


@pytest.mark.parametrize("pays", [True, False])
async def test_nodes_of_a_workflow_sleep_and_wait_for_an_event_or_its_timeout(store_url: str, pays: bool) -> None:
    shop = Workflow(name="shop", edges=[(START, pause, paid, ship)])
    async with open_runtime(settings_for(store_url), root_agent=shop) as runtime:
        events = await collect(runtime.stream("s", "coffee"))
        assert isinstance(done := events[-1], TurnDone)
        assert [(one.kind, getattr(one, "path", "")) for one in done.waits] == [("timer", "shop@1/pause@1")]
        await expire_waits(runtime)
        wait = await until_waiting(runtime, EventWait)
        assert (wait.event, wait.match, wait.path) == ("payment", {"order.id": 7}, "shop@1/paid@1")
        if pays:
            assert (await runtime.send_event("payment", {"order": {"id": 8}})).answered == 0
            assert (await runtime.send_event("payment", {"order": {"id": 7}, "amount": 3})).answered == 1
        else:
            await expire_waits(runtime)
        assert await ended(runtime, 3) == ["done"] * 3
        assert (await messages(runtime))[-1].content == ("shipped after 3" if pays else "given up")


async def test_parallel_nodes_continue_each_by_itself(sqlite_url: str) -> None:
    def short(node_input: Any) -> Any:
        return sleep(0.0)

    def long(node_input: Any) -> Any:
        return wait_for_event("late")

    short_ended: list[str] = []

    def after_short(node_input: Any) -> None:
        short_ended.append(node_input["woken_by"])

    def after_long(node_input: Any) -> str:
        return f"long: {event_data(node_input)}"

    flow = Workflow(name="flow", edges=[(START, short, after_short), (START, long, after_long)])
    async with open_runtime(settings_for(sqlite_url), root_agent=flow) as runtime:
        await collect(runtime.stream("s", "go"))
        assert await ended(runtime, 2) == ["done", "done"]
        assert isinstance(await wait_of(runtime), EventWait), "the other still waits"
        assert short_ended == ["time"]
        await runtime.send_event("late", "x")
        assert await ended(runtime, 3) == ["done"] * 3
        assert (await messages(runtime))[-1].content == "long: x"


async def test_a_node_that_runs_again_waits_for_one_event_after_the_other(store_url: str) -> None:
    @node(rerun_on_resume=True)
    async def collect_two(ctx: Context) -> AsyncGenerator[Any, None]:
        for name in ("first", "second"):
            if name not in ctx.resume_inputs:
                yield wait_for_event("part", id=name, window=HOUR)
                return
        yield ",".join(event_data(ctx.resume_inputs[name]) for name in ("first", "second"))

    flow = Workflow(name="flow", edges=[(START, collect_two)])
    async with open_runtime(settings_for(store_url), root_agent=flow) as runtime:
        assert (await runtime.send_event("part", "a", idempotency_key="1")).answered == 0
        await runtime.run("s", "go")
        # the event from before the wait counts, but for one wait of the session only
        await ended(runtime, 2)
        second = await until_waiting(runtime, EventWait)
        assert second.id == "second"
        again = await runtime.send_event("part", "a", idempotency_key="1")
        assert (again.answered, again.repeated) == (0, True)
        with pytest.raises(IdempotencyKeyReused):
            await runtime.send_event("part", "b", idempotency_key="1")
        assert (await runtime.send_event("part", "b", user_id="another")).answered == 0
        assert (await runtime.send_event("part", "b", session_id="another")).answered == 0
        assert (await runtime.send_event("part", "b", user_id="user", session_id="s")).answered == 1
        assert await ended(runtime, 3) == ["done"] * 3
        assert (await messages(runtime))[-1].content == "a,b"


async def test_an_event_before_the_window_or_after_its_expiry_does_not_count(store_url: str) -> None:
    def now(node_input: Any) -> Any:
        return wait_for_event("tick", window=0)

    flow = Workflow(name="flow", edges=[(START, now)])
    async with open_runtime(settings_for(store_url), root_agent=flow) as runtime:
        await runtime.send_event("tick", 1)
        await runtime.run("s", "go")
        wait = await wait_of(runtime)
        assert isinstance(wait, EventWait)
        assert wait.expires_at is None
        await runtime.send_event("other", keep_s=0)
        await runtime.send_event("other")
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM sent_events WHERE name = 'other'") == [(1,)]
        with pytest.raises(InvalidAnswer):
            await runtime.answer("s", wait.id, Result({"n": 1}, will_continue=True))
        await collect((await runtime.answer("s", wait.id, Result({"n": 1}))).follow())
        assert (await messages(runtime))[-1].tool_calls[0].output is not None
        assert await runtime.waits("s") == []


async def test_no_wait_that_opens_while_its_event_is_sent_misses_it(store_url: str) -> None:
    def mine(ctx: Context) -> Any:
        return wait_for_event("race", {"to": ctx.session.id}, window=HOUR)

    def got(node_input: Any) -> str:
        return f"got {event_data(node_input)['to']}"

    flow = Workflow(name="flow", edges=[(START, mine, got)])
    names = [f"s{number}" for number in range(8)]
    async with (
        open_runtime(settings_for(store_url), root_agent=flow) as runtime,
        open_runtime(settings_for(store_url), root_agent=flow) as sender,
    ):

        async def start(name: str) -> RunningTurn:
            return await runtime.submit(name, "go")

        async def send(name: str) -> None:
            await sender.send_event("race", {"to": name})

        await asyncio.gather(*(work(name) for name in names for work in (start, send)))
        async with asyncio.timeout(TIMEOUT_S):
            while [one for one in await statuses(runtime) if one == "done"] != ["done"] * 2 * len(names):
                await asyncio.sleep(0.01)
        for name in names:
            assert (await messages(runtime, name))[-1].content == f"got {name}"


async def test_events_come_and_waits_are_cancelled_over_http(sqlite_url: str) -> None:
    def paid_once(node_input: Any) -> Any:
        return wait_for_event("payment", {"id": 1})

    flow = Workflow(name="flow", edges=[(START, paid_once)])
    settings = settings_for(sqlite_url)
    async with open_runtime(settings, root_agent=flow) as runtime:
        transport = httpx.ASGITransport(create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/v1/sessions/s/messages", json={"text": "go"})
            [wait] = (await client.get("/v1/sessions/s/waits")).json()["waits"]
            assert (wait["kind"], wait["event"], wait["match"]) == ("event", "payment", {"id": 1})
            assert (await client.post("/v1/events/no way", json={})).status_code == 400
            headers = {"Idempotency-Key": "e1"}
            sent = await client.post("/v1/events/payment", json={"data": {"id": 2}}, headers=headers)
            assert (sent.status_code, sent.json()) == (
                202,
                {"name": "payment", "key": "e1", "answered": 0, "repeated": False},
            )
            reused = await client.post("/v1/events/payment", json={"data": {"id": 3}}, headers=headers)
            assert reused.status_code == 422
            path = f"/v1/sessions/s/waits/{wait['id']}"
            assert (await client.delete(path)).status_code == 204
            assert (await client.delete(path)).status_code == 409
            assert (await client.post("/v1/events/payment", json={"data": {"id": 1}})).json()["answered"] == 0
            assert (await client.get("/v1/sessions/s/waits")).json() == {"waits": []}


def test_pauses_say_what_is_wrong_with_them() -> None:
    for wrong in (
        lambda: sleep(),
        lambda: sleep(1, until=datetime.now(UTC)),
        lambda: sleep(until=datetime(2026, 5, 1)),
        lambda: sleep(-1),
        lambda: sleep(float("nan")),
        lambda: wait_for_event("no way"),
        lambda: wait_for_event("x", {"a": object()}),
        lambda: wait_for_event("x", window=-1),
    ):
        with pytest.raises(UsageError):
            wrong()


def shop(name: str = "shop", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, **more)


CHANGES: dict[str, Callable[[], tuple[dict[str, Any], LlmAgent]]] = {
    "instruction": lambda: ({"tools": {"enabled": ["wait_until"]}}, shop(instruction="Be brief.")),
    "the tool removed": lambda: ({}, shop()),
    "the agent renamed": lambda: ({"tools": {"enabled": ["wait_until"]}}, shop("store")),
    "a sub-agent added": lambda: ({"tools": {"enabled": ["wait_until"]}}, shop(sub_agents=[shop("clerk")])),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_timer_wakes_its_turn_in_a_changed_version(store_url: str, change: str) -> None:
    old = settings_for(store_url, name="app", tools={"enabled": ["wait_until"]})
    async with open_runtime(old, root_agent=shop(), provider=ScriptedProvider([wait_call()])) as runtime:
        await runtime.run("s", "tell me when")
    configured, agent = CHANGES[change]()
    new = settings_for(store_url, name="app", **configured)
    app = build_agent_app(new, agent)
    async with Store(store_url) as store:
        [verdict] = await judge_turns(store, app, 0)
    await app.models.close()
    assert (verdict.session, verdict.state) == ("s", "paused")
    assert verdict.verdict != "cannot continue"
    provider = ScriptedProvider(["the oven is hot"])
    async with open_runtime(new, root_agent=CHANGES[change]()[1], provider=provider) as runtime:
        await expire_waits(runtime)
        assert await ended(runtime, 2) == ["done", "done"]
        assert (await messages(runtime))[-1].content == "the oven is hot"
        assert results_in(provider.requests[0])["c1"]["woken_by"] == "time"


async def test_a_fork_has_its_own_timer_and_a_copy_none(store_url: str) -> None:
    provider = ScriptedProvider([wait_call(), "hot", "hot", "well"])
    async with open_runtime(with_timer(store_url), provider=provider) as runtime:
        await runtime.run("s", "tell me when")
        await runtime.sessions.fork("s", new_id="fork")
        lines = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.import_lines(lines, session_id="copy")
        assert isinstance(await wait_of(runtime, "fork"), TimerWait)
        assert await runtime.waits("copy") == []
        assert await runtime.run("copy", "and now?") == "hot"
        assert "error" in results_in(provider.requests[1])["c1"], "it reads that nothing wakes it"
        await expire_waits(runtime)
        assert await ended(runtime, 5) == ["done"] * 5
        for session in ("s", "fork"):
            shown = await runtime.sessions.messages(session)
            assert [one.message.content for one in shown if one.message][-1] in ("hot", "well")
        woken = [results_in(request)["c1"].get("woken_by") for request in provider.requests[2:]]
        assert woken == ["time", "time"]
