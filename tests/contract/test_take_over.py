"""Taking over turns: a new epoch fences the owner before, the journal and the queue stay, attempts are counted."""

import time

import pytest

from lango.errors import FencedWrite
from lango.events import Usage
from lango.messages import Message, ToolCall
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.api_keys import spent_tokens
from lango.store.sessions.sessions import create_session, find_session
from lango.store.tool_calls.tool_journal import read_turn_entries, record_intent, record_result, record_start
from lango.store.turns.lease import (
    beat,
    count_attempt,
    forget_owner,
    lease_turn,
    read_orphans,
    release_turn,
    take_over,
)
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import StoredRequest, TurnResult, read_turn, request_cancel
from tests.agents.parts import rows

NAME = SessionId("app", "alice", "s")


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


def user_message(text: str) -> NewEvent:
    return NewEvent(f"event {text}", time.time(), Message("user", text, author="user"), 5, f"invocation {text}")


async def write(store: Store, turn: Turn, entry: NewEvent) -> None:
    session = await store.read(find_session, NAME)
    assert session
    await store.append(session.key, NAME, session.revision, entry, epoch=turn.epoch)


def gone(turn: Turn, owner: str = "gone") -> OpenTurn:
    return OpenTurn(turn.turn, turn.status, owner)


async def test_a_turn_that_was_taken_over_keeps_its_journal_and_fences_its_owner(
    store: Store, session: SessionInfo
) -> None:
    zombie = await store.submit_turn(session, user_message("first"), "gone")
    await write(store, zombie, NewEvent("call", time.time(), Message("assistant", tool_calls=(ToolCall("c1", "f"),))))
    await store.write(record_intent, zombie, "c1", "f", "once", "hash", time.time())
    await store.write(record_start, zombie, "c1", time.time())
    taken = await store.write(take_over, session.key, gone(zombie), "me", "crash", time.time(), True)
    assert taken is not None
    assert taken.turn.epoch is not None
    assert zombie.epoch is not None
    assert taken.turn.epoch > zombie.epoch
    assert (taken.turn.first_epoch, taken.attempts) == (zombie.epoch, 1)
    with pytest.raises(FencedWrite):
        await write(store, zombie, NewEvent("late", time.time(), Message("assistant", "from the grave")))
    with pytest.raises(FencedWrite):
        await store.write(record_intent, zombie, "c2", "f", "once", "hash", time.time())
    await store.write(record_result, zombie, "c1", {"late": True}, time.time())
    assert not await store.end_turn(NAME, zombie, "done")
    assert await store.write(beat, "gone") == [], "its heartbeat shows it that the lease is lost"
    [entry] = (await store.read(read_turn_entries, taken.turn)).values()
    assert (entry.name, entry.effect, entry.status, entry.result) == ("f", "once", "started", None)
    assert not await store.write(record_start, taken.turn, "c1", time.time()), "it was started before"
    await store.write(record_result, taken.turn, "c1", {"ok": 1}, time.time())
    [entry] = (await store.read(read_turn_entries, taken.turn)).values()
    assert (entry.status, entry.result) == ("finished", {"ok": 1})
    assert await store.end_turn(NAME, taken.turn, "done")


async def test_a_turn_is_taken_over_from_the_owner_that_was_seen_and_once(store: Store, session: SessionInfo) -> None:
    turn = await store.submit_turn(session, user_message("first"), "gone")
    assert await store.write(take_over, session.key, gone(turn, "another"), "me", "crash", time.time()) is None
    charged = True
    assert await store.write(take_over, session.key, gone(turn), "me", "crash", time.time(), charged)
    assert await store.write(take_over, session.key, gone(turn), "too late", "crash", time.time()) is None
    assert await rows(store, "SELECT owner, status, attempts FROM turns") == [("me", "running", 1)]


async def test_the_process_that_ends_a_turn_counts_its_tokens_once_against_the_quota_of_its_request(
    store: Store, session: SessionInfo
) -> None:
    turn = await store.submit_turn(
        session, user_message("first"), "gone", SubmitOptions(request=StoredRequest(quota="key1"))
    )
    taken = await store.write(take_over, session.key, gone(turn), "me", "crash", time.time())
    assert taken is not None
    usage = TurnResult(usage=Usage(30, 12, model_calls=1))
    assert not await store.end_turn(NAME, turn, "done", usage), "the first owner lost it"
    assert await store.end_turn(NAME, taken.turn, "done", usage)
    assert not await store.end_turn(NAME, taken.turn, "done", usage)
    assert await store.read(spent_tokens, "key1", time.time()) == 42
    other = await store.submit_turn(session, user_message("second"), "me")
    assert await store.end_turn(NAME, other, "done", usage)
    assert await store.read(spent_tokens, "key1", time.time()) == 42


async def test_a_turn_that_ended_is_not_taken_over(store: Store, session: SessionInfo) -> None:
    turn = await store.submit_turn(session, user_message("first"), "gone")
    await store.end_turn(NAME, turn, "done")
    assert await store.write(take_over, session.key, gone(turn), "me", "crash", time.time()) is None
    assert await store.delete_session(NAME)
    assert await store.write(take_over, session.key, gone(turn), "me", "crash", time.time()) is None


async def test_a_queued_turn_keeps_its_place_under_its_new_owner(store: Store, session: SessionInfo) -> None:
    running = await store.submit_turn(session, user_message("first"), "me")
    dead = await store.submit_turn(session, user_message("second"), "gone")
    last = await store.submit_turn(session, user_message("third"), "me")
    taken = await store.write(take_over, session.key, gone(dead), "me", "crash", time.time())
    assert taken is not None
    assert (taken.turn.epoch, taken.attempts) == (None, 0), "it has not run"
    await store.end_turn(NAME, running, "done")
    late = await store.write(lease_turn, session.key, NAME, dead.turn, "gone", time.time())
    assert isinstance(late, Turn)
    assert late.epoch is None, "its owner before cannot start it any more"
    assert isinstance(await store.write(lease_turn, session.key, NAME, last.turn, "me", time.time()), list)
    second = await store.write(lease_turn, session.key, NAME, dead.turn, "me", time.time())
    assert isinstance(second, Turn)
    assert second.epoch is not None
    await store.end_turn(NAME, second, "done")
    assert await rows(store, "SELECT status FROM turns ORDER BY turn") == [("done",), ("done",), ("queued",)]


async def test_a_released_turn_has_no_owner_and_its_hand_over_is_no_attempt(store: Store, session: SessionInfo) -> None:
    turn = await store.submit_turn(session, user_message("first"), "stopping")
    await store.write(release_turn, session.key, turn.turn, "another")
    assert [one.open_turn.owner for one in await store.read(read_orphans, "app", "me")] == ["stopping"]
    await store.write(release_turn, session.key, turn.turn, "stopping")
    [orphan] = await store.read(read_orphans, "app", "me")
    assert (orphan.session_id, orphan.open_turn) == ("s", OpenTurn(1, "running", ""))
    before = time.time()
    taken = await store.write(take_over, session.key, orphan.open_turn, "me", "handover", time.time())
    assert taken is not None
    assert taken.attempts == 0
    assert await store.write(count_attempt, taken.turn, time.time()) == 1
    record = await store.read(read_turn, session.key, turn.turn)
    assert record is not None
    assert [one["reason"] for one in record.resumptions] == ["handover", "failure"]
    assert all(one["at"] >= before for one in record.resumptions)
    assert await store.read(read_orphans, "app", "me") == []


async def test_a_requested_cancel_outlives_the_owner(store: Store, session: SessionInfo) -> None:
    turn = await store.submit_turn(session, user_message("first"), "gone")
    assert await store.write(request_cancel, session.key)
    taken = await store.write(take_over, session.key, gone(turn), "me", "crash", time.time())
    assert taken is not None
    assert taken.cancel_requested


async def test_a_heartbeat_stays_as_long_as_its_owner_has_open_turns(store: Store, session: SessionInfo) -> None:
    turn = await store.submit_turn(session, user_message("first"), "gone")
    [orphan] = await store.read(read_orphans, "app", "me")
    assert orphan.open_turn.heartbeat == -1, "it has sent none"
    await store.write(beat, "gone")
    await store.write(beat, "gone")
    await store.write(forget_owner, "gone")
    [orphan] = await store.read(read_orphans, "app", "me")
    assert orphan.open_turn.heartbeat == 2
    assert await store.read(read_orphans, "another app", "me") == []
    await store.end_turn(NAME, turn, "done")
    await store.write(forget_owner, "gone")
    assert await rows(store, "SELECT * FROM owners") == []
