"""Integrity checks find damaged sessions; all tests of the contract leave consistent ones."""

import time
from collections.abc import AsyncIterator

import pytest

from lango.errors import SessionNotFound
from lango.messages import Message
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.lifecycle import integrity
from lango.store.lifecycle.integrity import check_database, check_session
from lango.store.sessions.sessions import create_session
from tests.contract.test_store import NAME, Writer


@pytest.fixture
async def broken(store_url: str) -> AsyncIterator[Writer]:
    """A session that a test may break: a text, a call, its result, a call, a text, the result, a call, and state."""
    async with Store(store_url) as store:
        writer = Writer(store, await store.write(create_session, NAME, {"city": "Bern"}, time.time()))
        await writer.talk(1)
        await writer.call("a")
        await writer.answer("a")
        await writer.call("b", long_running=frozenset("b"))
        await writer.add(Message("user", "hi"))
        await writer.answer("b", state_delta={"city": "Oslo"})
        await writer.call("c")
        await writer.add(None, state_delta={"n": 1})
        yield writer


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM messages WHERE seq = 5", "message 5 is missing"),
        ("DELETE FROM messages WHERE seq IN (2, 3)", "messages 2 to 3 are missing"),
        ("DELETE FROM messages WHERE seq = 7", "message 7 is missing"),
        ("UPDATE messages SET total_tokens = 1 WHERE seq = 3", "message 3: the stored total of tokens up to here is 1"),
        ("UPDATE sessions SET total_tokens = 5", "the stored total of the session is 5 tokens; its messages have 70"),
        ("UPDATE sessions SET user_seq = 1", "the user's newest message is stored as 1, but is 5"),
        ("UPDATE sessions SET last_seq = 6, total_tokens = 60", "there are messages up to 7"),
        ("UPDATE sessions SET rewinds = '[[9,2]]'", "a rewind at message 9"),
        ("UPDATE messages SET tool_calls = '[{' WHERE seq = 2", "message 2: it cannot be read"),
        ("UPDATE messages SET extra = '[]' WHERE seq = 1", "message 1: it cannot be read"),
        (
            "UPDATE messages SET call_seq = NULL WHERE seq = 6",
            "message 6: it does not name the message of its call, 4",
        ),
        ("DELETE FROM open_calls", "message 7: call 'c' has no result, and is not stored as open"),
        (
            "UPDATE open_calls SET call_id = 'd'",
            "message 7: call 'd' is stored as open, but the message has no such call",
        ),
        (
            'UPDATE session_states SET state = \'{"city":"Oslo"}\'',
            "the session's state differs from what its events set: n",
        ),
        ("UPDATE session_states SET state = 'x'", "the session, or its state, cannot be read"),
        (
            "UPDATE state_events SET extra = 'x' WHERE revision > 0",
            "message 7: a change of the state after this message cannot be read",
        ),
        ("UPDATE state_events SET state_delta = 'x' WHERE revision > 0", "the session's state cannot be read"),
        (
            "INSERT INTO turns (session_key, turn, status, epoch, created_at) "
            "SELECT session_key, 1, 'running', 4, 0 FROM sessions",
            "turn 1 runs with epoch 4; the session is at 0",
        ),
    ],
)
async def test_inconsistencies_are_found_and_named(broken: Writer, damage: str, says: str) -> None:
    assert await broken.store.read(check_session, NAME) == []

    def do() -> Operation[None]:
        yield damage, ()

    await broken.store.write(do)
    assert any(says in str(problem) for problem in await broken.store.read(check_session, NAME)), (
        await broken.store.read(check_session, NAME)
    )
    assert await broken.store.read(integrity.list_session_names) == [NAME]


async def test_orphaned_rows_are_found(broken: Writer) -> None:
    def do() -> Operation[None]:
        yield "DELETE FROM sessions", ()

    assert await broken.store.read(check_database, broken.store.dialect) == []
    await broken.store.write(do)
    assert list(map(str, await broken.store.read(check_database, broken.store.dialect))) == [
        "7 messages belong to no session"
    ]
    with pytest.raises(SessionNotFound):
        await broken.store.read(check_session, NAME)


async def test_an_index_that_another_connection_merged_is_not_reported(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lango.store.engine.sqlite.readers._THREADS", 1
    )  # the connection that has searched is the one that checks
    writer = Writer(store, await store.write(create_session, NAME, None, time.time()))
    async with Store(store_url) as other:
        for number in range(40):  # FTS5 joins its pieces at every sixteenth, at the latest
            await writer.add(Message("user", f"apples {number}"))
            await other.search(NAME.app_name, NAME.user_id, "apples")
            assert await store.read(check_database, store.dialect) == []
            await store.search(NAME.app_name, NAME.user_id, "apples")


async def test_a_fork_of_a_deleted_session_is_consistent(broken: Writer) -> None:
    sessions = Sessions(broken.store, NAME.app_name)
    fork = await sessions.fork(NAME.id, user_id=NAME.user_id, at=5, new_id="f")
    assert await sessions.delete(NAME.id, user_id=NAME.user_id)
    assert await sessions.check("f", user_id=NAME.user_id) == []
    assert await broken.store.read(check_database, broken.store.dialect) == []
    assert fork.name == SessionId("app", "alice", "f")
