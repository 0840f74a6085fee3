"""ADK's session service, S1-S11, on both databases."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any, TypedDict

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.genai import types
from hypothesis import given

from lango.adk import SqlSessionService
from lango.adk.run.agent_app import AgentApp
from lango.adk.run.engine import AdkEngine
from lango.adk.services.stored_session import SessionVersion
from lango.adk.turn.turn_run import entered
from lango.config import Settings
from lango.errors import FencedWrite, LangoError, StaleSession
from lango.sessions import SessionId
from lango.store import Turn
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sessions import find_session
from lango.testing import ScriptedProvider
from lango.turns.running_turn import RunningTurn
from lango.turns.time_limits import TimeLimits
from lango.turns.turn_log import TurnLog
from lango.turns.turn_sink import TurnSink
from tests.support import strategies
from tests.support.examples import examples
from tests.support.processes import TIMEOUT_S
from tests.unit.adk.test_event_rows import with_stored_role


class Owner(TypedDict):
    app_name: str
    user_id: str


APP: Owner = {"app_name": "app", "user_id": "alice"}


def text_event(text: str, author: str = "user", **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    return Event(author=author, content=types.Content(role=role, parts=[types.Part(text=text)]), **fields)


def changed(**delta: Any) -> Event:
    return Event(author="agent", actions=EventActions(state_delta=delta))


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [part.text or "" for e in session.events if e.content for part in e.content.parts or []]


async def load(service: BaseSessionService, session: Session, **config: Any) -> Session:
    found = await service.get_session(
        **APP, session_id=session.id, config=GetSessionConfig(**config) if config else None
    )
    assert found is not None
    return found


async def test_s1_messages_and_state_are_stored_and_loaded_in_order(service: SqlSessionService) -> None:
    session = await service.create_session(**APP, state={"lang": "de", "user:name": "Alice", "app:version": 3})
    for event in [text_event("hello"), text_event("hi", "agent", actions=EventActions(state_delta={"lang": "en"}))]:
        await service.append_event(session, event)
    assert texts(session) == ["hello", "hi"], "the session in memory shows each event at once"
    assert session.state["lang"] == "en"
    again = await load(service, session)
    assert again.events == session.events
    assert again.state == session.state == {"lang": "en", "user:name": "Alice", "app:version": 3}
    assert again.last_update_time == session.last_update_time == session.events[-1].timestamp


async def test_s2_order_is_that_of_insertion_whatever_the_clock_says(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    for number, timestamp in enumerate([5.0, 5.0, 3.0, 9.0, 1.0, 5.0]):
        await service.append_event(session, text_event(str(number), timestamp=timestamp))
    assert texts(session) == texts(await load(service, session)) == list("012345")


async def test_s1_a_session_object_knows_where_the_store_is(service: SqlSessionService) -> None:
    """Otherwise appends could not use the single statement, and would silently be slower."""
    session = await service.create_session(**APP)
    name = SessionId(session.app_name, session.user_id, session.id)
    only_state = Event(author="a", actions=EventActions(state_delta={"k": 1}))
    for event in [text_event("1"), only_state, text_event("2"), text_event("3")]:
        await service.append_event(session, event)
        record = await service.store.read(find_session, name)
        assert record
        for shown in (session, await load(service, session)):
            seen = (shown.__pydantic_private__ or {})["_version"]
            assert seen == SessionVersion(record.key, name, record.revision, record.last_seq)


async def test_s2_tasks_that_share_a_session_append_one_after_the_other(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    await asyncio.gather(*(service.append_event(session, text_event(str(n))) for n in range(30)))
    assert texts(session) == texts(await load(service, session)) == [str(n) for n in range(30)]


@pytest.fixture(params=["sqlite_in_thread", "postgres"])
async def waiting_service(request: pytest.FixtureRequest) -> AsyncIterator[SqlSessionService]:
    """A service whose writes take a moment, so that other tasks run meanwhile."""
    async with SqlSessionService(request.getfixturevalue(f"{request.param}_url")) as service:
        yield service


async def test_s2_a_task_that_is_cancelled_while_it_waits_lets_the_next_one_append(
    waiting_service: SqlSessionService,
) -> None:
    service = waiting_service
    session = await service.create_session(**APP)
    async with asyncio.timeout(TIMEOUT_S):
        first = asyncio.create_task(service.append_event(session, text_event("first")))
        rest = [asyncio.create_task(service.append_event(session, text_event(str(n)))) for n in range(10)]
        await asyncio.sleep(0)  # the first append is under way, and the others wait for it
        for task in rest[2:9:3]:
            task.cancel()
        await asyncio.gather(first, *rest, return_exceptions=True)
        await service.append_event(session, text_event("last"))
    assert [task.cancelled() for task in rest] == [n in (2, 5, 8) for n in range(10)]
    assert texts(session) == texts(await load(service, session)) == ["first", *"013467", "9", "last"]


async def test_s2_a_task_that_is_cancelled_when_it_acquires_the_lock_releases_it(
    waiting_service: SqlSessionService,
) -> None:
    service = waiting_service
    session = await service.create_session(**APP)

    async def append_and_cancel() -> None:
        await service.append_event(session, text_event("first"))
        second.cancel()  # it has been granted the lock, but has not run yet

    async with asyncio.timeout(TIMEOUT_S):
        first = asyncio.create_task(append_and_cancel())
        second, third = (asyncio.create_task(service.append_event(session, text_event(text))) for text in ("2", "3"))
        await asyncio.gather(first, second, third, return_exceptions=True)
    assert second.cancelled()
    assert texts(session) == texts(await load(service, session)) == ["first", "3"]


async def test_s2_the_totals_of_many_concurrent_appends_equal_those_of_the_store(
    service: SqlSessionService,
) -> None:
    session = await service.create_session(**APP)
    for n in range(4):
        again = await load(service, session)
        for event in (text_event(f"q{n}"), changed(n=n), text_event(f"a {n}", author="agent"), changed(m=n)):
            await service.append_event(session, event)
        with pytest.raises(StaleSessionError):
            await service.append_event(again, text_event("too late"))
        with pytest.raises(FencedWrite):
            await _by_turn(service, session, epoch=7)
        await _by_turn(service, session, epoch=0)
    [[revision, last_seq, user_seq, total]] = await _query(
        service, "SELECT revision, last_seq, user_seq, total_tokens FROM sessions"
    )
    rows = await _query(service, "SELECT seq, tokens, total_tokens FROM messages ORDER BY seq")
    assert (revision, last_seq, user_seq) == (20, 12, 10)
    assert [seq for seq, _, _ in rows] == list(range(1, 13))
    assert [so_far for _, _, so_far in rows] == list(itertools.accumulate(tokens for _, tokens, _ in rows))
    assert total == rows[-1][2]
    assert (await load(service, session)).events == session.events


async def _by_turn(service: SqlSessionService, session: Session, *, epoch: int) -> None:
    [[key]] = await _query(service, "SELECT session_key FROM sessions")
    record = await service.store.read(find_session, SessionId(**APP, id=session.id))
    assert record is not None
    turn, settings = Turn(key, 1, epoch), Settings()
    running = RunningTurn(record, turn, TurnLog(turn))
    engine = AdkEngine(settings, service.store, AgentApp.build(settings, [], ScriptedProvider([])))
    sink = TurnSink(running.log, TimeLimits(settings.agent), is_resumed=False, on_event=lambda: None)
    async with sink.limits.applied():
        with entered(await engine.begin(running, engine.inputs.message("hello"), sink)):
            await service.append_event(session, text_event("of a turn", author="agent"))


async def test_s3_foreign_calls_get_ids_in_memory_and_in_the_store_alike(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    parts = [types.Part(function_call=types.FunctionCall(name="search", args={"n": n})) for n in range(2)]
    await service.append_event(session, Event(author="agent", content=types.Content(role="model", parts=parts)))
    again = await load(service, session)
    assert again.events == session.events
    assert [call.id for call in again.events[0].get_function_calls()] == ["call_search", "call_search_2"]


async def test_s7_an_event_without_an_author_gets_the_root_agents_name(store_url: str) -> None:
    async with SqlSessionService(store_url, root_agent_name="boss") as service:
        session = await service.create_session(**APP)
        await service.append_event(session, text_event("who am I", author=""))
        await service.append_event(session, Event(content=types.Content(role="user", parts=[types.Part(text="me")])))
        assert [e.author for e in (await load(service, session)).events] == ["boss", "user"]


@pytest.mark.parametrize("name", ["", "  ", None])
async def test_s7_an_empty_root_name_is_none_and_the_author_is_lango_agent(sqlite_url: str, name: str | None) -> None:
    async with SqlSessionService(sqlite_url, root_agent_name=name) as service:
        session = await service.create_session(**APP)
        await service.append_event(session, text_event("who am I", author=""))
        await service.append_event(session, Event(content=types.Content(role="user", parts=[types.Part(text="me")])))
        assert [e.author for e in session.events] == ["lango-agent", "user"]
        assert [e.author for e in (await load(service, session)).events] == ["lango-agent", "user"]


async def test_s8_a_state_only_event_is_shown_without_a_budget(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    for event in [
        text_event("a"),
        changed(k=1),
        changed(k=2, **{"user:u": 1, "app:a": 2, "temp:t": 3}),
        text_event("b"),
        changed(k=3),
    ]:
        await service.append_event(session, event)
    again = await load(service, session)
    assert again.events == session.events
    assert [dict(e.actions.state_delta) for e in again.events if not e.content] == [
        {"k": 1},
        {"k": 2, "user:u": 1, "app:a": 2},
        {"k": 3},
    ]
    assert again.state == {"k": 3, "user:u": 1, "app:a": 2}
    assert session.state == again.state | {"temp:t": 3}, "temp: lives in memory only"


async def test_s8_a_state_only_event_is_no_message_with_a_budget(store_url: str) -> None:
    async with SqlSessionService(store_url, budget_tokens=32_000) as service:
        session = await service.create_session(**APP)
        for event in [text_event("a"), changed(k=1), text_event("b")]:
            await service.append_event(session, event)
        again = await load(service, session)
        assert texts(session) == texts(again) == ["a", "b"]
        assert len(session.events) == len(again.events) == 2
        assert session.state == again.state == {"k": 1}
        [[last_seq, total]] = await _query(service, "SELECT last_seq, total_tokens FROM sessions")
        [[summed]] = await _query(service, "SELECT SUM(tokens) FROM messages")
        assert (last_seq, total) == (2, summed)


async def _query(service: SqlSessionService, sql: str) -> list[Any]:
    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    return [list(row) for row in await service.store.read(operation)]


async def test_s8_events_without_content_are_stored(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    compaction = {"start_timestamp": 1.0, "end_timestamp": 2.0, "compacted_content": types.Content(parts=[])}
    events = [
        Event(author="agent", error_code="SAFETY", error_message="no"),
        Event(author="agent", actions=EventActions(end_of_agent=True, agent_state={"step": 1})),
        Event.model_validate({"author": "agent", "actions": {"compaction": compaction}}),
        Event(author="agent"),
    ]
    for event in events:
        await service.append_event(session, event)
    assert (await load(service, session)).events == session.events == events


@given(strategies.events)
@examples(40)
async def test_s9_any_event_comes_back_equal(service: SqlSessionService, event: Event) -> None:
    session = await service.create_session(**APP)
    await service.append_event(session, event)
    again = await load(service, session)
    assert again.events == [with_stored_role(event)]
    assert again.state == session.state | again.state


ODD = {"nul": "a\0b", "half": "\ud800", "nan": float("inf"), "bytes": b"\xff\0", "mixed": [1, {"\0": None}]}


async def test_odd_values_read_back_the_same(service: SqlSessionService) -> None:
    session = await service.create_session(**APP, state=dict(ODD))
    answer = types.FunctionResponse(id="c", name="f\0", response=dict(ODD))
    content = types.Content(role="user", parts=[types.Part(function_response=answer), types.Part(text="x\0\udfff")])
    event = Event(author="agent\0", content=content, actions=EventActions(state_delta={"user:odd": dict(ODD)}))
    await service.append_event(session, event)
    again = await load(service, session)
    assert again.events == [with_stored_role(event)]
    assert again.state == ODD | {"user:odd": ODD}


async def test_a_message_of_ten_megabytes(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    await service.append_event(session, text_event("0123456789" * 1_000_000))
    assert (await load(service, session)).events == session.events


@pytest.mark.parametrize("value", [print, object(), [print]])
async def test_unstorable_values_are_refused_before_anything_is_written(service: SqlSessionService, value: Any) -> None:
    session = await service.create_session(**APP, state={"k": 0})
    with pytest.raises(LangoError, match="cannot be stored"):
        await service.append_event(session, text_event("x", actions=EventActions(state_delta={"k": value})))
    assert session.events == (await load(service, session)).events == []
    assert session.state == (await load(service, session)).state == {"k": 0}
    await service.append_event(session, text_event("goes on"))
    assert texts(await load(service, session)) == ["goes on"]


async def test_s10_the_second_writer_is_stale_and_its_write_is_rolled_back(service: SqlSessionService) -> None:
    first = await service.create_session(**APP)
    second = await load(service, first)
    await service.append_event(first, text_event("first"))
    with pytest.raises(StaleSessionError) as caught:
        await service.append_event(second, text_event("second", actions=EventActions(state_delta={"lost": 1})))
    assert isinstance(caught.value, StaleSession), "Lango's own type too"
    assert second.events == []
    again = await load(service, first)
    assert texts(again) == ["first"]
    assert again.state == {}
    await service.append_event(again, text_event("second"))
    with pytest.raises(StaleSessionError):
        await service.append_event(first, changed(k=1))  # a state-only event advances the revision, too


async def test_s10_a_session_object_made_by_hand(service: SqlSessionService) -> None:
    made = await service.create_session(**APP, session_id="s")
    by_hand = Session(id="s", **APP, last_update_time=made.last_update_time)
    await service.append_event(by_hand, text_event("one", timestamp=made.last_update_time + 1))
    await service.append_event(by_hand, text_event("two", timestamp=made.last_update_time + 2))
    with pytest.raises(StaleSessionError):
        await service.append_event(Session(id="s", **APP, last_update_time=made.last_update_time), text_event("late"))
    assert texts(await load(service, made)) == ["one", "two"]


async def test_s10_the_same_event_twice_counts_once(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    event = text_event("once", actions=EventActions(state_delta={"n": 1}))
    before = await load(service, session)
    await service.append_event(session, event)
    await service.append_event(session, event)
    await service.append_event(before, event)  # as after a lost answer: the revision is old, but the event is the same
    await service.append_event(before, text_event("next"))
    assert texts(session) == ["once"]
    assert texts(await load(service, session)) == ["once", "next"]
    with pytest.raises(LangoError, match="another event"):
        await service.append_event(await load(service, session), text_event("other", id=event.id))


async def test_s11_partial_events_are_not_stored(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    await service.append_event(session, text_event("par", "agent", partial=True))
    assert session.events == (await load(service, session)).events == []


async def test_s11_num_recent_events_and_after_timestamp(service: SqlSessionService) -> None:
    session = await service.create_session(**APP)
    for number in range(5):
        await service.append_event(session, text_event(str(number), timestamp=float(number)))
    await service.append_event(session, changed(k=1))
    assert [e.id for e in (await load(service, session, num_recent_events=3)).events] == [
        e.id for e in session.events[-3:]
    ]
    assert (await load(service, session, num_recent_events=0)).events == []
    assert (await load(service, session, num_recent_events=100)).events == session.events
    assert (await load(service, session, after_timestamp=3.0)).events == session.events[3:]
    assert (await load(service, session, after_timestamp=3.0, num_recent_events=2)).events == session.events[-2:]
    assert (await load(service, session, after_timestamp=10.0**12)).events == []


async def test_s11_windowed_load_honours_the_filters_too(store_url: str) -> None:
    async with SqlSessionService(store_url, budget_tokens=32_000) as service:
        session = await service.create_session(**APP)
        for number in range(5):
            await service.append_event(session, text_event(str(number), timestamp=float(number)))
        assert texts(await load(service, session, num_recent_events=2)) == ["3", "4"]
        assert texts(await load(service, session, num_recent_events=0)) == []
        assert texts(await load(service, session, after_timestamp=3.0)) == ["3", "4"]


async def test_s11_list_sessions_oldest_update_first(service: SqlSessionService) -> None:
    for number, user in enumerate(["bob", "alice", "alice"]):
        session = await service.create_session(
            app_name="app", user_id=user, session_id=f"s{number}", state={"n": number, "user:of": user, "app:all": 1}
        )
        await service.append_event(session, text_event("x", timestamp=10.0 - number))
    await service.create_session(app_name="other", user_id="alice")
    of_app = (await service.list_sessions(app_name="app")).sessions
    assert [s.id for s in of_app] == ["s2", "s1", "s0"]
    assert of_app[0].state == {"n": 2, "user:of": "alice", "app:all": 1}
    assert all(s.events == [] for s in of_app)
    assert [s.id for s in (await service.list_sessions(app_name="app", user_id="alice")).sessions] == ["s2", "s1"]
    assert (await service.list_sessions(app_name="nobody's")).sessions == []


async def test_s11_state_has_adks_meaning(service: SqlSessionService) -> None:
    """None is stored, dicts are replaced, scopes are shared: compared with ADK's own service, step by step."""
    ours: list[dict[str, Any]] = []
    for one in (service, InMemorySessionService()):
        first = await one.create_session(**APP, session_id="1", state={"d": {"a": 1}, "temp:x": 1, "user:u": 1})
        await one.append_event(first, changed(d={"b": 2}, n=None, **{"user:u": None, "app:a": {"x": 1}}))
        second = await one.create_session(**APP, session_id="2", state={"user:v": 2})
        stranger = await one.create_session(app_name="app", user_id="bob", session_id="3")
        loaded = await load(one, first)
        of_user = await one.get_user_state(**APP)
        ours.append({"1": loaded.state, "2": second.state, "3": stranger.state, "user": of_user})
    assert ours[0] == ours[1]
    assert await service.get_user_state(app_name="app", user_id="nobody") == {}


async def test_s11_append_to_a_deleted_session_is_refused(service: SqlSessionService) -> None:
    session = await service.create_session(**APP, session_id="gone", state={"user:stays": 1})
    await service.append_event(session, text_event("x"))
    await service.delete_session(**APP, session_id="gone")
    await service.delete_session(**APP, session_id="gone")
    assert await service.get_session(**APP, session_id="gone") is None
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, text_event("y"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(Session(id="gone", **APP), text_event("y"))
    anew = await service.create_session(**APP, session_id="gone")
    assert anew.state == {"user:stays": 1}
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, text_event("y"))  # to the deleted session, although a new one has its name
    for table in ("messages", "state_events", "open_calls", "session_states", "turns"):
        assert await _query(service, f"SELECT COUNT(*) FROM {table}") == [[0]]


async def test_s11_a_session_that_exists_is_not_made_again(service: SqlSessionService) -> None:
    await service.create_session(**APP, session_id="s", state={"user:n": 1})
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**APP, session_id=" s ", state={"user:n": 2})
    assert await service.get_user_state(**APP) == {"n": 1}, "nothing of the second was written"
    await service.create_session(app_name="app", user_id="bob", session_id="s")


async def test_s11_ids_with_spaces_and_odd_ids(service: SqlSessionService) -> None:
    session = await service.create_session(**APP, session_id="  my session ; DROP TABLE messages; -- ")
    assert session.id == "my session ; DROP TABLE messages; --"
    assert await service.get_session(**APP, session_id=f" {session.id} ") is not None
    assert (await service.create_session(**APP, session_id="   ")).id.strip()
    assert await service.get_session(**APP, session_id="nul\0") is None
    await service.delete_session(**APP, session_id="nul\0")
    for id_ in ("nul\0", "half\ud800", "x" * 513):
        with pytest.raises(LangoError):
            await service.create_session(**APP, session_id=id_)


async def test_h6_the_window_holds_the_newest_messages_that_fit(store_url: str) -> None:
    async with SqlSessionService(store_url) as all_of_it, SqlSessionService(store_url, budget_tokens=200) as windowed:
        session = await all_of_it.create_session(**APP)
        for number in range(100):
            await all_of_it.append_event(
                session, text_event(f"message {number}", "user" if number % 2 == 0 else "agent")
            )
        window = await load(windowed, session)
        [[each]] = await _query(all_of_it, "SELECT MAX(tokens) FROM messages")
        assert texts(window) == [f"message {n}" for n in range(100)][-(200 // each) :]
        assert window.events == session.events[-len(window.events) :]
        # the windowed session appends after the newest message, not after its window
        await windowed.append_event(window, text_event("next"))
        assert texts(await load(all_of_it, session))[-2:] == ["message 99", "next"]
