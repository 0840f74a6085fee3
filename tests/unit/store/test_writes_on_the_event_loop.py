"""On a fast disk SQLite writes in the caller's thread; what would block the event loop goes to the writer's thread."""

import threading
from pathlib import Path

import pytest

from lango.messages import Message, ToolCall
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine.database import LARGE_VALUE, Operation
from lango.store.sessions.sessions import create_session


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMIT_S", float("inf"))
    monkeypatch.setattr("lango.store.engine.sqlite.writer._FAST_COMMITS_NEEDED", 0)


def insert(count: int, value: str) -> Operation[int]:
    """Write rows, and return the thread that did."""
    for number in range(count):
        yield "INSERT INTO user_states (app_name, user_id, state) VALUES ($1, $2, $3)", ("a", f"u{number}", value)
    return threading.get_ident()


def count_rows() -> Operation[int]:
    [[count]] = yield "SELECT count(*) FROM user_states", ()
    return count


@pytest.mark.parametrize(
    ("count", "length", "on_loop"), [(1, 10, True), (90, 10, True), (1, LARGE_VALUE + 1, False), (200, 10, False)]
)
async def test_only_a_small_operation_runs_on_the_event_loop(
    tmp_path: Path, count: int, length: int, on_loop: bool
) -> None:
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        await store.schema_version()
        thread = await store.write(insert, count, "x" * length)
        assert (thread == threading.get_ident()) is on_loop
        assert await store.read(count_rows) == count


async def test_a_large_message_is_stored_once(tmp_path: Path) -> None:
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        name = SessionId("app", "alice", "s")
        session = await store.write(create_session, name, {}, 0.0)
        text = "word " * LARGE_VALUE
        appended = await store.append(session.key, name, session.revision, NewEvent("e1", 0.0, Message("user", text)))
        assert appended.seq == 1


@pytest.mark.parametrize(
    ("event", "is_large"),
    [
        (NewEvent("e", 0.0, Message("user", "hi"), state_delta={"a": [1, 2], "b": "c"}), False),
        (NewEvent("e", 0.0, None), False),
        (NewEvent("e", 0.0, Message("user", "a" * 70_000)), True),
        (NewEvent("e", 0.0, Message("assistant", tool_calls=(ToolCall("c", "f", {"a": {"b": "c" * 70_000}}),))), True),
        (NewEvent("e", 0.0, Message("tool", tool_calls=(ToolCall("c", "f", output={"a": [0] * 7_000}),))), True),
        (NewEvent("e", 0.0, Message("user", "hi"), state_delta={"a": {"b": [[1]] * 7_000}}), True),
    ],
    ids=["small", "nothing", "text", "arguments", "result", "state"],
)
def test_attack_16_an_event_is_large_by_its_text_its_calls_or_its_state(event: NewEvent, is_large: bool) -> None:
    assert event.is_large == is_large
