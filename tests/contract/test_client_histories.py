"""Histories that a client resends: stored completely or not at all, and only at the expected revision."""

import asyncio
import time

import pytest

from lango.errors import SessionNotFound, StaleSession
from lango.messages import Message, ToolCall
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, Store
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.client_history import find_by_input, input_hash
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_session_events
from lango.store.turns.lease import lease_turn
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import OpenTurn
from lango.store.waits.waits import read_waits
from tests.contract.test_idempotency import user_message

NAME = SessionId("app", "alice", "s")


def history_message(number: int) -> NewEvent:
    """A message of a resent history; every fifth calls a tool, and the next has its result."""
    match number % 5:
        case 3:
            message = Message("assistant", f"m{number}", (ToolCall(f"c{number}", "f", {}),))
        case 4:
            message = Message("tool", "{}", (ToolCall(f"c{number - 1}", "f", output={}),))
        case _:
            message = Message("user" if number % 5 == 0 else "assistant", f"m{number}")
    return NewEvent(f"carried {number}", 1.0 + number, message, tokens=number, invocation_id=f"i{number}")


def carrying(text: str, count: int) -> NewEvent:
    return user_message(text, preceding=tuple(history_message(number) for number in range(count)))


async def contents(store: Store) -> list[str]:
    found = await store.read(read_session_events, NAME)
    assert found
    assert await store.read(check_session, NAME) == []
    return [one.message.content for one in found[1] if one.message]


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


async def found(store: Store, text: str, user: str = "alice", prefix: str = "") -> list[str]:
    return [one.name.id for one in await store.read(find_by_input, "app", user, text, prefix, 20)]


@pytest.mark.parametrize("count", [1, 50, 123])
async def test_a_resent_history_is_stored_before_its_message(store: Store, session: SessionInfo, count: int) -> None:
    turn = await store.submit_turn(session, carrying("now", count), "me")
    expected = [one.message.content for one in map(history_message, range(count)) if one.message]
    assert await contents(store) == [*expected, "now"]
    record = await store.read(find_session, NAME)
    assert record
    assert (record.last_seq, record.user_seq, record.revision) == (count + 1, count + 1, count + 1)
    assert record.total_tokens == sum(range(count)) + user_message("now").tokens
    assert await store.read(read_waits, record.key, record.name) == [], "no call of it waits"
    await store.end_turn(NAME, turn, "done")


async def test_a_resent_history_is_queued_with_its_message(store: Store, session: SessionInfo) -> None:
    ahead = await store.submit_turn(session, user_message("ahead"), "me")
    waiting = await store.submit_turn(session, carrying("now", 2), "me")
    assert await contents(store) == ["ahead"]
    await store.end_turn(NAME, ahead, "done")
    assert await store.write(lease_turn, waiting.session_key, NAME, waiting.turn, "me", time.time())
    assert await contents(store) == ["ahead", "m0", "m1", "now"]


async def test_a_queued_history_of_a_dead_process_is_stored(store: Store, session: SessionInfo) -> None:
    ahead = await store.submit_turn(session, user_message("ahead"), "me")
    waiting = await store.submit_turn(session, carrying("now", 2), "gone")
    gone = OpenTurn(waiting.turn, "queued", "gone", 0)
    assert not await store.interrupt_turn(session, gone), "it keeps its place while another turn runs"
    await store.end_turn(session.name, ahead, "done")
    assert await store.interrupt_turn(session, gone)
    assert await contents(store) == ["ahead", "m0", "m1", "now"]


async def test_of_many_turns_at_the_same_revision_one_starts(store: Store, session: SessionInfo) -> None:
    first = await store.submit_turn(session, user_message("first"), "me")
    await store.end_turn(NAME, first, "done")
    record = await store.read(find_session, NAME)
    assert record
    outcomes = await asyncio.gather(
        *[
            store.submit_turn(
                record, carrying(f"next {number}", number), "me", SubmitOptions(at_revision=record.revision)
            )
            for number in range(6)
        ],
        return_exceptions=True,
    )
    begun = [number for number, one in enumerate(outcomes) if not isinstance(one, BaseException)]
    assert len(begun) == 1
    assert all(isinstance(one, StaleSession) for number, one in enumerate(outcomes) if number not in begun)
    assert (await contents(store))[-1] == f"next {begun[0]}"
    assert len(await contents(store)) == 2 + begun[0]


async def test_a_turn_at_another_revision_is_stale(store: Store, session: SessionInfo) -> None:
    running = await store.submit_turn(session, user_message("1"), "me", SubmitOptions(at_revision=0))
    record = await store.read(find_session, NAME)
    assert record
    with pytest.raises(StaleSession):
        await store.submit_turn(record, user_message("2"), "me", SubmitOptions(at_revision=0))
    with pytest.raises(StaleSession):
        await store.submit_turn(record, user_message("2"), "me", SubmitOptions(at_revision=record.revision))  # one runs
    await store.end_turn(NAME, running, "failed")
    assert await store.submit_turn(record, user_message("2"), "me", SubmitOptions(at_revision=record.revision))
    assert await store.delete_session(NAME)
    with pytest.raises(SessionNotFound):
        await store.submit_turn(record, user_message("3"), "me", SubmitOptions(at_revision=record.revision))


async def test_a_retried_write_returns_the_same_turn(store: Store, session: SessionInfo) -> None:
    """The answer to a COMMIT may be lost."""
    entry = carrying("now", 3)
    turn = await store.submit_turn(session, entry, "me", SubmitOptions(at_revision=0))
    again = await store.submit_turn(session, entry, "me", SubmitOptions(at_revision=0))
    assert again == turn
    assert len(await contents(store)) == 4


async def test_sessions_are_found_by_the_newest_message_of_their_user(store: Store) -> None:
    for user, id_ in (("alice", "one"), ("alice", "two"), ("bob", "three")):
        record = await store.write(create_session, SessionId("app", user, id_), None, time.time())
        turn = await store.submit_turn(record, user_message("Hi"), "me")
        assert id_ not in await found(store, "Hi", user), "it runs"
        await store.end_turn(record.name, turn, "done")
    assert {*await found(store, " Hi\n")} == {"one", "two"}
    assert await found(store, "Hi", prefix="tw") == ["two"]
    assert await found(store, "Hi", "bob") == ["three"]
    two = await store.read(find_session, SessionId("app", "alice", "two"))
    assert two
    turn = await store.submit_turn(two, user_message("and now?"), "me")
    await store.end_turn(two.name, turn, "failed")
    assert await found(store, "Hi") == ["one"]
    assert await found(store, "and now?") == ["two"]


def test_any_text_has_a_hash_that_both_databases_can_store() -> None:
    hashes = {input_hash(text) for text in ("", "a", "\0", "\ud800", "漢", "x" * 1_000_000)}
    assert all(-(2**63) <= one < 2**63 for one in hashes)
    assert len(hashes) == 5, "what no column can show is shown alike"
