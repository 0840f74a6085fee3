"""A7: a session runs one turn at a time, across runtimes; further messages queue, are refused or interrupt."""

import asyncio
import random
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import (
    IdempotencyKeyReused,
    Stopping,
    TurnCancelled,
    TurnFailed,
    TurnReleased,
    TurnRunning,
    Unstorable,
)
from lango.events import Accepted
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Finish, TextDelta, UsageDelta
from lango.store.engine.database import Operation, Row
from lango.store.turns.turns import read_turn_texts
from lango.submissions import SubmittedMessage, TurnRequest
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.parts import (
    TIMEOUT_S,
    Gate,
    broken_for,
    check_order,
    collect,
    last_error,
    messages,
    rows,
    settings_for,
    statuses,
    text_of,
)
from tests.support.runtimes import store_of


def last_words(request: Request) -> str:
    return f"re: {request.messages[-1].content}"


def echo(count: int) -> ScriptedProvider:
    """A model that repeats the last message."""
    return ScriptedProvider(last_words for _ in range(count))


def gated(gate: Gate, *answers: Any) -> ScriptedProvider:
    return ScriptedProvider([ToolCall("c1", gate.tool.name, {}), *answers])


async def test_a7_messages_during_a_turn_are_queued_in_order(sqlite_url: str) -> None:
    gate = Gate()
    provider = gated(gate, "first done", last_words, last_words)
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "first"))
        await gate.wait()
        later = [await runtime.submit("s", text) for text in ("second", "third")]
        for turn in later:
            accepted = turn.events[0]
            assert isinstance(accepted, Accepted)
            assert accepted.waiting
        assert await statuses(runtime) == ["running", "queued", "queued"]
        assert [message.content for message in await messages(runtime)][:1] == ["first"], "nothing is mixed in"
        assert len(await messages(runtime)) == 2
        gate.may_end.set()
        assert await first == "first done"
        emitted = [await collect(turn.follow()) for turn in later]
        assert [text_of(events) for events in emitted] == ["re: second", "re: third"]
        for events in emitted:
            check_order(events)
        assert await statuses(runtime) == ["done"] * 3
        stored_texts = [
            message.content for message in await messages(runtime) if message.role != "tool" and message.content
        ]
        assert stored_texts == ["first", "first done", "second", "re: second", "third", "re: third"]


async def test_a7_a_message_during_a_turn_is_refused_if_so_configured(sqlite_url: str) -> None:
    gate = Gate()
    provider = gated(gate, "first done", "second done")
    settings = settings_for(sqlite_url, when_busy="refuse")
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "first"))
        await gate.wait()
        with pytest.raises(TurnRunning):
            await runtime.run("s", "second")
        with pytest.raises(TurnRunning):
            await collect(runtime.stream("s", "second"))
        gate.may_end.set()
        assert await first == "first done"
        assert await runtime.run("s", "second") == "second done"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == ["first", "second"]


async def test_a7_a_message_during_a_turn_interrupts_it_if_so_configured(sqlite_url: str) -> None:
    gate = Gate()
    provider = gated(gate, "newest done")
    settings = settings_for(sqlite_url, when_busy="interrupt")
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "first"))
        await gate.wait()
        assert await runtime.run("s", "newest") == "newest done"
        with pytest.raises(TurnCancelled, match="newer message"):
            await first
        assert await statuses(runtime) == ["cancelled", "done"]
    assert broken_for(provider.requests[-1]) == []
    assert "outcome is unknown" in str(provider.requests[-1].messages)


async def test_a7_queued_turns_are_interrupted_too_and_no_message_is_lost(sqlite_url: str) -> None:
    async def answer(request: Request) -> str:
        if request.messages[-1].content.endswith("second"):  # it may have started before the third came
            await asyncio.Event().wait()
        return "newest done"

    gate = Gate()
    provider = gated(gate, answer, answer)
    settings = settings_for(sqlite_url, when_busy="interrupt")
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.submit("s", "first")
        await gate.wait()
        second, third = await asyncio.gather(runtime.submit("s", "second"), runtime.submit("s", "third"))
        emitted = [await collect(turn.follow()) for turn in (first, second, third)]
        assert [last_error(events).error for events in emitted[:2]] == ["TurnCancelled"] * 2
        assert text_of(emitted[2]) == "newest done"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == [
            "first",
            "second",
            "third",
        ]
        assert await statuses(runtime) == ["cancelled", "cancelled", "done"]
    assert broken_for(provider.requests[-1]) == []


async def test_a7_sessions_do_not_wait_for_each_other(sqlite_url: str) -> None:
    count = 12
    together = asyncio.Barrier(count)

    async def meet(request: Request) -> str:
        await together.wait()  # only if all run at the same time
        return last_words(request)

    provider = ScriptedProvider(meet for _ in range(count))
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime, asyncio.timeout(TIMEOUT_S):
        names = [(f"s{n % 4}", f"user{n // 4}") for n in range(count)]
        answers = await asyncio.gather(
            *(runtime.run(session, f"{user} in {session}", user_id=user) for session, user in names)
        )
    assert answers == [f"re: {user} in {session}" for session, user in names]


async def test_a7_many_messages_to_one_session_are_answered_once_each(store_url: str) -> None:
    count = 10
    async with open_runtime(settings_for(store_url), provider=echo(count)) as runtime:
        async with asyncio.timeout(TIMEOUT_S):
            answers = await asyncio.gather(*(runtime.run("s", f"m{n}") for n in range(count)))
        assert answers == [f"re: m{n}" for n in range(count)]
        stored_texts = [message.content for message in await messages(runtime)]
        assert stored_texts[::2] == [f"m{n}" for n in range(count)], "in the order in which they were sent"
        assert stored_texts[1::2] == [f"re: {text}" for text in stored_texts[::2]], "each message with its own answer"


async def test_a7_two_runtimes_on_one_store_take_turns(store_url: str) -> None:
    running = 0
    most = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)  # long enough to be caught in the middle
        running -= 1
        return "worked"

    def worker() -> ScriptedProvider:
        return ScriptedProvider([ToolCall("c", "work", {}), last_words] * 3)

    async with (
        open_runtime(settings_for(store_url), provider=worker(), tools=[work]) as one,
        open_runtime(settings_for(store_url), provider=worker(), tools=[work]) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        await asyncio.gather(*(runtime.run("s", f"m{n}") for n in range(3) for runtime in (one, other)))
        assert most == 1
        assert await statuses(one) == ["done"] * 6
        stored_texts = [message.role for message in await messages(one)]
        assert stored_texts == ["user", "assistant", "tool", "assistant"] * 6, "turns are not mixed"


async def test_a7_the_same_key_is_the_same_turn_while_it_runs(sqlite_url: str) -> None:
    gate = Gate()
    provider = gated(gate, "done once")
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "go", idempotency_key="k"))
        await gate.wait()
        second = asyncio.create_task(runtime.run("s", "go", idempotency_key="k"))
        third = await runtime.submit("s", "go", idempotency_key="k")
        gate.may_end.set()
        assert await first == await second == text_of(await collect(third.follow())) == "done once"
        assert await statuses(runtime) == ["done"]
        assert gate.runs == 1


async def test_a7_one_reader_that_leaves_does_not_stop_the_others(sqlite_url: str) -> None:
    gate = Gate()
    async with open_runtime(settings_for(sqlite_url), provider=gated(gate, "done"), tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "go", idempotency_key="k"))
        await gate.wait()
        second = asyncio.create_task(collect(runtime.stream("s", "go", idempotency_key="k")))
        request = TurnRequest("k")
        known = await runtime.accept("s", SubmittedMessage("go", request=request), detached=False)
        while known.readers < 2:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gate.may_end.set()
        assert text_of(await second) == "done"


async def test_a7_the_same_key_after_the_end_returns_the_same_answer(sqlite_url: str) -> None:
    provider = ScriptedProvider([["Let me. ", ToolCall("c1", "no_such_tool", {})], "done once", RuntimeError("boom")])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        assert await runtime.run("s", "go", idempotency_key="k") == "Let me. done once"
        events = await collect(runtime.stream("s", "go", idempotency_key="k"))
        check_order(events)
        assert text_of(events) == "Let me. done once"
        with pytest.raises(TurnFailed):
            await runtime.run("s", "fail", idempotency_key="f")
        with pytest.raises(TurnFailed, match="boom"):
            await runtime.run("s", "fail", idempotency_key="f")
        assert await statuses(runtime) == ["done", "failed"]
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as later:
        assert await later.run("s", "go", idempotency_key="k") == "Let me. done once"
        assert [message.content for message in await messages(later) if message.role == "user"] == ["go", "fail"]


async def test_the_same_key_with_another_message_is_refused_and_nothing_runs(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider(["first", ToolCall("c1", gate.tool.name, {}), "second"])
    async with (
        open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime,
        open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as other,
        asyncio.timeout(TIMEOUT_S),
    ):
        for text, key in (("go", "k"), ("go on", "running"), ("and on", "waiting")):
            await runtime.submit("s", text, idempotency_key=key)
        await gate.wait()
        for key in ("k", "running", "waiting"):
            for one in (runtime, other):
                with pytest.raises(IdempotencyKeyReused, match="use another key"):
                    await one.run("s", "something else", idempotency_key=key)
        assert await statuses(runtime) == ["done", "running", "queued"]
        assert await other.run("s", "go", idempotency_key="k") == "first"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == ["go", "go on"]
        gate.may_end.set()
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as later:
        with pytest.raises(IdempotencyKeyReused):
            await later.submit("s", "something else", idempotency_key="k")
        assert await later.run("s", "go", idempotency_key="k") == "first"


async def test_a7_the_same_key_at_another_runtime_waits_for_the_answer(store_url: str) -> None:
    gate = Gate()
    async with (
        open_runtime(settings_for(store_url), provider=gated(gate, "done once"), tools=[gate.tool]) as one,
        open_runtime(settings_for(store_url), provider=ScriptedProvider([])) as other,
    ):
        first = asyncio.create_task(one.run("s", "go", idempotency_key="k"))
        await gate.wait()
        again = await other.submit("s", "go", idempotency_key="k")
        gate.may_end.set()
        assert await first == "done once"
        assert text_of(await collect(again.follow())) == "done once"
        assert await rows(store_of(one), "SELECT COUNT(*) FROM turns") == [(1,)]


async def test_a7_keys_belong_to_their_session(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), provider=echo(2)) as runtime:
        assert await runtime.run("a", "one", idempotency_key="k") == "re: one"
        assert await runtime.run("b", "two", idempotency_key="k") == "re: two"


async def test_a7_a_queued_turn_whose_reader_leaves_is_withdrawn(sqlite_url: str) -> None:
    gate = Gate()
    provider = gated(gate, "first done", "third done")
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        first = asyncio.create_task(runtime.run("s", "first"))
        await gate.wait()
        second = asyncio.create_task(runtime.run("s", "second"))
        while await statuses(runtime) != ["running", "queued"]:
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await statuses(runtime) == ["running", "cancelled"]
        gate.may_end.set()
        assert await first == "first done"
        assert await runtime.run("s", "third") == "third done"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == ["first", "third"]


async def test_a7_a_caller_that_leaves_at_any_moment_leaves_no_open_turn(store_url: str) -> None:
    """Cancelled in the first steps, and at random points: in the submit, before the task begins, in the turn."""
    dice = random.Random(7)
    async with open_runtime(settings_for(store_url), provider=echo(1_000)) as runtime:
        await runtime.run("s", "warm")
        for delay_s in [0.0] * 10 + [dice.uniform(0, 0.02) for _ in range(40)]:
            task = asyncio.create_task(runtime.run("s", f"after {delay_s}"))
            await asyncio.sleep(delay_s)
            task.cancel()
            await asyncio.wait([task], timeout=TIMEOUT_S)
            assert task.done(), f"hangs when cancelled after {delay_s} s"
        left = await rows(store_of(runtime), "SELECT COUNT(*) FROM turns WHERE status IN ('running', 'queued')")
        assert left == [(0,)]
        assert (await runtime.run("s", "and now?")).startswith("re: ")


async def test_an_old_request_is_replayed_from_its_own_messages_only(sqlite_url: str) -> None:
    provider = ScriptedProvider(["one", "two", "three"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        for key in ("a", "b", "c"):
            await runtime.run("s", key, idempotency_key=key)
        turn = (await runtime.submit("s", "b", idempotency_key="b")).turn

        async def stored_texts() -> list[tuple[int, str]]:
            return [
                (row.seq, row.message.content)
                for row in await store_of(runtime).read(read_turn_texts, turn.session_key, turn.turn)
                if row.message
            ]

        def as_an_older_version_wrote_it(below: int) -> Operation[list[Row]]:
            return (yield "UPDATE turns SET first_seq = NULL WHERE turn < $1", (below,))

        assert await stored_texts() == [(4, "two")]
        for below in (2, 3, 4):  # of its neighbours, some have a first sequence number stored
            await store_of(runtime).write(as_an_older_version_wrote_it, below)
            assert await stored_texts() == [(4, "two")]
        assert await runtime.run("s", "b", idempotency_key="b") == "two"


async def test_spaces_around_a_session_id_are_ignored_and_an_id_is_required(sqlite_url: str) -> None:
    """ADK strips ids when it loads a session: it would never find an id that was stored with spaces."""
    async with open_runtime(settings_for(sqlite_url), provider=echo(3)) as runtime:
        assert await runtime.run(" a b\n", "one") == "re: one"
        assert await runtime.run("a b", "two") == "re: two"
        assert [session.name.id for session in await runtime.sessions.list()] == ["a b"]
        made = await runtime.sessions.create(" c ")
        assert await runtime.run("c ", "three") == "re: three"
        assert (await runtime.sessions.fork("c", new_id=" d ")).name.id == "d"
        assert (await runtime.sessions.create("  ")).name.id.strip(), "no name is no id: a random one"
        assert await runtime.sessions.delete(f" {made.name.id} ")
        for nothing in ("", " "):
            with pytest.raises(Unstorable, match="empty"):
                await runtime.run(nothing, "hi")


async def test_a_closed_runtime_accepts_no_message(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), provider=echo(2)) as runtime:
        assert await runtime.run("s", "one") == "re: one"
    with pytest.raises(Stopping, match="closed"):
        await runtime.run("s", "two")
    async with open_runtime(settings_for(sqlite_url), provider=echo(1)) as again:
        assert await again.run("s", "three") == "re: three"
        assert [message.content for message in await messages(again)] == ["one", "re: one", "three", "re: three"]


async def test_messages_that_arrive_while_the_runtime_closes_are_handed_over_or_not_stored(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), provider=echo(8)) as runtime:
        sending = [
            asyncio.create_task(runtime.run(str(number), "hi", idempotency_key=str(number))) for number in range(8)
        ]
        await asyncio.sleep(0)  # they are being stored
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {Stopping, TurnReleased}, outcomes
    async with open_runtime(settings_for(sqlite_url), provider=echo(8)) as again:
        for number in range(8):
            assert await again.run(str(number), "hi", idempotency_key=str(number)) == "re: hi"
        assert await statuses(again) == ["done"] * 8


async def test_a_queued_turn_starts_within_the_tokens_of_the_day(store_url: str) -> None:
    """The limit was not reached when they were accepted; the queue continues for a key that has tokens left."""
    gate = Gate()
    spent = [TextDelta("first done"), UsageDelta(15, 5), Finish("stop")]
    provider = gated(gate, spent, last_words, last_words, last_words)
    quota: dict[str, Any] = {"quota_id": "small", "tokens_per_day": 20}
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.accept("s", SubmittedMessage("first"), **quota)
        await gate.wait()
        later = [await runtime.accept("s", SubmittedMessage(text), **quota) for text in ("second", "third")]
        other = await runtime.accept("s", SubmittedMessage("fourth"), quota_id="large", tokens_per_day=100)
        gate.may_end.set()
        assert text_of(await collect(first.follow())) == "first done"
        for turn in later:
            failed = last_error(await collect(turn.follow()))
            assert failed.error == "TokensUsedUp"
            assert "20 tokens" in failed.message
        assert text_of(await collect(other.follow())) == "re: fourth"
        assert await statuses(runtime) == ["done", "failed", "failed", "done"]
        assert len(provider.requests) == 3
