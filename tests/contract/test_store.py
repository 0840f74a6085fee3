"""The store below ADK: fenced writes, turns, windows, rewinds, state at any point, on both databases."""

import asyncio
import re
import time
from typing import Any

import pytest

from lango.errors import EventConflict, FencedWrite, SessionNotFound, StaleSession, TurnRunning
from lango.messages import Message, ToolCall
from lango.sessions import CONFIRMATION_CALL, SessionId, SessionInfo, StoredEvent
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.lifecycle import fork as forks
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.state import read_state_at, read_state_before
from lango.store.sessions.window import read_message_page, read_session_events, read_session_window
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import (
    Effect,
    JournalEntry,
    read_journal_entries,
    read_journal_entry,
    record_intent,
    record_result,
    record_start,
)
from lango.store.turns.lease import beat, lease_turn
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import request_cancel
from lango.store.waits import recovery
from tests.support.processes import TIMEOUT_S

NAME = SessionId("app", "alice", "s")


class Writer:
    """Appends messages to a session at its newest revision."""

    def __init__(self, store: Store, session: SessionInfo) -> None:
        self.store = store
        self.session = session
        self.revision = session.revision
        self.last_seq = session.last_seq
        self.count = 0

    async def add(self, message: Message | None, tokens: int = 10, **fields: Any) -> int:
        self.count += 1
        entry = NewEvent(f"e{self.count}", time.time(), message, tokens=tokens if message else 0, **fields)
        appended = await self.store.append(
            self.session.key, self.session.name, self.revision, entry, last_seq=self.last_seq
        )
        self.revision, self.last_seq = appended.revision, appended.seq
        return appended.seq

    async def talk(self, count: int, **fields: Any) -> None:
        for number in range(count):
            await self.add(Message("user" if number % 2 == 0 else "assistant", f"m{self.count + 1}"), **fields)

    async def call(self, *ids: str, **fields: Any) -> int:
        return await self.add(Message("assistant", tool_calls=tuple(ToolCall(i, "f", {}) for i in ids)), **fields)

    async def answer(self, *ids: str, tokens: int = 10, **fields: Any) -> int:
        results = tuple(ToolCall(i, "f", output={"ok": True}) for i in ids)
        return await self.add(Message("tool", "{}", results), tokens, **fields)

    async def window(self, budget_tokens: int) -> list[int]:
        found = await self.store.read(read_session_window, NAME, budget_tokens)
        assert found is not None
        return [one.seq for one in found[1]]


@pytest.fixture
async def writer(store: Store) -> Writer:
    return Writer(store, await store.write(create_session, NAME, None, time.time()))


async def everything(store: Store) -> list[StoredEvent]:
    found = await store.read(read_session_events, NAME)
    assert found is not None
    return found[1]


async def test_h6_the_window_is_exactly_what_fits(writer: Writer) -> None:
    await writer.talk(10)
    assert await writer.window(1_000) == list(range(1, 11)), "nothing is cut where all fits"
    assert await writer.window(100) == list(range(1, 11))
    assert await writer.window(99) == list(range(2, 11))
    assert await writer.window(35) == [8, 9, 10]
    assert await writer.window(10) == [10]


async def test_h4_one_message_over_the_budget_stays(writer: Writer) -> None:
    await writer.talk(3)
    await writer.call("c")
    await writer.answer("c", tokens=5_000)
    assert await writer.window(100) == [1, 2, 3, 4, 5], "it takes a quarter, and what stands before it has its room"
    await writer.talk(1, tokens=5_000)
    assert await writer.window(100) == [6], "the user's words are not clipped"


async def test_h3_a_cut_window_begins_neither_with_a_result_nor_with_an_unanswered_call(writer: Writer) -> None:
    await writer.talk(1)
    await writer.call("a", "b")  # 2
    await writer.answer("a", "b")  # 3
    await writer.talk(1)  # 4
    assert await writer.window(20) == [4], "the result of a call that was cut goes with it"
    assert await writer.window(30) == [2, 3, 4]
    assert await writer.window(40) == [1, 2, 3, 4]


async def test_h3_a_call_without_result_does_not_begin_a_window(writer: Writer) -> None:
    await writer.talk(1)
    await writer.call("lost")  # 2: the process died in the tool
    await writer.talk(2)  # 3, 4
    assert await writer.window(30) == [3, 4]
    assert await writer.window(40) == [1, 2, 3, 4], "where nothing is cut, everything stays as it is"


async def test_h3_results_of_an_older_writer_count_as_answers(writer: Writer) -> None:
    await writer.talk(1)
    await writer.call("a")
    await writer.add(Message("tool", "plain text"))
    await writer.talk(1)
    assert await writer.window(30) == [2, 3, 4]


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.parametrize("named", [True, False])
async def test_h3_no_window_parts_a_result_of_an_older_writer_from_its_call(
    writer: Writer, role: Any, named: bool
) -> None:
    """For every budget, and so every point where a window may be cut."""
    unit_of: dict[int, int] = {}
    for _ in range(4):
        await writer.talk(1)
        call = await writer.call("a", "b")
        for call_id in ("a", "b"):
            done = (ToolCall(call_id, "f", output={"ok": True}),) if named else ()
            unit_of[await writer.add(Message(role, "{}", done))] = call
        await writer.talk(1)
    for budget in range(1, writer.count * 10):
        seqs = await writer.window(budget)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert all(unit_of.get(seq, seq) in seqs for seq in seqs), budget


async def test_h4_large_results_do_not_displace_earlier_messages(writer: Writer) -> None:
    out = {"out": "word " * 2_000}
    for number in range(6):  # 3 messages each
        await writer.talk(1)
        await writer.call(f"c{number}")
        result = ToolCall(f"c{number}", "f", output=out)
        await writer.add(Message("tool", "", (result,)), tokens=2_000)
    found = await writer.store.read(read_session_window, NAME, 400)
    assert found
    assert [one.seq for one in found[1]] == list(range(10, 19)), "three of them, a quarter each"
    clipped = [one for one in found[1] if one.message and one.message.role == "tool"]
    assert all(one.tokens <= 120 and one.clipped_tokens > 1_800 for one in clipped)
    found = await writer.store.read(read_session_window, NAME, 100_000)
    assert found
    assert all(one.clipped_tokens == 0 for one in found[1]), "where all fits, nothing is clipped"


LARGE: dict[str, Any] = {"a": [{"b": 1}] * 5_000}


def arguments(stored: StoredEvent) -> Any:
    assert stored.message
    return stored.message.tool_calls[0].input


async def test_h4_arguments_of_calls_that_are_over_are_clipped_and_stored_whole(writer: Writer) -> None:
    """An import may say that a row of any size costs 5 tokens, so the window looks for itself."""
    await writer.add(Message("user", "look"))
    await writer.add(Message("assistant", "", (ToolCall("c", "look", LARGE),)), tokens=5)
    await writer.answer("c")
    budget = 1_000
    found = await writer.store.read(read_session_window, NAME, budget)
    assert found
    assert arguments(found[1][1]) == LARGE, "the turn goes on from this call"
    await writer.add(Message("user", "and now?"))
    found = await writer.store.read(read_session_window, NAME, budget)
    assert found
    [call] = [one for one in found[1] if one.message and one.message.role == "assistant"]
    assert list(arguments(call)) == ["clipped"]
    assert re.search(r"\[\.\.\. \d+ of \d+ tokens left out \.\.\.\]", arguments(call)["clipped"])
    assert call.tokens <= budget // 4 + 20
    assert arguments((await everything(writer.store))[1]) == LARGE
    found = await writer.store.read(read_session_window, NAME, 100_000)
    assert found
    assert [arguments(one) for one in found[1] if one.seq == 2] == [LARGE], "where all fits, nothing is clipped"


async def test_many_calls_that_cost_more_than_they_say_share_the_budget(writer: Writer) -> None:
    for number in range(10):
        call = ToolCall(f"c{number}", "look", {"a": LARGE["a"][:400]})
        await writer.add(Message("assistant", "", (call,)), tokens=5)
        await writer.answer(f"c{number}")
    await writer.add(Message("user", "and now?"))
    found = await writer.store.read(read_session_window, NAME, 8_000)
    assert found
    assert len(found[1]) == 21
    assert sum(one.tokens for one in found[1]) <= 8_200


@pytest.mark.parametrize("long_running", [True, False])
async def test_calls_that_have_still_to_run_are_never_clipped(writer: Writer, long_running: bool) -> None:
    call, quick = ToolCall("c", "look", LARGE), ToolCall("quick", "look", {})
    waits = frozenset({"c"}) if long_running else frozenset[str]()
    await writer.add(Message("assistant", "", (call, quick)), tokens=5, long_running=waits)
    await writer.answer("quick")
    await writer.add(Message("user", "are you there?"))
    found = await writer.store.read(read_session_window, NAME, 1_000)
    assert found
    assert arguments(found[1][0]) == LARGE


async def test_an_approval_request_and_the_call_that_it_shows_are_never_clipped_before_it_ran(writer: Writer) -> None:
    shown = {"id": "c", "name": "look", "args": LARGE}
    question = ToolCall("q", CONFIRMATION_CALL, {"originalFunctionCall": shown, "toolConfirmation": {}})
    await writer.add(Message("assistant", "", (ToolCall("c", "look", LARGE),)), tokens=5)
    await writer.add(Message("assistant", "", (question,)), tokens=5, long_running=frozenset({"q"}))
    await writer.answer("c")  # ADK answers it: it waits for approval
    for add in (lambda: writer.add(Message("user", "what is it?")), lambda: writer.answer("q")):
        await add()
        found = await writer.store.read(read_session_window, NAME, 1_000)
        assert found
        assert arguments(found[1][0]) == LARGE
        assert arguments(found[1][1]) == question.input


async def test_open_calls_are_always_in_the_window(writer: Writer) -> None:
    await writer.call("slow", "quick", long_running=frozenset({"slow"}))  # 1
    await writer.answer("quick")  # 2
    await writer.talk(10)  # 3..12
    assert await writer.window(30) == [1, 10, 11, 12], "a long-running call waits, wherever it stands"
    await writer.answer("slow")  # 13
    assert await writer.window(30) == [1, 11, 12, 13], "and its result is never without it"
    await writer.talk(10)
    assert 1 not in await writer.window(30)


async def test_an_open_call_of_the_current_turn_is_in_the_window(writer: Writer) -> None:
    await writer.talk(1)
    await writer.call("now", tokens=500)
    assert await writer.window(100) == [1, 2]
    await writer.answer("now")
    await writer.call("next")
    assert await writer.window(25) == [1, 4], "a call still waits at the end"


async def test_h4_parallel_results_stay_with_their_call(writer: Writer) -> None:
    await writer.talk(2)
    await writer.call("a", "b")  # 3
    await writer.answer("a")  # 4
    await writer.answer("b", tokens=5_000)  # 5
    assert await writer.window(100) == [1, 2, 3, 4, 5]
    assert await writer.window(35) == [1, 3, 4, 5], "and the user's message that the turn answers"


async def test_zero_token_events_are_in_the_window_with_their_neighbours(writer: Writer) -> None:
    await writer.talk(4)
    await writer.add(Message("event"), tokens=0)
    await writer.talk(2)
    assert await writer.window(40) == [3, 4, 5, 6, 7]
    assert await writer.window(20) == [5, 6, 7]


async def test_rewinds_cut_the_window_as_adk_reads_them(writer: Writer) -> None:
    for invocation in "abc":
        await writer.talk(2, invocation_id=invocation)  # a: 1 2, b: 3 4, c: 5 6
    await writer.add(Message("event"), tokens=0, invocation_id="r1", rewind_before="b")  # 7
    assert await writer.window(1_000) == [1, 2]
    await writer.talk(2, invocation_id="d")  # 8 9
    assert await writer.window(1_000) == [1, 2, 8, 9]
    assert await writer.window(30) == [2, 8, 9], "the budget reaches across the gap"
    assert await writer.window(20) == [8, 9]
    await writer.add(Message("event"), tokens=0, invocation_id="r2", rewind_before="c")  # 10
    assert await writer.window(1_000) == [1, 2, 3, 4], "what the second takes back includes the first rewind"
    await writer.add(Message("event"), tokens=0, invocation_id="r3", rewind_before="nobody")  # 11
    assert await writer.window(1_000) == [1, 2, 3, 4, 11]
    assert [one.seq for one in await everything(writer.store)] == list(range(1, 12)), "nothing is deleted"


async def test_s8_the_state_of_any_point_can_be_restored(store: Store) -> None:
    writer = Writer(store, await store.write(create_session, NAME, {"n": 0, "user:u": 1}, time.time()))
    await writer.add(Message("user", "1"), state_delta={"n": 1})
    await writer.add(None, state_delta={"n": 1.5, "temp:t": 1, "app:a": 1})
    await writer.add(Message("user", "2"), invocation_id="second")
    await writer.add(Message("user", "3"), state_delta={"n": None})
    key = writer.session.key
    assert [await store.read(read_state_at, key, seq) for seq in range(4)] == [
        {"n": 0},
        {"n": 1.5},
        {"n": 1.5},
        {"n": None},
    ]
    assert await store.read(read_state_before, key, "second") == {"n": 1.5}


async def test_f4_an_event_and_its_state_are_committed_together(writer: Writer) -> None:
    await writer.add(Message("user", "1"), state_delta={"n": 1, "user:u": 1, "app:a": 1})
    entry = NewEvent("late", time.time(), Message("user", "2"), state_delta={"n": 2, "user:u": 2, "app:a": 2})
    with pytest.raises(StaleSession):
        await writer.store.append(writer.session.key, NAME, 0, entry)
    session = await writer.store.read(find_session, NAME)
    assert session is not None
    assert session.state == {"n": 1, "user:u": 1, "app:a": 1}
    assert (session.last_seq, session.revision) == (1, 1)


async def test_f2_one_row_per_event_id(writer: Writer) -> None:
    entry = NewEvent("same", time.time(), Message("user", "hi"), tokens=1, state_delta={"n": 1})
    first = await writer.store.append(writer.session.key, NAME, 0, entry)
    again = await writer.store.append(writer.session.key, NAME, 0, entry)
    fresh = await writer.store.append(writer.session.key, NAME, 1, entry)
    assert (first.seq, again.seq, fresh.seq) == (1, 1, 1)
    assert (first.repeated, again.repeated, fresh.repeated) == (False, True, True)
    assert (again.revision, fresh.revision) == (1, 1)
    with pytest.raises(EventConflict):
        await writer.store.append(writer.session.key, NAME, 1, NewEvent("same", time.time(), Message("user", "other")))
    session = await writer.store.read(find_session, NAME)
    assert session is not None
    assert (session.revision, session.last_seq, session.total_tokens) == (1, 1, 1)


async def test_a_repeated_event_does_not_make_a_stale_writer_fresh(writer: Writer) -> None:
    entry = NewEvent("mine", time.time(), Message("user", "mine"))
    await writer.store.append(writer.session.key, NAME, 0, entry)
    await writer.store.append(writer.session.key, NAME, 1, NewEvent("theirs", time.time(), Message("user", "theirs")))
    repeated = await writer.store.append(writer.session.key, NAME, 0, entry)
    with pytest.raises(StaleSession):
        await writer.store.append(
            writer.session.key, NAME, repeated.revision, NewEvent("next", time.time(), Message("user", "next"))
        )


def user_message(text: str) -> NewEvent:
    return NewEvent(
        f"event of {text}", time.time(), Message("user", text, author="user"), tokens=1, invocation_id=f"i-{text}"
    )


async def test_a7_the_users_message_and_its_turn_are_stored_together(writer: Writer) -> None:
    turn = await writer.store.submit_turn(writer.session, user_message("hello"), "me")
    assert (turn.turn, turn.epoch, turn.status) == (1, 1, "running")
    [stored] = await everything(writer.store)
    assert stored.message == Message("user", "hello", author="user")
    assert stored.invocation_id == "i-hello"


async def test_a7_the_next_message_is_queued_in_order_and_is_not_lost(writer: Writer) -> None:
    store, session = writer.store, writer.session
    first = await store.submit_turn(session, user_message("1"), "me")
    second = await store.submit_turn(session, user_message("2"), "me")
    third = await store.submit_turn(session, user_message("3"), "me")
    assert (second.status, third.status) == ("queued", "queued")
    with pytest.raises(TurnRunning):
        await store.submit_turn(session, user_message("4"), "me", SubmitOptions(when_busy="refuse"))
    assert [(a.turn, a.status) for a in await ahead(store, third)] == [(1, "running"), (2, "queued")]
    assert await store.end_turn(NAME, first, "done")
    assert [a.turn for a in await ahead(store, third)] == [2], "the third waits for the second"
    claimed = await store.write(lease_turn, second.session_key, NAME, second.turn, "me", time.time())
    assert isinstance(claimed, Turn)
    assert claimed.epoch == 2
    await store.end_turn(NAME, claimed, "done")
    assert isinstance(await store.write(lease_turn, third.session_key, NAME, third.turn, "me", time.time()), Turn)
    assert [one.message.content for one in await everything(store) if one.message] == ["1", "2", "3"]


async def ahead(store: Store, turn: Turn) -> list[OpenTurn]:
    found = await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time())
    assert isinstance(found, list)
    return found


async def held(store: Store, owner: str) -> list[tuple[int, int, bool]]:
    """Send the heartbeat of an owner; return the leases that it holds."""
    return [(one.turn, one.epoch, one.cancel_requested) for one in await store.write(beat, owner)]


async def test_the_same_request_twice_is_one_turn(writer: Writer) -> None:
    first = await writer.store.submit_turn(writer.session, user_message("1"), "me", SubmitOptions(idempotency_key="k"))
    again = await writer.store.submit_turn(writer.session, user_message("1"), "me", SubmitOptions(idempotency_key="k"))
    assert (again.turn, again.repeated, again.status) == (first.turn, True, "running")
    assert len(await everything(writer.store)) == 1


async def test_a_turn_that_was_taken_over_is_fenced(writer: Writer) -> None:
    store, session = writer.store, writer.session
    zombie = await store.submit_turn(session, user_message("1"), "gone")
    await store.submit_turn(session, user_message("2"), "gone too")
    turn = await store.submit_turn(session, user_message("3"), "me")
    running, waiting = await ahead(store, turn)
    assert await held(store, "gone") == [(zombie.turn, zombie.epoch, False)]
    assert await store.interrupt_turn(session, running)
    assert await store.interrupt_turn(session, waiting)
    claimed = await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time())
    assert isinstance(claimed, Turn)
    assert await held(store, "gone") == [], "its heartbeat shows it that the lease is lost"
    assert not await store.end_turn(NAME, zombie, "done")
    with pytest.raises(FencedWrite):
        await store.append(session.key, NAME, 3, NewEvent("z", time.time(), Message("user", "z")), epoch=zombie.epoch)
    with pytest.raises(FencedWrite):
        await store.write(record_intent, zombie, "c", "f", "once", "hash", time.time())
    await store.append(session.key, NAME, 3, NewEvent("t", time.time(), Message("user", "t")), epoch=claimed.epoch)
    texts = [one.message.content for one in await everything(store) if one.message]
    assert texts == ["1", "2", "3", "t"], "the message that waited is part of the conversation"


async def test_a_turn_can_be_cancelled_from_anywhere(writer: Writer) -> None:
    store, session = writer.store, writer.session
    assert not await store.write(request_cancel, session.key)
    turn = await store.submit_turn(session, user_message("1"), "me")
    waiting = await store.submit_turn(session, user_message("2"), "me")
    assert await store.write(request_cancel, session.key)
    assert await held(store, "me") == [(turn.turn, turn.epoch, True)]
    assert await store.withdraw_turn(waiting)
    assert not await store.withdraw_turn(waiting)
    assert await store.end_turn(NAME, turn, "cancelled")
    await store.delete_session(NAME)
    with pytest.raises(SessionNotFound):
        await store.submit_turn(session, user_message("3"), "me")


async def test_a_repeated_call_id_keeps_its_journal_entries_apart(writer: Writer) -> None:
    store, session = writer.store, writer.session
    for number, by in enumerate(("alice", "bob", "carol")):
        turn = await store.submit_turn(session, user_message(str(number)), "me")
        record = await store.read(find_session, NAME)
        assert record
        writer.revision = record.revision
        await writer.call("c")
        if by == "bob":  # the turn that requests approval ends, and the turn with the answer runs the tool
            await store.write(record_intent, turn, "c", "f", "once", "hash", time.time())
            await store.write(tool_journal.record_approval, session.key, "c", "bob", time.time(), approved=True)
            await store.end_turn(NAME, turn, "done")
            turn = await store.submit_turn(session, user_message("yes"), "me")
            record = await store.read(find_session, NAME)
            assert record
            writer.revision = record.revision
        await store.write(
            record_intent,
            turn,
            "c",
            "f",
            "once",
            "hash",
            time.time(),
            tool_journal.ApprovalDecision(True, by),
        )
        await store.write(record_start, turn, "c", time.time())
        await store.write(record_result, turn, "c", {"ok": True}, time.time())
        await writer.answer("c")
        await store.end_turn(NAME, turn, "done")
    whole = await store.read(find_session, NAME)
    assert whole
    fork = await store.write(forks.fork_session, NAME, SessionId("app", "alice", "fork"), None, None, time.time())
    for one in (whole, fork):
        page = await store.read(read_message_page, one)
        found = await store.read(read_journal_entries, one.key, page)
        journaled = [found[place] for place in sorted(found)]
        assert [record.approved_by for record in journaled] == ["alice"] * 2 + ["bob"] * 3 + ["carol"] * 2
        assert {record.status for record in journaled} == {"finished"}


async def test_a8_the_journal_records_intent_start_and_result(writer: Writer) -> None:
    store, session = writer.store, writer.session
    turn = await store.submit_turn(session, user_message("1"), "me")
    assert await store.read(read_journal_entry, session.key, "c") is None
    await store.write(record_intent, turn, "c", "exec", "once", "hash", time.time())
    assert (await journaled(store, session, "c")).status == "intended"
    assert await store.write(record_start, turn, "c", time.time())
    assert not await store.write(record_start, turn, "c", time.time()), "never twice"
    assert (await journaled(store, session, "c")).status == "started"
    await store.write(record_result, turn, "c", {"ok": 1}, time.time())
    finished = await journaled(store, session, "c")
    assert (finished.status, finished.result, finished.effect, finished.name) == ("finished", {"ok": 1}, "once", "exec")
    assert finished.started_at is not None
    assert finished.finished_at is not None


async def test_a8_open_calls_of_a_dead_turn_are_closed_by_the_journal(writer: Writer) -> None:
    store, session = writer.store, writer.session
    turn = await store.submit_turn(session, user_message("1"), "me")
    writer.revision = 1
    await writer.call(
        "finished", "started", "safe", "intended", "asked", "unheard", "slow", long_running=frozenset({"slow"})
    )
    declared: dict[str, Effect] = dict.fromkeys(("finished", "started", "intended", "asked"), "once")
    declared["safe"] = "idempotent"
    for call_id, effect in declared.items():
        await store.write(record_intent, turn, call_id, "f", effect, "hash", time.time())
        if call_id != "intended":
            await store.write(record_start, turn, call_id, time.time())
    await store.write(record_result, turn, "finished", {"real": True}, time.time())
    await store.write(record_result, turn, "asked", None, time.time(), "unknown")  # it requested an approval
    second = await store.submit_turn(session, user_message("2"), "me")
    [gone] = await ahead(store, second)
    assert await store.interrupt_turn(session, gone)
    await store.write(lease_turn, second.session_key, NAME, second.turn, "me", time.time())
    asked, called, closed, after = await everything(store)
    assert asked.message == Message("user", "1", author="user")
    assert after.message == Message("user", "2", author="user"), "closed before the next message comes"
    assert called.message is not None
    assert closed.message is not None
    outcomes = {call.id: call.output or {} for call in closed.message.tool_calls}
    assert outcomes == {
        "finished": {"real": True},
        "started": {"error": recovery.UNKNOWN_RESULT, "outcome": "unknown"},
        "safe": {"error": recovery.SAFE_TO_REPEAT_RESULT, "outcome": "unknown"},
        "intended": {"error": recovery.NOT_RUN_RESULT, "outcome": "not run"},
        "asked": {"error": recovery.NOT_RUN_RESULT, "outcome": "not run"},
        "unheard": {"error": recovery.NOT_RUN_RESULT, "outcome": "not run"},
    }


async def test_f5_ending_a_turn_closes_its_calls_too(writer: Writer) -> None:
    turn = await writer.store.submit_turn(writer.session, user_message("1"), "me")
    writer.revision = 1
    await writer.call("a", "b")
    await writer.answer("a")
    assert await writer.store.end_turn(NAME, turn, "cancelled")
    *_, closed = await everything(writer.store)
    assert closed.message is not None
    assert [call.id for call in closed.message.tool_calls] == ["b"]


async def journaled(store: Store, session: SessionInfo, call_id: str) -> JournalEntry:
    record = await store.read(read_journal_entry, session.key, call_id)
    assert record is not None
    return record


async def test_a_store_can_be_closed_and_used_again(store: Store) -> None:
    await store.write(create_session, NAME, None, time.time())
    await store.close()
    assert await store.read(find_session, NAME) is not None
    await store.close()
    await store.close()


async def test_a_store_closed_during_reads_and_writes_can_be_used_again(store: Store) -> None:
    """The end of one writer thread must not be taken for that of the next: `close` would wait forever."""
    writers = [
        Writer(store, await store.write(create_session, SessionId("app", "alice", str(number)), None, time.time()))
        for number in range(4)
    ]
    closed = asyncio.Event()

    async def write(writer: Writer) -> None:
        while not closed.is_set() or writer.count < 20:
            await writer.talk(1)
            await asyncio.sleep(0)

    async def read() -> None:
        while not closed.is_set():
            assert await store.read(find_session, writers[0].session.name)

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(write(writer))
        group.create_task(read())
        for _ in range(20):
            await store.close()
        closed.set()
    for writer in writers:
        record = await store.read(find_session, writer.session.name)
        assert record is not None
        assert record.last_seq == writer.count
