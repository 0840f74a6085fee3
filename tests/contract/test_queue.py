"""The queue of a session: order is kept, turns of dead processes are closed in order, fenced turns write nothing."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lango.errors import FencedWrite
from lango.events import IDS_PER_TURN, TextDelta
from lango.messages import Message, ToolCall
from lango.sessions import CONFIRMATION_CALL, SessionId, SessionInfo, StoredEvent
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.sessions.sessions import check_epoch, create_session, find_session
from lango.store.sessions.window import read_session_events
from lango.store.tool_calls.grants import read_grants
from lango.store.tool_calls.tool_journal import record_intent, record_result, record_start, store_full_result
from lango.store.turns.event_log import LoggedEvent, append_log_events
from lango.store.turns.lease import beat, lease_turn
from lango.store.turns.submit import SubmitOptions
from lango.store.waits.inbox import read_inbox
from lango.store.waits.recovery import UNKNOWN_RESULT
from lango.store.waits.waits import WaitAnswer
from lango.waits import NewGrant
from tests.agents.parts import TIMEOUT_S, rows

NAME = SessionId("app", "alice", "s")
ABOUT: dict[str, Any] = {"originalFunctionCall": {"id": "c1", "name": "f", "args": {}}}
NEVER_S = 2 * TIMEOUT_S
"""A timeout that only a notification beats."""


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


def user_message(text: str) -> NewEvent:
    return NewEvent(f"event {text}", time.time(), Message("user", text, author="user"), 5, f"invocation {text}")


def calls(*calls: ToolCall, **fields: bool) -> NewEvent:
    long_running = frozenset(call.id for call in calls) if fields.get("long_running") else frozenset[str]()
    message = Message("assistant", tool_calls=calls)
    return NewEvent(f"calls {calls[0].id}", time.time(), message, long_running=long_running)


async def write(store: Store, turn: Turn, entry: NewEvent) -> None:
    session = await store.read(find_session, NAME)
    assert session
    await store.append(session.key, NAME, session.revision, entry, epoch=turn.epoch)


async def everything(store: Store) -> list[StoredEvent]:
    found = await store.read(read_session_events, NAME)
    assert found
    return found[1]


async def stored_texts(store: Store) -> list[tuple[str, str]]:
    return [(one.message.role, one.message.content) for one in await everything(store) if one.message]


def gone(turn: Turn, owner: str = "gone") -> OpenTurn:
    return OpenTurn(turn.turn, turn.status, owner, 0)


async def test_a_queued_turn_keeps_its_place_while_another_one_runs(store: Store, session: SessionInfo) -> None:
    running = await store.submit_turn(session, user_message("first"), "me")
    dead = await store.submit_turn(session, user_message("second"), "gone")
    last = await store.submit_turn(session, user_message("third"), "me")
    assert not await store.interrupt_turn(session, gone(dead)), "its place has not come"
    assert await stored_texts(store) == [("user", "first")], "nothing is written into the turn that runs"
    await write(store, running, NewEvent("answer", time.time(), Message("assistant", "one")))
    assert await store.end_turn(NAME, running, "done")
    ahead = await store.write(lease_turn, last.session_key, NAME, last.turn, "me", time.time())
    assert isinstance(ahead, list)
    assert [(one.turn, one.status) for one in ahead] == [(dead.turn, "queued")]
    assert await store.interrupt_turn(session, ahead[0])
    assert isinstance(await store.write(lease_turn, last.session_key, NAME, last.turn, "me", time.time()), Turn)
    assert await stored_texts(store) == [("user", "first"), ("assistant", "one"), ("user", "second"), ("user", "third")]
    assert await rows(store, "SELECT status, first_seq FROM turns ORDER BY turn") == [
        ("done", 1),
        ("interrupted", 3),
        ("running", 4),
    ]


async def test_open_calls_of_a_dead_turn_are_closed_before_the_next_message(store: Store, session: SessionInfo) -> None:
    dead = await store.submit_turn(session, user_message("first"), "gone")
    await write(store, dead, calls(ToolCall("c1", "f", {})))
    await store.write(record_intent, dead, "c1", "f", "once", "hash", time.time())
    await store.write(record_start, dead, "c1", time.time())
    queued = await store.submit_turn(session, user_message("second"), "gone")
    assert not await store.interrupt_turn(session, gone(queued)), "the dead turn before it comes first"
    assert await store.interrupt_turn(session, gone(dead))
    assert await store.interrupt_turn(session, gone(queued))
    roles = [role for role, _ in await stored_texts(store)]
    assert roles == ["user", "assistant", "tool", "user"]
    closed = (await everything(store))[2].message
    assert closed
    assert closed.tool_calls[0].output == {"error": UNKNOWN_RESULT, "outcome": "unknown"}


async def test_an_approval_request_is_declined_before_a_queued_message_of_a_dead_process(
    store: Store, session: SessionInfo
) -> None:
    """As if it had run: the next message declines the approval request."""
    asking = await store.submit_turn(session, user_message("first"), "me")
    queued = await store.submit_turn(session, user_message("second"), "gone")
    await write(store, asking, calls(ToolCall("c1", "f", {})))
    await write(store, asking, calls(ToolCall("q1", CONFIRMATION_CALL, ABOUT)))
    await store.end_turn(NAME, asking, "done")
    assert await store.interrupt_turn(session, gone(queued))
    assert [role for role, _ in await stored_texts(store)][-1] == "user", "nothing comes after the message"
    assert await rows(store, "SELECT * FROM open_calls") == []


async def test_a_turn_that_is_interrupted_is_fenced_at_once(store: Store, session: SessionInfo) -> None:
    """Also while no newer turn runs: a paused process may continue at any time."""
    zombie = await store.submit_turn(session, user_message("first"), "gone")
    await write(store, zombie, calls(ToolCall("c1", "f", {})))
    await store.write(record_intent, zombie, "c1", "f", "once", "hash", time.time())
    await store.write(record_start, zombie, "c1", time.time())
    assert await store.interrupt_turn(session, gone(zombie))
    before = await snapshot(store)
    with pytest.raises(FencedWrite):
        await write(store, zombie, NewEvent("late", time.time(), Message("assistant", "from the grave")))
    with pytest.raises(FencedWrite):
        await store.write(record_intent, zombie, "c2", "f", "once", "hash", time.time())
    with pytest.raises(FencedWrite):
        await store.write(record_start, zombie, "c1", time.time())
    with pytest.raises(FencedWrite):
        await store.write(check_epoch, zombie.session_key, zombie.epoch)
    await store.write(record_result, zombie, "c1", {"late": True}, time.time())
    await store.write(store_full_result, zombie, "c1", "late")
    logged = LoggedEvent.of(TextDelta(IDS_PER_TURN + 1, "x"))
    assert not await store.write(append_log_events, session.key, zombie.turn, [logged])
    assert await store.write(beat, "gone") == [], "its heartbeat shows it that the lease is lost"
    assert not await store.end_turn(NAME, zombie, "done")
    assert await snapshot(store) == before


async def snapshot(store: Store) -> list[list[tuple[object, ...]]]:
    tables = ("sessions", "messages", "turns", "tool_journal", "event_log", "open_calls", "session_states")
    return [await rows(store, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


async def test_leasing_an_ended_turn_returns_its_status(store: Store, session: SessionInfo) -> None:
    running = await store.submit_turn(session, user_message("first"), "me")
    assert await store.write(lease_turn, running.session_key, NAME, running.turn, "me", time.time()) == running, (
        "claimed twice, it is the same turn"
    )
    taken_back = await store.submit_turn(session, user_message("second"), "me")
    dead = await store.submit_turn(session, user_message("third"), "gone")
    assert await store.withdraw_turn(taken_back)
    await store.end_turn(NAME, running, "done")
    assert await store.interrupt_turn(session, gone(dead))
    for turn, status in ((running, "done"), (taken_back, "cancelled"), (dead, "interrupted")):
        claimed = await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time())
        assert isinstance(claimed, Turn)
        assert (claimed.status, claimed.epoch) == (status, None)


async def test_withdrawing_a_message_leaves_the_answers_of_others(store: Store, session: SessionInfo) -> None:
    """A queued answer to an approval request counts as in time, whatever else is withdrawn."""
    turn = await store.submit_turn(session, user_message("first"), "me")
    await write(store, turn, calls(ToolCall("c1", "f", {})))
    await write(store, turn, calls(ToolCall("q1", CONFIRMATION_CALL, ABOUT)))
    yes = Message("tool", "{}", (ToolCall("q1", CONFIRMATION_CALL, output={"confirmed": True}),), "user")
    answered = NewEvent("yes", time.time(), yes)
    approved = WaitAnswer("q1", "q1", "approval", 3, "alice", "{}", "c1", approved=True, grant=NewGrant())
    answer = await store.submit_turn(session, answered, "me", SubmitOptions(answer=approved))
    other = await store.submit_turn(session, user_message("second"), "me")
    assert not await store.withdraw_turn(turn), "it runs"
    assert await store.withdraw_turn(other)
    marks = "SELECT COUNT(*) FROM waits WHERE answered_at IS NOT NULL"
    assert await rows(store, marks) == [(1,)]
    assert [grant.tool for grant in await store.read(read_grants, session.key)] == ["f"]
    assert await store.read(read_inbox, "app", "alice") == [], "it is answered, though its turn is queued"
    assert await store.withdraw_turn(answer)
    assert [item.wait.id for item in await store.read(read_inbox, "app", "alice")] == ["q1"]
    assert await rows(store, marks) == [(0,)], "its question may expire again"
    assert await store.read(read_grants, session.key) == [], "and nothing is granted"


@pytest.mark.parametrize("how", ["end", "withdraw", "interrupt"])
@pytest.mark.parametrize("where", ["the same store", "another store"])
async def test_the_next_queued_turn_is_notified(
    store: Store, session: SessionInfo, store_url: str, how: str, where: str
) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(TIMEOUT_S):
        other = store if where == "the same store" else await stack.enter_async_context(Store(store_url))
        blocking = await store.submit_turn(session, user_message("first"), "gone")
        if how == "withdraw":  # it is queued, and its process has not claimed it yet
            first, blocking = blocking, await store.submit_turn(session, user_message("second"), "gone")
            await store.end_turn(NAME, first, "done")
        turn = await other.submit_turn(session, user_message("next"), "me")
        assert turn.status == "queued"
        comes_up = await stack.enter_async_context(other.watch_queue(turn))
        assert isinstance(await other.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time()), list)
        waiting = asyncio.ensure_future(comes_up(NEVER_S))
        match how:
            case "end":
                assert await store.end_turn(NAME, blocking, "done")
            case "withdraw":
                assert await store.withdraw_turn(blocking)
            case _:
                assert await store.interrupt_turn(session, gone(blocking))
        await waiting
        assert isinstance(await other.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time()), Turn)


async def test_a_wait_for_the_queue_ends_at_its_timeout(store: Store, session: SessionInfo) -> None:
    await store.submit_turn(session, user_message("first"), "me")
    turn = await store.submit_turn(session, user_message("second"), "me")
    async with store.watch_queue(turn) as comes_up, asyncio.timeout(TIMEOUT_S):
        await comes_up(0.01)
        assert isinstance(await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time()), list)
