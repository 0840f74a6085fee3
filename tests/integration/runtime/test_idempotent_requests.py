"""A repeated idempotency key gives the same turn with the same events, also after a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lango.errors import IdempotencyKeyReused, ProviderRejected, TurnCancelled
from lango.events import Accepted, ToolEnd, ToolStart, TurnDone, TurnError, TurnEvent, from_json, to_json
from lango.events.text import join_text_deltas
from lango.messages import ToolCall
from lango.runtime.opening import open_runtime
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool, client_tool
from tests.agents.answers import submit_input, submit_results
from tests.agents.parts import TIMEOUT_S, check_order, collect, kinds, last_error, rows, settings_for, text_of
from tests.integration.runtime.test_queueing import Gate, gated
from tests.support.runtimes import store_of
from tests.support.servers.server_process import AGENT, send, serving


def add(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"sum": arguments["a"] + arguments["b"]}


def fail(arguments: dict[str, Any]) -> None:
    raise RuntimeError("it failed")


ADD = Tool("add", "Add.", {"type": "object", "properties": {}}, add)
FAILS = Tool("fails", "Fail.", {"type": "object", "properties": {}}, fail)
SCRIPT = [
    ["Let me. ", ToolCall("c1", "add", {"a": 1, "b": 2}), ToolCall("c2", "fails", {})],
    ["Once more. ", ToolCall("c3", "add", {"a": 3, "b": 4})],
    "done",
]
NO_MORE = ScriptedProvider([])


def without_ids_and_times(events: list[TurnEvent]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in to_json(event).items() if name not in ("id", "duration_s")} for event in events
    ]


async def again(runtime: Runtime, text: str = "go") -> list[TurnEvent]:
    return await collect(runtime.stream("s", text, idempotency_key="k"))


async def test_a_replayed_turn_has_its_tools_and_the_same_ids_each_time(sqlite_url: str) -> None:
    settings = settings_for(sqlite_url)
    async with open_runtime(settings, provider=ScriptedProvider(SCRIPT), tools=[ADD, FAILS]) as runtime:
        first = await again(runtime)
        second = await again(runtime)
        check_order(second)
        assert second[0] == first[0], "accepted is what it was"
        assert kinds(second) == kinds(first)
        assert text_of(second) == text_of(first) == "Let me. Once more. done"
        ends = [event for event in second if isinstance(event, ToolEnd)]
        assert [event.result for event in ends if event.ok] == [{"sum": 3}, {"sum": 7}]
        assert all(event.duration_s is not None for event in ends)
        starts = [event.arguments for event in second if isinstance(event, ToolStart)]
        assert starts == [{"a": 1, "b": 2}, {}, {"a": 3, "b": 4}]
        assert without_ids_and_times(second[-1:]) == without_ids_and_times(first[-1:]), "usage and all"
        assert join_text_deltas(second) == join_text_deltas(first)
    async with open_runtime(settings, provider=NO_MORE) as later:
        assert await again(later) == second, "after a restart, too"
        turn = await later.submit("s", "go", idempotency_key="k")
        assert await collect(turn.follow(second[2].id)) == second[3:]
        assert await collect(turn.follow(first[0].id)) == second[1:]


async def test_accepted_of_a_repeated_message_is_the_stored_one(store_url: str) -> None:
    """Also while the turn is queued or runs, and from every runtime."""
    gate = Gate()
    async with (
        open_runtime(settings_for(store_url), provider=gated(gate, "one", "two"), tools=[gate.tool]) as runtime,
        open_runtime(settings_for(store_url), provider=NO_MORE) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        turns = [await runtime.submit("s", text, idempotency_key=text) for text in ("1", "2")]
        await gate.wait()
        elsewhere = [await other.submit("s", text, idempotency_key=text) for text in ("1", "2")]
        assert [await anext(turn.follow()) for turn in elsewhere] == [turn.events[0] for turn in turns]
        gate.may_end.set()
        for turn in [*turns, *elsewhere]:
            await turn.wait()
        accepted = [event for turn in turns for event in turn.events if isinstance(event, Accepted)]
        assert [event.waiting for event in accepted] == [False, True]
        stored = await rows(store_of(runtime), "SELECT turn, invocation_id FROM turns ORDER BY turn")
        assert [(event.turn, event.invocation_id) for event in accepted] == [tuple(row) for row in stored]
        for text, event in zip("12", accepted, strict=True):
            for one in (runtime, other):
                replayed = await collect(one.stream("s", text, idempotency_key=text))
                assert replayed[0] == event


async def test_a_replayed_failed_turn_fails_with_the_same_error(sqlite_url: str) -> None:
    provider = ScriptedProvider([ProviderRejected("no", provider="scripted", status=400)])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        first = await again(runtime)
        second = await again(runtime)
        assert without_ids_and_times(second) == without_ids_and_times(first)
        with pytest.raises(ProviderRejected, match="no"):
            await runtime.run("s", "go", idempotency_key="k")


async def test_a_key_belongs_to_one_request_of_one_kind(store_url: str) -> None:
    pick = client_tool("pick", "Let the user pick.", ADD.parameters)
    provider = ScriptedProvider([ToolCall("c1", "pick", {}), "thanks"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        await collect((await runtime.submit("s", "go", idempotency_key="k", client_tools=[pick])).follow())
        with pytest.raises(IdempotencyKeyReused, match="with another request: use another key"):
            await submit_results(runtime, "s", {"c1": {"a": 1}}, idempotency_key="k")
        given = await submit_results(runtime, "s", {"c1": {"a": 1}}, idempotency_key="r")
        assert text_of(await collect(given.follow())) == "thanks"
        again = await submit_results(runtime, "s", {"c1": {"a": 1}}, idempotency_key="r")
        assert (again.turn.turn, again.turn.repeated) == (given.turn.turn, True)
        for results, key in (({"a": 2}, "r"), ({"a": 1}, "k")):
            with pytest.raises(IdempotencyKeyReused):
                await submit_results(runtime, "s", {"c1": results}, idempotency_key=key)
        with pytest.raises(IdempotencyKeyReused):
            await submit_input(runtime, "s", "c1", {"a": 1}, idempotency_key="r")
        with pytest.raises(IdempotencyKeyReused):
            await runtime.submit("s", "go", idempotency_key="r")


async def test_the_key_of_a_withdrawn_message_is_refused(store_url: str) -> None:
    gate = Gate()
    async with (
        open_runtime(settings_for(store_url), provider=gated(gate, "one"), tools=[gate.tool]) as runtime,
        open_runtime(settings_for(store_url), provider=NO_MORE) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        running = await runtime.submit("s", "first")
        await gate.wait()
        waits = await runtime.submit("s", "go", idempotency_key="k")
        assert await runtime.withdraw("s", waits.turn.turn)
        await waits.wait()
        for one in (runtime, other):
            with pytest.raises(IdempotencyKeyReused, match="use another key"):
                await one.run("s", "something else", idempotency_key="k")
            with pytest.raises(TurnCancelled, match="withdrawn before its turn started: send it with another key"):
                await one.run("s", "go", idempotency_key="k")
        error = last_error(await again(other))
        assert error.error == "TurnCancelled"
        gate.may_end.set()
        await running.wait()
        assert await rows(store_of(runtime), "SELECT content FROM messages WHERE role = 'user'") == [("first",)]


async def test_a_turn_of_a_server_is_replayed_from_its_event_log(tmp_path: Path, sqlite_url: str) -> None:
    """While its events are kept, ids, pieces of text and tools are exactly the same."""
    with serving(tmp_path, sqlite_url) as server:
        async with server.client() as client:
            logged = {
                text: await send(client, "s", text, **{"Idempotency-Key": text})
                for text in ("note", "words 9 0.02", "ask")
            }
            failed = await send(client, "s", "fail", **{"Idempotency-Key": "fail"})
        settings = settings_for(sqlite_url, name="obedient", module=str(AGENT))
        async with open_runtime(settings) as runtime:
            for text, events in logged.items():
                replayed = await collect(runtime.stream("s", text, idempotency_key=text))
                assert replayed == [from_json(event.data) for event in events]
                assert isinstance(replayed[-1], TurnDone)
            replayed = await collect(runtime.stream("s", "fail", idempotency_key="fail"))
            assert replayed == [from_json(event.data) for event in failed]
            assert isinstance(replayed[-1], TurnError)
            with pytest.raises(ProviderRejected):
                await runtime.run("s", "fail", idempotency_key="fail")
