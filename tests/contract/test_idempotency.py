"""Idempotency keys: the same message again is the same turn, another message is refused."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from lango.errors import IdempotencyKeyReused
from lango.messages import Message, ToolCall
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import CLIENT_CALLS_KEY, SessionId, SessionInfo
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.codec.records import ClientResult
from lango.store.lifecycle import fork as forks
from lango.store.lifecycle import rewind
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import read_session_events
from lango.store.turns import queue
from lango.store.turns.lease import lease_turn
from lango.store.turns.submit import SubmitOptions

NAME = SessionId("app", "alice", "s")
_FILE = {"parts": [1, {"inline_data": {"data": b"\0cat", "mime_type": "image/png"}}]}
_OTHER_FILE = {"parts": [1, {"inline_data": {"data": b"\0dog", "mime_type": "image/png"}}]}
_count = iter(range(1_000_000))


def user_message(text: str = "1", **fields: Any) -> NewEvent:
    """Build a message as a client's retry does: with new ids."""
    number = next(_count)
    message = Message("user", text, author="user")
    return NewEvent(f"event {number}", time.time(), message, tokens=1, invocation_id=f"i-{number}", **fields)


def brings(output: dict[str, Any]) -> NewEvent:
    """Build a message with the result of a client's tool."""
    message = Message("tool", "{}", (ToolCall("c", "f", output=output),), "user")
    return replace(user_message(), message=message, client_results={"c": ClientResult(output)})


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


async def everything(store: Store) -> list[str]:
    found = await store.read(read_session_events, NAME)
    assert found is not None
    return [one.message.content for one in found[1] if one.message]


async def waits(store: Store, session: SessionInfo) -> list[int]:
    return [one.turn for one in await store.read(queue.read_queued_messages, session.key)]


async def is_that_of(store: Store, session: SessionInfo, turn: int, entry: NewEvent, *others: NewEvent) -> None:
    """Check that the key `k` returns its turn for the same message, and stores nothing for another."""
    before = await everything(store), await waits(store, session)
    again = await store.submit_turn(session, entry, "me", SubmitOptions(idempotency_key="k"))
    assert (again.turn, again.repeated) == (turn, True)
    for other in others:
        with pytest.raises(IdempotencyKeyReused, match=r"'k' was already used .* use another key"):
            await store.submit_turn(session, other, "me", SubmitOptions(idempotency_key="k"))
    assert (await everything(store), await waits(store, session)) == before


MESSAGES: list[tuple[Callable[[], NewEvent], Callable[[], NewEvent]]] = [
    (lambda: user_message("1"), lambda: user_message("2")),
    (lambda: user_message("1"), lambda: user_message("1", extra=_FILE)),
    (lambda: user_message("1", extra=_FILE), lambda: user_message("1", extra=_OTHER_FILE)),
    (lambda: user_message("1", state_delta={"x": 1}), lambda: user_message("1", state_delta={"x": 2})),
    (lambda: user_message("a\0b", extra={"parts": ["a\0b"]}), lambda: user_message("a\ufffdb")),
]


@pytest.mark.parametrize(("same", "other"), MESSAGES)
async def test_a_key_with_another_message_is_refused_while_queued_running_and_done(
    store: Store, session: SessionInfo, same: Callable[[], NewEvent], other: Callable[[], NewEvent]
) -> None:
    ahead = await store.submit_turn(session, user_message("ahead"), "me")
    turn = await store.submit_turn(session, same(), "me", SubmitOptions(idempotency_key="k"))
    assert turn.status == "queued"
    await is_that_of(store, session, turn.turn, same(), other())
    await store.end_turn(NAME, ahead, "done")
    claimed = await store.write(lease_turn, turn.session_key, NAME, turn.turn, "me", time.time())
    assert isinstance(claimed, Turn)
    await is_that_of(store, session, turn.turn, same(), other())
    await store.end_turn(NAME, claimed, "done")
    await is_that_of(store, session, turn.turn, same(), other())


async def test_another_message_is_refused_after_a_restart_a_rewind_and_beside_a_fork(
    store: Store, session: SessionInfo, store_url: str
) -> None:
    turn = await store.submit_turn(session, user_message("1"), "me", SubmitOptions(idempotency_key="k"))
    await store.end_turn(NAME, turn, "done")
    async with Store(store_url) as other:
        await is_that_of(other, session, turn.turn, user_message("1"), user_message("2"))
    await store.write(rewind.rewind_session, NAME, 1, time.time())
    await is_that_of(store, session, turn.turn, user_message("1"), user_message("2"))
    fork = await store.write(forks.fork_session, NAME, SessionId("app", "alice", "fork"), None, None, time.time())
    assert not (await store.submit_turn(fork, user_message("2"), "me", SubmitOptions(idempotency_key="k"))).repeated, (
        "a session of its own"
    )


async def test_another_message_is_refused_after_the_process_of_the_first_died(
    store: Store, session: SessionInfo
) -> None:
    await store.submit_turn(session, user_message("ahead"), "gone")
    turn = await store.submit_turn(session, user_message("1"), "gone", SubmitOptions(idempotency_key="k"))
    for gone in (OpenTurn(1, "running", "gone", 0), OpenTurn(turn.turn, "queued", "gone", 0)):
        assert await store.interrupt_turn(session, gone)
    assert await everything(store) == ["ahead", "1"], "what waited is part of the conversation"
    await is_that_of(store, session, turn.turn, user_message("1"), user_message("2"))


async def test_results_of_the_clients_tools_are_compared_too(store: Store, session: SessionInfo) -> None:
    call = Message("assistant", tool_calls=(ToolCall("c", "f", {}),))
    extra = {"long_running_tool_ids": ["c"], "custom_metadata": {CLIENT_CALLS_KEY: ["c"]}}
    made = NewEvent("call", time.time(), call, long_running=frozenset({"c"}), extra=extra)
    await store.append(session.key, NAME, session.revision, made)
    turn = await store.submit_turn(session, brings({"color": "red"}), "me", SubmitOptions(idempotency_key="k"))
    await is_that_of(
        store, session, turn.turn, brings({"color": "red"}), brings({"color": "blue"}), user_message("red")
    )
    trying_again = replace(user_message(), message=Message("event", author="agent"))
    await is_that_of(store, session, turn.turn, trying_again)


async def test_results_beside_a_message_are_not_part_of_its_digest(store: Store, session: SessionInfo) -> None:
    """When it is sent again, the calls are closed, and their results are ignored."""
    turn = await store.submit_turn(
        session,
        user_message("1", client_results={"c": ClientResult({"color": "red"})}),
        "me",
        SubmitOptions(idempotency_key="k"),
    )
    await is_that_of(store, session, turn.turn, user_message("1"), user_message("2"))


@pytest.mark.parametrize(("same", "other"), MESSAGES)
async def test_another_message_is_refused_after_the_first_was_withdrawn(
    store: Store, session: SessionInfo, same: Callable[[], NewEvent], other: Callable[[], NewEvent]
) -> None:
    ahead = await store.submit_turn(session, user_message("ahead"), "me")
    turn = await store.submit_turn(session, same(), "me", SubmitOptions(idempotency_key="k"))
    assert await store.withdraw_turn(turn)
    await is_that_of(store, session, turn.turn, same(), other())
    again = await store.submit_turn(session, same(), "me", SubmitOptions(idempotency_key="k"))
    assert again.status == "cancelled"
    await store.end_turn(NAME, ahead, "done")
    sessions = Sessions(store, "app")
    lines = [line async for line in sessions.export_lines("s", user_id="alice")]
    await store.delete_session(NAME)
    await is_that_of(store, await sessions.import_lines(lines, user_id="alice"), turn.turn, same(), other())
