"""Forks share messages, rewinds remove them, and both restore the state of their point."""

import asyncio
import time
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from hypothesis import given
from hypothesis import strategies as st

from lango.adk import SqlSessionService
from lango.errors import EventConflict, MessageNotFound, SessionExists, SessionNotFound, TurnRunning, Unstorable
from lango.messages import Message, ToolCall
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store import NewEvent, Store, Turn
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sessions import create_session, find_session, list_sessions
from lango.store.sessions.state import read_state_at
from lango.store.sessions.window import read_message_page, read_session_events, read_session_window
from lango.store.tool_calls.tool_journal import (
    read_full_result,
    record_intent,
    record_result,
    record_start,
    store_full_result,
)
from lango.store.turns.lease import lease_turn
from lango.store.turns.turns import read_turn
from lango.store.waits import recovery
from lango.turns.liveness import Owner
from tests.contract.test_store import Writer, user_message
from tests.support.examples import examples

NAME = SessionId("app", "alice", "s")


@pytest.fixture
async def writer(store: Store) -> Writer:
    return Writer(store, await store.write(create_session, NAME, {"n": 0, "user:u": 1}, time.time()))


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store, "app")


async def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    return [tuple(row) for row in await store.read(operation)]


async def events(store: Store, id_: str) -> list[StoredEvent]:
    found = await store.read(read_session_events, SessionId("app", "alice", id_))
    assert found
    return found[1]


async def texts(store: Store, id_: str) -> list[str]:
    return [one.message.content for one in await events(store, id_) if one.message and one.message.role != "event"]


async def window(store: Store, id_: str, budget: int = 10**6, most: int | None = None) -> list[int]:
    found = await store.read(read_session_window, SessionId("app", "alice", id_), budget, most)
    assert found
    return [one.seq for one in found[1]]


def following(store: Store, record: SessionInfo) -> Writer:
    after = Writer(store, record)
    after.count = 1_000 * (record.key % 1_000_003)  # ids that no other session has
    return after


async def fork(sessions: Sessions, source: str = "s", **how: Any) -> SessionInfo:
    return await sessions.fork(source, user_id="alice", **how)


async def test_a_fork_shares_messages_and_continues_independently(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    await writer.talk(6)
    made = await fork(sessions, at=4, new_id="f")
    assert (made.last_seq, made.total_tokens, made.user_seq, made.name.user_id) == (4, 40, 3, "alice")
    assert (made.forked_from and (made.forked_from.id, made.forked_from.seq)) == ("s", 4)
    other = following(store, made)
    await other.add(Message("user", "another way"))
    await writer.add(Message("user", "as before"))
    assert await texts(store, "f") == ["m1", "m2", "m3", "m4", "another way"]
    assert await texts(store, "s") == ["m1", "m2", "m3", "m4", "m5", "m6", "as before"]
    assert [one.seq for one in await events(store, "f")] == [1, 2, 3, 4, 5], "numbers go on across the fork"
    assert [one.total_tokens for one in await events(store, "f")] == [10, 20, 30, 40, 50]
    assert await rows(store, "SELECT COUNT(*) FROM messages") == [(8,)], "nothing was copied"


async def test_a_fork_without_a_point_shares_everything_and_at_zero_nothing(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(3)
    await writer.add(None, state_delta={"n": 7})
    whole = await fork(sessions)
    assert (await texts(writer.store, whole.name.id), whole.state["n"]) == (["m1", "m2", "m3"], 7)
    empty = await fork(sessions, at=0, new_id="empty")
    assert (await texts(writer.store, "empty"), empty.state) == ([], {"n": 0, "user:u": 1})
    assert (empty.last_seq, empty.total_tokens, empty.user_seq) == (0, 0, 0)
    await following(writer.store, empty).talk(2)
    assert await window(writer.store, "empty") == [1, 2]


async def test_a_fork_has_the_state_of_its_fork_point(writer: Writer, sessions: Sessions) -> None:
    await writer.add(Message("user", "1"), state_delta={"n": 1, "user:u": 2, "only": b"\0"})
    await writer.add(None, state_delta={"n": 1.5})
    await writer.add(Message("user", "2"), state_delta={"n": 2, "only": None})
    states = [(await fork(sessions, at=at)).state for at in range(3)]
    assert [(state.get("n"), state.get("only")) for state in states] == [(0, None), (1.5, b"\0"), (2, None)]
    assert {state["user:u"] for state in states} == {2}, "the state of a user is not a session's to take back"


async def test_later_changes_of_the_source_are_not_shared(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(2)
    made = await fork(sessions, new_id="f")
    await writer.add(None, state_delta={"n": "later"})  # at the same message as the fork point
    other = following(writer.store, made)
    await other.add(None, state_delta={"n": "mine"})
    again = await fork(sessions, "f", new_id="g")
    for id_, expected in [("f", "mine"), ("g", "mine"), ("s", "later")]:
        deltas = [one.state_delta for one in await events(writer.store, id_) if one.message is None]
        assert deltas == [{"n": expected}], id_
    assert await writer.store.read(read_state_at, again.key, 2) == {"n": "mine"}
    assert (await fork(sessions, "g", new_id="h")).state["n"] == "mine"
    assert await writer.store.read(read_state_at, made.key, 1) == {"n": 0}


async def test_a_fork_of_a_fork_of_a_fork(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    await writer.talk(4)
    source, expected = "s", ["m1", "m2", "m3", "m4"]
    for number in range(4):
        made = await fork(sessions, source, new_id=f"f{number}")
        other = following(store, made)
        await other.add(Message("user", f"a{number}"))
        await other.add(Message("assistant", f"b{number}"))
        source, expected = f"f{number}", [*expected, f"a{number}", f"b{number}"]
        assert await texts(store, source) == expected
    assert await window(store, "f3", 45) == [9, 10, 11, 12]
    assert await window(store, "f3", 10**6, 7) == list(range(6, 13)), "the window reaches across the pieces"
    inner = await fork(sessions, "f3", at=7, new_id="inner")
    assert await texts(store, "inner") == expected[:7]
    assert [past.last_seq for past in inner.lineage] == [4, 6, 7]
    record = await store.read(find_session, inner.name)
    assert record
    page = await store.read(read_message_page, record, before=7, limit=3)
    assert [one.seq for one in page] == [4, 5, 6]


async def test_h3_the_window_of_a_fork_has_a_valid_start(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(1)
    await writer.call("a", "b")  # 2
    await writer.answer("a", "b")  # 3
    made = await fork(sessions, new_id="f")
    other = following(writer.store, made)
    await other.talk(1)  # 4
    assert await window(writer.store, "f", 20) == [4]
    assert await window(writer.store, "f", 30) == [2, 3, 4]
    await other.call("slow", long_running=frozenset({"slow"}))  # 5
    second = await fork(sessions, "f", new_id="g")
    later = following(writer.store, second)
    await later.talk(8)  # 6..13
    assert await window(writer.store, "g", 30) == [5, 11, 12, 13], "a call that waits is in the window of the fork"
    await later.answer("slow")
    assert await window(writer.store, "g", 30) == [5, 12, 13, 14]


async def closing(store: Store, id_: str) -> dict[str, Any]:
    """The results with which the fork closed its open calls."""
    [*_, last] = await events(store, id_)
    assert last.message
    assert last.message.role == "tool"
    return {call.id: call.output for call in last.message.tool_calls}


async def test_f5_a_call_whose_result_is_after_the_fork_point_is_closed(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(1)
    await writer.call("a", "b")  # 2
    await writer.answer("a")  # 3
    await writer.answer("b")  # 4
    await writer.talk(1)
    first = await fork(sessions, at=2, new_id="first")
    assert first.last_seq == 3
    assert {"a", "b"} == set(closed := await closing(writer.store, "first"))
    assert closed["a"] == {"error": recovery.FORKED_RESULT, "outcome": "unknown"}
    await fork(sessions, at=3, new_id="second")
    assert set(await closing(writer.store, "second")) == {"b"}, "a has its result"
    third = await fork(sessions, at=4)
    assert third.last_seq == 4
    assert await rows(writer.store, "SELECT COUNT(*) FROM open_calls") == [(0,)]


async def test_a_long_running_call_is_open_again_in_the_fork(writer: Writer, sessions: Sessions) -> None:
    extra = {"long_running_tool_ids": ["slow"]}
    await writer.call("slow", "quick", long_running=frozenset({"slow"}), extra=extra)  # 1
    await writer.answer("quick")  # 2
    await writer.talk(3)  # 3 4 5
    await writer.answer("slow")  # 6
    await writer.talk(20)
    made = await fork(sessions, at=4, new_id="f")
    assert made.last_seq == 4, "it may yet come: nothing is closed"
    await following(writer.store, made).talk(9)
    assert (await window(writer.store, "f", 30))[0] == 1
    early = await fork(sessions, at=1, new_id="early")
    assert set(await closing(writer.store, "early")) == {"quick"}
    await following(writer.store, early).answer("slow")
    assert early.last_seq == 2


async def test_a_call_cut_off_by_a_fork_is_closed_by_its_journal_entry(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    turn = await store.submit_turn(writer.session, user_message("1"), Owner().name)
    writer.revision = 1
    for call_id in ("real", "again", "begun", "asked"):
        await writer.call(call_id)
        await store.write(
            record_intent,
            turn,
            call_id,
            "f",
            "none" if call_id == "again" else "once",
            "hash",
            time.time(),
        )
    for call_id in ("real", "again", "begun"):
        await store.write(record_start, turn, call_id, time.time())
    await store.write(record_result, turn, "real", {"ok": 1}, time.time())
    await store.write(store_full_result, turn, "real", "the whole text")
    made = await fork(sessions, new_id="f")  # while the turn of the source runs
    closed = {
        call.id: dict(call.output or {})
        for one in (await events(store, "f"))[5:]
        if one.message
        for call in one.message.tool_calls
    }
    assert closed["real"] == {"ok": 1}
    assert closed["again"]["error"] == recovery.SAFE_TO_REPEAT_RESULT
    assert closed["begun"]["error"] == closed["asked"]["error"] == recovery.FORKED_RESULT
    assert await store.read(read_full_result, made.key, "real", 4, 5) == "whole"
    assert await store.end_turn(NAME, turn, "done"), "the source goes on as if nothing had happened"
    next_turn = await store.submit_turn(made, user_message("2"), "me")
    assert (next_turn.turn, next_turn.status) == (1, "running")


async def test_full_texts_of_clipped_results_are_read_from_the_fork(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    turn = await store.submit_turn(writer.session, user_message("1"), "me")
    writer.revision = 1
    await writer.call("c")
    await store.write(record_intent, turn, "c", "f", "once", "hash", time.time())
    await store.write(store_full_result, turn, "c", "0123456789")
    await writer.answer("c")
    await store.end_turn(NAME, turn, "done")
    made = await fork(sessions)
    again = await fork(sessions, made.name.id)
    assert await store.read(read_full_result, again.key, "c", 2, 3) == "234"
    assert await store.delete_session(NAME)
    assert await store.delete_session(made.name)
    assert await store.read(read_full_result, again.key, "c", 0, 99) == "0123456789"
    assert await store.delete_session(again.name)
    assert await rows(store, "SELECT COUNT(*) FROM tool_journal") == [(0,)]


SHARED = ("messages", "state_events", "tool_journal", "shared_sessions", "session_lineage")
FILES = ("contents", "content_chunks", "message_contents", "artifacts")
TABLES = (*SHARED, *FILES, "sessions", "open_calls", "session_states", "turns", "event_log")


async def left(store: Store) -> dict[str, int]:
    counts = {table: (await rows(store, f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}
    return {table: count for table, count in counts.items() if count}


async def test_a_fork_keeps_all_messages_after_its_source_is_deleted(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    await writer.talk(6)
    await fork(sessions, at=4, new_id="f")
    assert await sessions.delete("s", user_id="alice")
    with pytest.raises(SessionNotFound):
        await sessions.read("s", user_id="alice")
    assert [one.name.id for one in await sessions.list(user_id="alice")] == ["f"]
    assert await texts(store, "f") == ["m1", "m2", "m3", "m4"]
    assert await rows(store, "SELECT COUNT(*) FROM messages") == [(4,)], "unshared rows are deleted at once"
    made = await store.write(create_session, NAME, None, time.time())
    assert await texts(store, "s") == [], "a new session of that name has nothing of the old one"
    again = await fork(sessions, "f", new_id="g")
    assert await sessions.delete("f", user_id="alice")
    assert await texts(store, "g") == ["m1", "m2", "m3", "m4"]
    assert again.key != made.key
    assert await sessions.delete("g", user_id="alice")
    assert await sessions.delete("s", user_id="alice")
    assert not await sessions.delete("s", user_id="alice")
    assert await left(store) == {}, "the last fork took everything along"


async def test_deleting_a_fork_leaves_its_source_unchanged(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(3)
    before = await left(writer.store)
    made = await fork(sessions, at=2)
    await following(writer.store, made).talk(2)
    await sessions.delete(made.name.id, user_id="alice")
    assert await left(writer.store) == before
    await sessions.delete("s", user_id="alice")
    assert await left(writer.store) == {}


async def test_concurrent_forks_and_deletions_leave_no_rows_and_lose_none(store: Store) -> None:
    sessions = Sessions(store, "app")
    for number in range(12):
        source = Writer(
            store, await store.write(create_session, SessionId("app", "alice", f"s{number}"), None, time.time())
        )
        await source.talk(4)
        await fork(sessions, f"s{number}", new_id=f"a{number}")
        made = await asyncio.gather(
            fork(sessions, f"s{number}", at=3, new_id=f"b{number}"),
            sessions.delete(f"s{number}", user_id="alice"),
            fork(sessions, f"a{number}", new_id=f"c{number}"),
            sessions.delete(f"a{number}", user_id="alice"),
            fork(sessions, f"s{number}", at=2, new_id=f"d{number}"),
            return_exceptions=True,
        )
        assert (made[1], made[3]) == (True, True)
        for record, count in [(made[0], 3), (made[2], 4), (made[4], 2)]:
            if isinstance(record, SessionInfo):
                assert len(await texts(store, record.name.id)) == count
            else:
                assert isinstance(record, SessionNotFound)
    remaining = await store.read(list_sessions, "app")
    await asyncio.gather(*(store.delete_session(record.name) for record in remaining))
    assert await left(store) == {}


async def test_f2_a_shared_event_is_not_appended_again_to_the_fork(writer: Writer, sessions: Sessions) -> None:
    entry = NewEvent("same", time.time(), Message("user", "hi"), tokens=1)
    await writer.store.append(writer.session.key, NAME, 0, entry)
    made = await fork(sessions)
    again = await writer.store.append(made.key, made.name, made.revision, entry)
    assert (again.repeated, again.seq) == (True, 1)
    other = NewEvent("same", time.time(), Message("user", "other"))
    with pytest.raises(EventConflict):
        await writer.store.append(made.key, made.name, made.revision, other)
    assert len(await events(writer.store, made.name.id)) == 1


async def test_invalid_forks_are_refused_and_write_nothing(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(2)
    before = await left(writer.store)
    for at in (-1, 3, 2**62):
        with pytest.raises(MessageNotFound):
            await fork(sessions, at=at)
    with pytest.raises(SessionExists):
        await fork(sessions, new_id="s")
    with pytest.raises(SessionNotFound):
        await fork(sessions, "nobody's")
    with pytest.raises(SessionNotFound):
        await fork(sessions, "\0")
    with pytest.raises(SessionNotFound):
        await sessions.fork("s", user_id="bob")
    for wrong in ("\0", "x" * 600):
        with pytest.raises(Unstorable):
            await fork(sessions, new_id=wrong)
    with pytest.raises(Unstorable):
        await fork(sessions, title="x" * 201)
    assert await left(writer.store) == before


# -- titles --------------------------------------------------------------------------------------------------------


async def test_a_title_is_the_one_set_or_the_first_words(writer: Writer, sessions: Sessions) -> None:
    async def titles() -> list[str]:
        read = await sessions.read("s", user_id="alice")
        [listed] = await sessions.list(user_id="alice")
        assert read.display_title == listed.display_title
        return [read.display_title]

    assert await titles() == [""]
    await writer.add(Message("assistant", "Good morning."), invocation_id="i1")
    await writer.add(Message("user", "What\n is   the weather " + 30 * "like "), invocation_id="i2")
    [shown] = await titles()
    assert shown.startswith("What is the weather like like")
    assert shown.endswith("…")
    assert len(shown) <= 80
    renamed = await sessions.rename("s", "  The\nweather ", user_id="alice")
    assert renamed.display_title == "The weather"
    assert await titles() == ["The weather"]
    assert (await fork(sessions)).display_title == "The weather (fork)"
    assert (await fork(sessions, title="Mine")).display_title == "Mine"
    with pytest.raises(SessionNotFound):
        await sessions.rename("s", "stolen", user_id="bob")
    for each in await sessions.list(user_id="alice"):
        if each.name.id != "s":
            await sessions.delete(each.name.id, user_id="alice")
    assert (await sessions.rename("s", None, user_id="alice")).display_title == shown


async def test_forks_of_forks_are_numbered(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(1)
    made = await fork(sessions)
    assert made.display_title == "m1 (fork)"
    again = await fork(sessions, made.name.id)
    assert again.display_title == "m1 (fork 2)"
    assert (await fork(sessions, again.name.id)).display_title == "m1 (fork 3)"
    assert (await fork(sessions, at=0)).display_title == ""


async def test_rewound_words_are_no_title(writer: Writer, sessions: Sessions) -> None:
    await writer.add(Message("user", "secret"), invocation_id="i1")
    rewound = await sessions.rewind("s", before=1, user_id="alice")
    assert rewound.display_title == ""
    writer.revision = rewound.revision
    await writer.add(Message("user", "open"), invocation_id="i2")
    assert [one.display_title for one in await sessions.list(user_id="alice")] == ["open"]
    [record] = await writer.store.read(list_sessions, "app")
    assert record.rewinds == ((2, 1),)


# -- rewinds -------------------------------------------------------------------------------------------------------


async def test_a_rewind_removes_the_turn_and_all_after_it(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    for number, invocation in enumerate("abc"):
        await writer.talk(2, invocation_id=invocation, state_delta={"n": number, invocation: True})
    rewound = await sessions.rewind("s", before=4, user_id="alice")
    assert rewound.state == {"n": 0, "a": True, "b": None, "c": None, "user:u": 1}
    assert await window(store, "s") == [1, 2]
    assert len(await events(store, "s")) == 7, "nothing is deleted"
    record = await store.read(find_session, NAME)
    assert record
    assert [one.seq for one in await store.read(read_message_page, record)] == [1, 2]
    for gone in (3, 4, 5, 6, 7, 0, -1, 8, 2**62):
        with pytest.raises(MessageNotFound):
            await sessions.rewind("s", before=gone, user_id="alice")
    with pytest.raises(SessionNotFound):
        await sessions.rewind("s", before=1, user_id="bob")
    made = await fork(sessions, at=6, new_id="f")
    assert await window(store, "f") == [1, 2, 3, 4, 5, 6], "before the rewind, nothing was taken back"
    assert made.state["n"] == 2
    later = await fork(sessions, new_id="g")
    assert await window(store, "g") == [1, 2]
    assert later.state == rewound.state
    back = await sessions.rewind("f", before=1, user_id="alice")
    assert await window(store, "f") == []
    assert back.state["n"] == 0
    assert await window(store, "s") == [1, 2], "the fork's rewind is its own"


async def test_a_rewind_is_refused_while_a_turn_is_open(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    turn = await store.submit_turn(writer.session, user_message("1"), Owner().name)
    owner = Owner().name
    waiting = await store.submit_turn(writer.session, user_message("2"), owner)
    with pytest.raises(TurnRunning):
        await sessions.rewind("s", before=1, user_id="alice")
    await store.end_turn(NAME, turn, "done")
    with pytest.raises(TurnRunning):
        await sessions.rewind("s", before=1, user_id="alice")
    claimed = await store.write(lease_turn, waiting.session_key, NAME, waiting.turn, owner, time.time())
    assert isinstance(claimed, Turn)
    await store.end_turn(NAME, claimed, "done")
    await sessions.rewind("s", before=2, user_id="alice")
    assert await window(store, "s") == [1]


async def test_a_turn_of_a_dead_process_does_not_block_a_rewind(writer: Writer, sessions: Sessions) -> None:
    gone = Owner()
    gone.release()
    turn = await writer.store.submit_turn(writer.session, user_message("1"), gone.name)
    await sessions.rewind("s", before=1, user_id="alice")
    assert await window(writer.store, "s") == []
    record = await writer.store.read(read_turn, turn.session_key, turn.turn)
    assert record
    assert record.status == "interrupted"


async def test_a_rewound_call_is_not_closed_by_the_next_turn(writer: Writer, sessions: Sessions) -> None:
    store = writer.store
    await writer.add(Message("user", "1"), invocation_id="i1")
    await writer.call("c", invocation_id="i1")  # without a result
    rewound = await sessions.rewind("s", before=1, user_id="alice")
    turn = await store.submit_turn(rewound, user_message("2"), "me")
    await store.end_turn(NAME, turn, "done")
    assert await window(store, "s") == [4]


async def test_a_message_of_no_turn_cannot_be_rewound(writer: Writer, sessions: Sessions) -> None:
    await writer.talk(1)
    with pytest.raises(MessageNotFound, match="fork before it"):
        await sessions.rewind("s", before=1, user_id="alice")


async def test_s11_a_rewind_equals_that_of_adk(store_url: str) -> None:
    """The same conversation, rewound once by ADK's Runner and once by the store."""
    async with SqlSessionService(store_url) as service:
        sessions = Sessions(service.store, "app")
        ours, theirs = [await conversation(service, id_) for id_ in ("ours", "theirs")]
        agent = LlmAgent(name="agent", model="none")
        runner = Runner(app_name="app", agent=agent, session_service=service)
        await runner.rewind_async(user_id="alice", session_id="theirs", rewind_before_invocation_id="i1")
        await sessions.rewind("ours", before=ours[2], user_id="alice")
        results: list[Any] = []
        for id_ in ("ours", "theirs"):
            session = await service.get_session(app_name="app", user_id="alice", session_id=id_)
            assert session
            event = session.events[-1]
            assert event.id
            assert event.invocation_id.startswith("e-")
            shown = event.model_dump(exclude={"id", "timestamp", "invocation_id"})
            results.append((shown, session.state, await window(service.store, id_), len(session.events)))
        assert results[0] == results[1]
        assert results[0][1] == {"a": 1, "b": None, "c": None, "list": [1], "user:x": 3}
        assert theirs == ours


async def conversation(service: SqlSessionService, id_: str) -> list[int]:
    record = await service.store.write(create_session, SessionId("app", "alice", id_), None, time.time())
    made = Writer(service.store, record)
    deltas: list[dict[str, Any]] = [{"a": 1, "list": [1]}, {"a": 2, "b": 1, "user:x": 3}, {"list": [1, 2], "c": None}]
    for number, delta in enumerate(deltas):
        await made.add(Message("user", str(number), author="user"), invocation_id=f"i{number}", state_delta=delta)
        await made.add(Message("assistant", str(number), author="agent"), invocation_id=f"i{number}")
    await made.add(None, state_delta={"c": None, "b": 5})
    return list(range(1, made.count))


# -- anything, in any order ----------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.sampled_from(["say", "call", "answer", "state", "fork", "rewind"]), st.integers(0, 40)), max_size=40
)


@given(steps)
@examples(40)
async def test_forks_and_rewinds_in_any_order_read_like_copies(sqlite_url: str, steps: list[tuple[str, int]]) -> None:
    """Compared with a model that copies everything."""
    async with Store(sqlite_url) as store:
        await Model(store).run(steps)


class Model:
    """Sessions as plain lists, to compare the stored ones with."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions = Sessions(store, "app")
        self.writers: list[Writer] = []
        self.expected: dict[str, list[tuple[str, str]]] = {}

    async def run(self, steps: list[tuple[str, int]]) -> None:
        for record in await self.store.read(list_sessions, "app"):
            await self.store.delete_session(record.name)
        assert await left(self.store) == {}
        first = Writer(
            self.store, await self.store.write(create_session, SessionId("app", "alice", "0"), None, time.time())
        )
        self.writers, self.expected = [first], {"0": []}
        for number, (step, choice) in enumerate(steps, 1):
            await self.step(self.writers[choice % len(self.writers)], step, choice, number)
        for id_, expected in self.expected.items():
            stored = [one for one in await events(self.store, id_) if one.message]
            results = [(one.message.role, one.message.content) for one in stored if one.message]
            assert [one.seq for one in stored] == list(range(1, len(expected) + 1))
            assert results == expected
            assert [one.total_tokens for one in stored] == _running([one.tokens for one in stored])
            assert all(seq in range(1, len(expected) + 1) for seq in await window(self.store, id_, 55))

    async def step(self, writer: Writer, step: str, choice: int, number: int) -> None:
        id_ = writer.session.name.id
        expected = self.expected[id_]
        writer.count = 100 * number
        match step:
            case "fork":
                at = choice % (len(expected) + 1)
                made = await fork(self.sessions, id_, at=at, new_id=str(number))
                self.writers.append(Writer(self.store, made))
                added = [one for one in await events(self.store, str(number)) if one.seq > at and one.message]
                closed = [(one.message.role, one.message.content) for one in added if one.message]
                assert all(role == "tool" for role, _ in closed)
                self.expected[str(number)] = [*expected[:at], *closed]
            case "rewind" if expected:
                try:
                    seq = 1 + choice % len(expected)
                    writer.revision = (await self.sessions.rewind(id_, before=seq, user_id="alice")).revision
                except MessageNotFound:
                    return
                expected.append(("event", ""))
            case "state":
                await writer.add(None, state_delta={"n": number})
            case "call":
                await writer.call(f"c{choice % 3}", invocation_id=f"i{number}")
                expected.append(("assistant", ""))
            case "answer":
                await writer.answer(f"c{choice % 3}", invocation_id=f"i{number}")
                expected.append(("tool", "{}"))
            case _:
                await writer.add(Message("user", f"m{number}"), invocation_id=f"i{number}")
                expected.append(("user", f"m{number}"))


def _running(tokens: list[int]) -> list[int]:
    totals: list[int] = []
    for each in tokens:
        totals.append((totals[-1] if totals else 0) + each)
    return totals


async def test_calls_with_any_ids_are_matched_with_their_results(writer: Writer, sessions: Sessions) -> None:
    long = "x" * 5_000
    calls = tuple(ToolCall(id_, "f", {}) for id_ in (long, "\0", "plain"))
    await writer.add(Message("assistant", tool_calls=calls))
    await writer.add(Message("tool", "{}", tuple(ToolCall(call.id, "f", output={}) for call in calls)))
    await fork(sessions, at=1, new_id="f")
    assert set(await closing(writer.store, "f")) == {long, "\0", "plain"}
