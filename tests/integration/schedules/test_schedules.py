"""Schedules run their slots: each is one turn, whatever the clock, the replicas and a kill do."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import ScheduleNotFound, ScheduleRefused
from lango.messages import ToolCall
from lango.runtime.submissions import schedules as runtime_schedules
from lango.store.api_keys import spend_tokens
from lango.store.engine.database import Operation
from lango.testing import ScriptedProvider
from tests.agents.parts import TIMEOUT_S, Gate, messages, rows, settings_for
from tests.support.kill_points import copy_after_each_commit, until_idle
from tests.support.runtimes import store_of
from tests.support.schedules import Watched, at, set_clock, spec

SIX, SEVEN, EIGHT = "2026-03-02T06:00Z", "2026-03-02T07:00Z", "2026-03-02T08:00Z"
FEW_S = "2026-03-02T07:00:05Z"


async def texts(runtime: Any, session: str, user: str = "user") -> list[str]:
    return [message.content for message in await messages(runtime, session, user) if message.role == "user"]


async def test_a_slot_is_one_turn_of_its_user_with_its_time_and_counts_against_the_quota(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(["done"])) as runtime:
        watched = Watched(runtime)
        await watched.move_clock("2026-03-02T05:59Z")
        added = await runtime.schedules.add(
            spec(timezone="Europe/Berlin"), user_id="ada", quota_id="k1", tokens_per_day=1_000
        )
        assert added.next_times[:2] == ["2026-03-02T07:00:00+01:00", "2026-03-03T07:00:00+01:00"]
        assert len(added.next_times) == 10
        await watched.move_clock("2026-03-02T06:00:05Z")  # seven in Berlin
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := await runtime.schedules.runs(added.id, user_id="ada")):
                await asyncio.sleep(0.01)
        await until_idle(runtime)
        [run] = found
        session = f"schedule-{added.id}"
        assert (run.session_id, run.turn, run.slot_at) == (session, 1, at(SIX))
        assert await texts(runtime, session, "ada") == ["the news of 2026-03-02T07:00:00+01:00"]
        [after] = await runtime.schedules.runs(added.id, user_id="ada")
        assert after.outcome == "done"
        assert (await runtime.schedules.get(added.id, user_id="ada")).next_times[0] == "2026-03-03T07:00:00+01:00"
        [[quota]] = await rows(watched.store, "SELECT quota_id FROM turns")
        assert quota == "k1"
        assert await runtime.schedules.list(user_id="bob") == []
        with pytest.raises(ScheduleNotFound):
            await runtime.schedules.get(added.id, user_id="bob")
        assert not await runtime.schedules.delete(added.id, user_id="bob")
        assert await runtime.schedules.delete(added.id, user_id="ada")
        assert await rows(watched.store, "SELECT 1 FROM schedule_runs") == []
        assert await texts(runtime, session, "ada"), "the sessions of a deleted schedule stay"


async def test_clock_jumps_and_missed_slots(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(["ok"] * 20)) as runtime:
        watched = Watched(runtime)
        await watched.move_clock("2026-03-02T06:59:59Z")
        ids = {
            missed: (await runtime.schedules.add(spec(missed=missed, max_missed=2, session="each"))).id
            for missed in ("skip", "one", "all")
        }
        await watched.move_clock(FEW_S)
        for id_ in ids.values():
            await watched.runs(id_, 1, "done")
        await watched.move_clock(SIX)  # the clock goes back: the slot does not run again
        await watched.move_clock(FEW_S)
        await watched.move_clock("2026-03-07T12:00Z")  # and forward, by five slots
        skipped = await watched.runs(ids["skip"], 2, "done", "missed")
        assert (skipped[1].slots, skipped[1].last_slot_at) == (5, at("2026-03-07T07:00Z"))
        one = await watched.runs(ids["one"], 3, "done", "missed", "done")
        assert (one[1].slots, one[2].slot_at) == (4, at("2026-03-07T07:00Z"))
        await watched.runs(ids["all"], 3, "done", "missed", "done")
        await watched.move_clock("2026-03-07T12:00:02Z")  # the next slot had to wait for this one
        last = await watched.runs(ids["all"], 4, "done", "missed", "done", "done")
        assert [run.slot_at for run in last[2:]] == [at("2026-03-06T07:00Z"), at("2026-03-07T07:00Z")]
        [[turns]] = await rows(watched.store, "SELECT COUNT(*) FROM turns")
        assert turns == 3 + 1 + 2
        for id_ in ids.values():
            assert (await runtime.schedules.get(id_)).next_times[0] == "2026-03-08T07:00:00+00:00"


async def test_a_slot_waits_for_the_last_run_is_skipped_or_stops_it(store_url: str) -> None:
    gates = {overlap: Gate(f"wait_{overlap}") for overlap in ("queue", "skip", "cancel")}
    called: set[str] = set()

    def answer(request: Any) -> Any:
        name = request.messages[0].content.split()[0]
        if name in called:
            return "answered"
        called.add(name)
        return ToolCall(f"call-{name}", f"wait_{name}", {})

    tools = [gate.tool for gate in gates.values()]
    provider = ScriptedProvider([answer] * 30)
    async with open_runtime(settings_for(store_url), provider=provider, tools=tools) as runtime:
        watched = Watched(runtime)
        await watched.move_clock(SIX)
        ids = {
            overlap: (
                await runtime.schedules.add(
                    spec(cron="0 * * * *", message=f"{overlap} {{time}}", overlap=overlap, session="each")
                )
            ).id
            for overlap in gates
        }
        await watched.move_clock(SEVEN)
        for gate in gates.values():
            await gate.wait()
        await watched.move_clock(EIGHT)
        await watched.runs(ids["skip"], 2, "running", "skipped")
        await watched.runs(ids["cancel"], 2, "cancelled", "done")
        [row] = await watched.runs(ids["queue"], 1, "running")
        await watched.move_clock("2026-03-02T08:30Z")  # the slot is not missed: a process came to it
        gates["queue"].may_end.set()
        await watched.runs(ids["queue"], 1, "done")
        await watched.move_clock("2026-03-02T08:31Z")
        await watched.runs(ids["queue"], 2, "done", "done")
        gates["skip"].may_end.set()
        await watched.runs(ids["skip"], 2, "done", "skipped")
        assert row.session_id == f"schedule-{ids['queue']}-20260302T070000Z"


async def test_a_refused_slot_is_a_row_and_the_schedule_continues(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(["hi", "again"])) as runtime:
        watched = Watched(runtime)
        await watched.move_clock(SIX)
        await runtime.run("mine", "hello")
        own = await runtime.schedules.add(spec(session_id="mine"))
        broke = await runtime.schedules.add(spec(name="poor"), quota_id="k", tokens_per_day=1)
        bad = await runtime.schedules.add(spec(name="bad"))
        await runtime.sessions.delete("mine")
        await watched.store.write(spend_tokens, "k", 5, time.time())

        def break_template() -> Operation[None]:  # as a later version may store it
            yield "UPDATE schedules SET spec = REPLACE(spec, '{slot}', '{planet}') WHERE id = $1", (bad.id,)

        await watched.store.write(break_template)
        await watched.move_clock(SEVEN)
        [deleted] = await watched.runs(own.id, 1, "refused")
        assert "was deleted" in deleted.reason
        [poor] = await watched.runs(broke.id, 1, "failed")
        assert poor.reason.startswith("TokensUsedUp")
        [template] = await watched.runs(bad.id, 1, "refused")
        assert "{planet}" in template.reason
        await runtime.sessions.create("mine")
        await watched.move_clock("2026-03-03T07:00Z")
        await watched.runs(own.id, 2, "refused", "done")
        assert await runtime.sessions.find(f"schedule-{bad.id}") is None


async def test_pause_resume_run_now_and_change(store_url: str) -> None:
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(["ok"] * 9)) as runtime:
        watched = Watched(runtime)
        await watched.move_clock(SIX)
        id_ = (await runtime.schedules.add(spec(session="day"))).id
        assert (await runtime.schedules.pause(id_)).state == "paused"
        await watched.move_clock(SEVEN)
        await asyncio.gather(runtime.schedules.run_now(id_), runtime.schedules.run_now(id_))
        [now] = await watched.runs(id_, 1, "done")
        assert (now.manual, now.session_id) == (True, f"schedule-{id_}-2026-03-02")
        await runtime.schedules.resume(id_)
        await watched.move_clock(EIGHT)
        changed = await runtime.schedules.change(
            id_, {"every_s": 3600, "message": "hourly {time}", "end_at": at("2026-03-02T10:00Z")}
        )
        assert changed.next_times == ["2026-03-02T09:00:00+00:00", "2026-03-02T10:00:00+00:00"]
        await watched.move_clock("2026-03-02T09:00Z")
        await watched.runs(id_, 2, "done", "done")
        await watched.move_clock("2026-03-02T10:00Z")
        await watched.runs(id_, 3, "done", "done", "done")
        assert (await runtime.schedules.get(id_)).state == "ended"
        assert (await texts(runtime, f"schedule-{id_}-2026-03-02"))[-1] == "hourly 10:00"
        with pytest.raises(ScheduleRefused, match="still to come"):
            await runtime.schedules.add(spec(times=["2026-03-01T07:00"], cron=""))


async def test_a_schedule_of_an_app_that_is_not_served_is_left_alone(store_url: str) -> None:
    async with open_runtime(settings_for(store_url, name="other"), provider=ScriptedProvider([])) as other:
        await set_clock(store_of(other), at(SIX))
        id_ = (await other.schedules.add(spec())).id
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(["ok"])) as runtime:
        watched = Watched(runtime)
        own = (await runtime.schedules.add(spec())).id
        await watched.move_clock(SEVEN)
        await watched.runs(own, 1, "done")
        found = await rows(watched.store, f"SELECT next_slot FROM schedules WHERE id = '{id_}'")
        assert found == [(at(SEVEN),)]


async def test_a_process_that_hangs_after_the_submission_is_replaced_and_the_slot_stays_one_turn(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = asyncio.Event()

    attempt: Any = runtime_schedules.DueSchedules._attempt  # pyright: ignore[reportPrivateUsage]

    async def hanging(*args: Any, **kwargs: Any) -> Any:
        result = await attempt(*args, **kwargs)
        if not hung.is_set():
            hung.set()
            await asyncio.Event().wait()
        return result

    monkeypatch.setattr(runtime_schedules.DueSchedules, "_attempt", hanging)
    one = open_runtime(settings_for(store_url, drain_s=0.0), provider=ScriptedProvider(["ok"]))
    two = open_runtime(settings_for(store_url), provider=ScriptedProvider(["never"]))
    async with one as first, two as second:
        watched = Watched(second)
        await watched.move_clock(SIX)
        id_ = (await first.schedules.add(spec())).id
        await set_clock(watched.store, at(SEVEN))
        store_of(first).notify_due()
        store_of(second).notify_due()
        async with asyncio.timeout(TIMEOUT_S):
            await hung.wait()
        # meanwhile a person changes the message and where it runs: the slot has its turn
        changed = {"message": "another", "session": "each"}
        if await rows(watched.store, "SELECT 1 FROM turns"):
            await second.schedules.change(id_, changed)
        await watched.move_clock("2026-03-02T07:00:06Z")
        async with asyncio.timeout(TIMEOUT_S):
            while (await second.schedules.get(id_)).next_times[0] != "2026-03-03T07:00:00+00:00":
                await asyncio.sleep(0.01)
        await until_idle(second)
        assert len(await rows(watched.store, "SELECT 1 FROM turns")) == 1


async def test_a_kill_after_any_commit_leaves_one_turn_per_slot(tmp_path: Path) -> None:
    settings = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(settings, provider=ScriptedProvider(["ok"])) as runtime:
        watched = Watched(runtime)
        await watched.move_clock(SIX)
        id_ = (await runtime.schedules.add(spec())).id

        async def run() -> None:
            await watched.move_clock(SEVEN)
            await watched.runs(id_, 1, "done")

        copies = await copy_after_each_commit(runtime, tmp_path, run)
    assert len(copies) > 2
    for copy in copies:
        async with open_runtime(settings_for(f"sqlite:///{copy}"), provider=ScriptedProvider(["ok"])) as resumed:
            watched = Watched(resumed)
            await watched.move_clock("2026-03-02T07:00:20Z")  # the claim of the killed process has run out
            [run_] = await watched.runs(id_, 1, "done")
            assert (run_.slot_at, run_.turn) == (at(SEVEN), 1)
            assert len(await rows(watched.store, "SELECT 1 FROM turns")) == 1
            assert (await resumed.schedules.get(id_)).next_times[0] == "2026-03-03T07:00:00+00:00"


async def test_many_due_schedules_on_two_replicas_run_once_each(store_url: str) -> None:
    providers = [ScriptedProvider(["ok"] * 60) for _ in range(2)]
    one, two = (open_runtime(settings_for(store_url), provider=provider) for provider in providers)
    async with one as first, two as second:
        watched = Watched(first)
        await watched.move_clock(SIX)
        for number in range(40):
            await second.schedules.add(spec(name=f"n{number}"))
        await watched.move_clock(SEVEN)
        async with asyncio.timeout(TIMEOUT_S):
            while await rows(watched.store, f"SELECT 1 FROM schedules WHERE next_slot <= {at(SEVEN)}"):
                await asyncio.sleep(0.01)
        await until_idle(first)
        [[turns, sessions]] = await rows(watched.store, "SELECT COUNT(*), COUNT(DISTINCT session_key) FROM turns")
        assert (turns, sessions) == (40, 40)
        assert len(providers[0].requests) + len(providers[1].requests) == 40
        [[recorded]] = await rows(watched.store, "SELECT COUNT(*) FROM schedule_runs WHERE outcome = 'started'")
        assert recorded == 40
