"""Files of queued messages: stored in chunks with the message, and gone when it is withdrawn."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from lango.messages import Message, StoredBytes, ToolCall, content_hash
from lango.sessions import CLIENT_CALLS_KEY, SessionId, SessionInfo
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.codec.json_text import loads
from lango.store.codec.records import ClientResult
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import read_session_events
from lango.store.turns.lease import lease_turn
from lango.store.turns.queue import read_queued_messages
from lango.store.turns.submit import SubmitOptions
from tests.agents.parts import rows

NAME = SessionId("app", "alice", "s")
FILE = bytes(range(256)) * 4_000
OLD_FILE = b"of an earlier message" * 100


def message(text: str, *files: bytes, **more: Any) -> NewEvent:
    contents = {content_hash(data): data for data in files}
    parts = [{"inline_data": {"data": StoredBytes(hash_, len(data))}} for hash_, data in contents.items()]
    extra = {"parts": parts} if parts else {}
    now = time.time()
    return NewEvent(f"e {text}", now, Message("user", text), 5, f"i {text}", extra=extra, contents=contents, **more)


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


@pytest.fixture
async def running(store: Store, session: SessionInfo) -> Turn:
    return await store.submit_turn(session, message("first"), "me")


async def stored(store: Store) -> list[tuple[int, int]]:
    """The size and the uses of every content."""
    return await rows(store, "SELECT size, uses FROM contents ORDER BY size")


async def start(store: Store, running: Turn, queued: Turn) -> Turn:
    await store.end_turn(NAME, running, "done")
    started = await store.write(lease_turn, queued.session_key, NAME, queued.turn, "me", time.time())
    assert isinstance(started, Turn)
    return started


async def test_the_row_of_a_queued_turn_holds_no_bytes(store: Store, session: SessionInfo, running: Turn) -> None:
    queued = await store.submit_turn(session, message("second", FILE), "me")
    assert queued.status == "queued"
    [(size,)] = await rows(store, "SELECT LENGTH(queued_input) FROM turns WHERE queued_input IS NOT NULL")
    assert size < 1_000
    assert await stored(store) == [(len(FILE), 1)]
    [shown] = await store.read(read_queued_messages, session.key)
    await store.load_files([shown.message])
    extra: Any = shown.message.extra
    assert extra["parts"][0]["inline_data"]["data"] == FILE, "it can be read while it is queued"
    assert (await start(store, running, queued)).status == "running"
    assert await stored(store) == [(len(FILE), 1)]
    assert await rows(store, "SELECT hash FROM turn_contents") == []
    found = await store.read(read_session_events, NAME)
    assert found
    await store.load_files(found[1])
    extra = found[1][-1].extra
    assert extra["parts"][0]["inline_data"]["data"] == FILE
    await store.delete_session(NAME)
    assert await stored(store) == []


async def test_a_message_that_is_withdrawn_takes_its_files_along(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    first = await store.submit_turn(session, message("second", FILE), "me")
    second = await store.submit_turn(session, message("third", FILE, OLD_FILE), "me")
    assert await stored(store) == [(len(OLD_FILE), 1), (len(FILE), 2)]
    assert await store.withdraw_turn(second)
    assert not await store.withdraw_turn(second)
    assert await stored(store) == [(len(FILE), 1)]
    await start(store, running, first)
    assert await stored(store) == [(len(FILE), 1)]


async def test_a_queued_turn_whose_process_died_keeps_its_files(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    queued = await store.submit_turn(session, message("second", FILE), "gone")
    await store.end_turn(NAME, running, "done")
    assert await store.interrupt_turn(session, OpenTurn(queued.turn, "queued", "gone", 0))
    assert await stored(store) == [(len(FILE), 1)]
    assert len(await rows(store, "SELECT hash FROM message_contents")) == 1
    assert await rows(store, "SELECT hash FROM turn_contents") == []


async def test_a_queued_result_that_comes_too_late_takes_its_files_along(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    call = ToolCall("c1", "draw", {})
    made = NewEvent("call", time.time(), Message("assistant", tool_calls=(call,)), long_running=frozenset({"c1"}))
    made = replace(made, extra={"long_running_tool_ids": ["c1"], "custom_metadata": {CLIENT_CALLS_KEY: ["c1"]}})
    [(revision,)] = await rows(store, "SELECT revision FROM sessions")
    await store.append(session.key, NAME, revision, made, epoch=running.epoch)
    result = ToolCall("c1", "draw", output={"ok": True})
    late = replace(message("late", FILE), client_results={"c1": ClientResult({"ok": True})})
    queued = await store.submit_turn(
        session, replace(late, message=Message("tool", tool_calls=(result,))), "me", SubmitOptions(idempotency_key="k")
    )
    assert (queued.status, await stored(store)) == ("queued", [(len(FILE), 1)])
    await store.write(_close_every_wait)
    assert (await start(store, running, queued)).status == "failed"
    assert await stored(store) == []


def _close_every_wait() -> Any:
    yield "UPDATE waits SET closed = 'superseded'", ()


async def test_a_session_that_is_deleted_takes_the_files_of_its_queue_along(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    history = (message("earlier", OLD_FILE), message("later", OLD_FILE))
    await store.submit_turn(session, message("second", FILE, preceding=history), "me")
    assert await stored(store) == [(len(OLD_FILE), 1), (len(FILE), 1)]
    await store.delete_session(NAME)
    assert await stored(store) == []
    assert await rows(store, "SELECT hash FROM content_chunks") == []


async def test_a_history_that_a_client_resends_keeps_its_files_through_the_queue(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    history = (message("earlier", OLD_FILE), message("later", OLD_FILE, FILE))
    queued = await store.submit_turn(session, message("second", FILE, preceding=history), "me")
    await start(store, running, queued)
    assert await stored(store) == [(len(OLD_FILE), 2), (len(FILE), 2)]


async def test_an_input_that_an_earlier_version_queued_is_run_with_its_files(
    store: Store, session: SessionInfo, running: Turn
) -> None:
    queued = await store.submit_turn(session, message("second"), "me")
    [(text,)] = await rows(store, "SELECT queued_input FROM turns WHERE queued_input IS NOT NULL")
    members = loads(text) | {"contents": {content_hash(FILE): FILE}}

    def as_before() -> Any:
        from lango.store.codec.json_text import dumps

        yield "UPDATE turns SET queued_input = $1 WHERE queued_input IS NOT NULL", (dumps(members),)

    await store.write(as_before)
    await start(store, running, queued)
    assert await stored(store) == [(len(FILE), 1)]
