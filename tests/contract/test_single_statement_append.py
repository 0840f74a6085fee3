"""An ordinary event is appended by a single statement, which writes the same rows as the operation."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from lango.errors import LangoError, StaleSession
from lango.messages import Message, Role, ToolCall
from lango.sessions import CONFIRMATION_CALL, SessionId, SessionInfo
from lango.store import AppendResult, NewEvent, Store, Turn
from lango.store.engine.database import Operation
from lango.store.lifecycle import fork
from lango.store.lifecycle.integrity import check_session
from lango.store.sessions.append import append_statement
from lango.store.sessions.sessions import create_session, find_session
from tests.agents.parts import TIMEOUT_S
from tests.support.examples import examples

NAME = SessionId("app", "alice", "s")
TABLES = {
    "sessions": "revision, last_seq, user_seq, total_tokens, epoch, updated_at, rewinds",
    "messages": "seq, role, author, content, tool_calls, tokens, total_tokens, created_at, event_id, invocation_id, "
    "call_seq, state_delta, extra",
    "open_calls": "call_id, seq, long_running",
    "waits": "id, kind, seq, about_id, about_seq, data, app_name, user_id, turn, closed",
    "state_events": "seq, revision, event_id, created_at, state_delta, extra",
    "turns": "turn, status, epoch, answer_stored",
}


def rows_of(key: int) -> Operation[dict[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for name, columns in TABLES.items():
        rows = yield f"SELECT {columns} FROM {name} WHERE session_key = $1 ORDER BY {columns}", (key,)
        found[name] = [tuple(row) for row in rows]
    return found


class Outcome(Struct):
    """The outcome of an append."""

    appended: AppendResult | None = None
    error: type[LangoError] | None = None


async def outcome_of(store: Store, session: SessionInfo, revision: int, entry: NewEvent, **options: Any) -> Outcome:
    try:
        return Outcome(await store.append(session.key, session.name, revision, entry, **options))
    except LangoError as error:
        return Outcome(error=type(error))


def text_event(
    number: int, role: Role = "user", content: str = "hi", calls: tuple[ToolCall, ...] = (), **more: Any
) -> NewEvent:
    message = Message(role, content, calls, "someone")
    return NewEvent(f"e{number}", float(number), message, number + 3, f"i{number % 3}", **more)


call_ids = st.sampled_from([*"aaaaab", "", "x" * 300])


def question(id_: str, about: str) -> ToolCall:
    return ToolCall(id_, CONFIRMATION_CALL, {"originalFunctionCall": {"id": about, "name": "f", "args": {}}})


def result(id_: str) -> ToolCall:
    return ToolCall(id_, "f", output={"ok": True})


calls = st.builds(ToolCall, call_ids, st.sampled_from(["f", "g"]), st.just({"n": 1}))
questions = st.builds(question, call_ids, call_ids)
results = st.builds(result, call_ids)
extras = st.sampled_from([{}, {"usage_metadata": {"total_token_count": 7}}])


@st.composite
def entries(draw: st.DrawFn) -> NewEvent:
    """An event, mostly an ordinary one."""
    number = draw(st.integers(0, 31))  # so that some ids repeat
    match draw(st.integers(0, 12)):
        case 0 | 1 | 2:
            role: Role = draw(st.sampled_from(["user", "assistant"]))
            return text_event(number, role, draw(st.sampled_from(["hi", "\0", "é"])), extra=draw(extras))
        case 3 | 4 | 5:
            long_running = frozenset(draw(st.sets(call_ids)))
            return text_event(number, "assistant", "", (draw(calls),), long_running=long_running, extra=draw(extras))
        case 6 | 7 | 8:
            return text_event(number, "tool", "{}", (draw(results),))
        case 9:
            return text_event(number, "assistant", "", tuple(draw(st.lists(st.one_of(calls, questions), max_size=2))))
        case 10:
            return text_event(number, "user", state_delta={"k": number, "temp:t": 1})
        case 11:
            return text_event(number, "event", rewind_before=f"i{draw(st.integers(0, 2))}")
        case _:
            return NewEvent(f"e{number}", float(number), None, state_delta={"k": number})


class Step(Struct):
    """An append, and how its revision and newest message are wrong."""

    entry: NewEvent
    behind: int = 0
    """How many revisions its writer is behind."""
    off: int = 0
    """The error of its newest message."""
    epoch: int | None = None
    ends_turn: bool = False


steps = st.lists(
    st.builds(
        Step,
        entries(),
        st.sampled_from([0, 0, 0, 0, 0, 1, 2]),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from([None, None, 1, 0]),
        st.sampled_from([False, False, True]),
    ),
    max_size=12,
)


LATE = [
    text_event(1, "assistant", "", (ToolCall("a", "f", {}),)),
    text_event(2, "assistant", "wait"),
    text_event(3, "tool", "{}", (result("a"),)),
]
ASKED = [
    text_event(1, "assistant", "", (ToolCall("a", "f", {}),), long_running=frozenset("a")),
    text_event(2, "assistant", "", (question("q", "a"),)),
    text_event(3, "tool", "{}", (result("q"),)),
]


@pytest.fixture
def opened(store_url: str) -> Iterator[tuple[asyncio.Runner, Store]]:
    """An event loop for all examples, and a store that is open in it."""
    with asyncio.Runner() as runner:
        store = Store(store_url)
        runner.run(store.open())
        yield runner, store
        runner.run(store.close())


@examples(60)
@given(script=steps, forked=st.booleans())
@example(script=[Step(entry) for entry in LATE], forked=False)
@example(script=[Step(entry) for entry in ASKED], forked=False)
def test_the_single_statement_writes_the_same_rows_as_the_operation(
    opened: tuple[asyncio.Runner, Store], script: list[Step], forked: bool
) -> None:
    runner, store = opened
    runner.run(_the_same(store, script, forked=forked))


async def _the_same(store: Store, script: list[Step], *, forked: bool) -> None:
    short, long = [await _session(store, forked=forked) for _ in range(2)]
    for step in script:
        seen = await store.read(find_session, short.name)
        assert seen is not None
        options: dict[str, Any] = {"epoch": step.epoch, "ends_turn": step.ends_turn}
        revision = max(0, seen.revision - step.behind)
        outcome = await outcome_of(store, short, revision, step.entry, **options, last_seq=seen.last_seq + step.off)
        assert outcome == await outcome_of(store, long, revision, step.entry, **options), step
    assert await store.read(rows_of, short.key) == await store.read(rows_of, long.key)
    assert await store.read(check_session, short.name) == []


async def _session(store: Store, *, forked: bool) -> SessionInfo:
    name = SessionId("app", "alice", uuid.uuid4().hex)
    session = await store.write(create_session, name, None, 0.0)
    turn = await store.submit_turn(session, text_event(0), "me")
    assert isinstance(turn, Turn)
    if forked:
        await store.append(session.key, name, 1, text_event(31, "assistant"), epoch=turn.epoch, ends_turn=True)
        return await store.write(fork.fork_session, name, SessionId("app", "alice", uuid.uuid4().hex), 2, None, 0.0)
    found = await store.read(find_session, name)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["sqlite_at_once", "postgres"])
async def test_ordinary_events_are_appended_by_the_single_statement(kind: str, request: pytest.FixtureRequest) -> None:
    ordinary = [
        text_event(1),
        text_event(2, "assistant", "", (ToolCall("c", "f", {"n": 1}),)),
        text_event(3, "tool", "{}", (ToolCall("c", "f", output={"ok": True}),)),
        text_event(4, "assistant"),
        text_event(5, "assistant", "", (ToolCall("c", "f", {"n": 1}),), long_running=frozenset("c")),
    ]
    async with Store(request.getfixturevalue(f"{kind}_url")) as store:
        session = await store.write(create_session, NAME, None, time.time())
        for number, entry in enumerate(ordinary):
            short = append_statement(session.key, number, number, entry, None)
            appended = await store._database.write(_never, single_statement=lambda short=short: short)  # pyright: ignore[reportPrivateUsage]
            assert appended == AppendResult(number + 1, number + 1)
        assert [row[:3] for row in (await store.read(rows_of, session.key))["open_calls"]] == [("c", 5, 1)]


@pytest.mark.parametrize(
    "large",
    [
        NewEvent("e", 0.0, Message("user", "a" * 70_000)),
        NewEvent("e", 0.0, Message("assistant", tool_calls=(ToolCall("c", "look", {"at": "a" * 70_000}),))),
        NewEvent("e", 0.0, Message("tool", tool_calls=(ToolCall("c", "look", output={"found": "a" * 70_000}),))),
        NewEvent("e", 0.0, Message("user", "hi"), extra={"custom_metadata": "a" * 70_000}),
    ],
    ids=["text", "arguments", "result", "metadata"],
)
def test_a_large_event_is_left_to_the_operation_which_the_writers_thread_runs(large: NewEvent) -> None:
    assert append_statement(1, 0, 0, large, None) is None
    assert append_statement(1, 0, 0, NewEvent("e", 0.0, Message("user", "hi")), None) is not None


def _never() -> Operation[AppendResult]:
    raise AssertionError("the long way was taken")
    yield


async def test_a_statement_that_did_not_apply_does_not_disable_the_next(store: Store) -> None:
    session = await store.write(create_session, NAME, None, time.time())
    for number in range(3):
        stale = await outcome_of(store, session, 7, text_event(9), last_seq=7)
        assert stale.error is StaleSession
        again = await outcome_of(store, session, number, text_event(number), last_seq=number)
        assert again == Outcome(AppendResult(number + 1, number + 1))
        assert await outcome_of(store, session, number + 1, text_event(number), last_seq=number + 1) == Outcome(
            AppendResult(number + 1, number + 1, repeated=True)
        )


async def test_the_log_is_checkpointed_without_writes_in_the_writers_thread(
    sqlite_at_once_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lango.store.engine.sqlite.writer._CHECKPOINT_PAGES", 40)
    monkeypatch.setattr("lango.store.engine.sqlite.sqlite_database._CHECK_LOG_EVERY", 10)
    async with Store(sqlite_at_once_url) as store, asyncio.timeout(TIMEOUT_S):
        session = await store.write(create_session, NAME, None, time.time())
        file, number = tmp_path / "lango.db", 0
        before = file.stat().st_size  # writes are in the log until it is checkpointed
        while file.stat().st_size == before:
            await outcome_of(store, session, number, text_event(number), last_seq=number)
            number += 1
            await asyncio.sleep(0)
