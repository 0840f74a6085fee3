"""Event ids are unique: the same event again is a retry, another event with its id is refused."""

import itertools
import time
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.genai import types

from lango.adk.events.events_to_rows import event_to_entry
from lango.adk.services.session_service import SqlSessionService
from lango.errors import EventConflict, InvalidExport
from lango.messages import Message
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId, SessionInfo
from lango.store import AppendResult, NewEvent, Store
from lango.store.lifecycle import fork as forks
from lango.store.sessions.sessions import create_session, find_session

NAME = SessionId("app", "alice", "s")


def text_content(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def compaction(text: str) -> EventActions:
    return EventActions(
        compaction=EventCompaction(start_timestamp=1.0, end_timestamp=2.0, compacted_content=text_content(text))
    )


EVENTS: dict[str, dict[str, Any]] = {
    "text": {"author": "a", "content": text_content("hi")},
    "another text": {"author": "a", "content": text_content("ho")},
    "text of another author": {"author": "b", "content": text_content("hi")},
    "text of another invocation": {"author": "a", "content": text_content("hi"), "invocation_id": "other"},
    "nothing": {"author": "a"},
    "nothing of another author": {"author": "b"},
    "nothing of another invocation": {"author": "a", "invocation_id": "other"},
    "compaction": {"author": "a", "actions": compaction("short")},
    "another compaction": {"author": "a", "actions": compaction("shorter")},
    "agent state": {"author": "a", "actions": EventActions(agent_state={"step": 1})},
    "another agent state": {"author": "a", "actions": EventActions(agent_state={"step": 2})},
    "end of agent": {"author": "a", "actions": EventActions(end_of_agent=True)},
    "rewind": {"author": "a", "actions": EventActions(rewind_before_invocation_id="first")},
    "another rewind": {"author": "a", "actions": EventActions(rewind_before_invocation_id="second")},
    "error": {"author": "a", "error_code": "E", "error_message": "it failed"},
    "another error": {"author": "a", "error_code": "E", "error_message": "it failed again"},
    "state": {"author": "a", "actions": EventActions(state_delta={"n": 1})},
    "another state": {"author": "a", "actions": EventActions(state_delta={"n": 2})},
    "state of another author": {"author": "b", "actions": EventActions(state_delta={"n": 1})},
    "state of another invocation": {"author": "a", "actions": EventActions(state_delta={"n": 1}), "invocation_id": "x"},
    "state of another branch": {"author": "a", "actions": EventActions(state_delta={"n": 1}), "branch": "b"},
    "state with an end": {"author": "a", "actions": EventActions(state_delta={"n": 1}, end_of_agent=True)},
    "temporary state": {"author": "a", "actions": EventActions(state_delta={"temp:n": 1})},
}


def entry(what: str, event_id: str = "same") -> NewEvent:
    fields: dict[str, Any] = {"invocation_id": "first"} | EVENTS[what]
    return event_to_entry(Event(id=event_id, timestamp=time.time(), **fields))


@pytest.fixture
async def session(store: Store) -> SessionInfo:
    return await store.write(create_session, NAME, None, time.time())


@pytest.mark.parametrize("forked", [False, True])
async def test_an_event_id_is_unique_for_all_kinds_of_events(store: Store, *, forked: bool) -> None:
    """Append each kind of event, then every other kind with its id: nothing is written, and each is refused."""
    for number, first in enumerate(EVENTS):
        made = await store.write(create_session, SessionId("app", "alice", f"s{number}"), None, time.time())
        await store.append(made.key, made.name, 0, entry("text", "before"))
        appended = await store.append(made.key, made.name, 1, entry(first))
        if forked:
            fork = SessionId("app", "alice", f"f{number}")
            made = await store.write(forks.fork_session, made.name, fork, None, None, 0.0)
        seen = await store.read(find_session, made.name)
        assert seen
        places = ((seen.revision, seen.last_seq), (seen.revision, None), (1, None))
        for revision, last_seq in places:
            repeated = await store.append(made.key, made.name, revision, entry(first), last_seq=last_seq)
            assert (repeated.seq, repeated.repeated) == (appended.seq, True), first
        for index, other in enumerate(EVENTS):
            if other == first:
                continue
            revision, last_seq = places[(number + index) % len(places)]  # each kind from each place, after some event
            again = store.append(made.key, made.name, revision, entry(other), last_seq=last_seq)
            with pytest.raises(EventConflict, match="already has another event with the id 'same'"):
                await again
        assert await store.read(find_session, made.name) == seen, first


async def test_a_retry_in_another_process_is_recognised_and_another_event_refused(
    store: Store, session: SessionInfo, store_url: str
) -> None:
    for number, (first, other) in enumerate(itertools.pairwise(EVENTS)):
        stored = await store.append(session.key, NAME, number, entry(first, first))
        async with Store(store_url) as elsewhere:
            again = await elsewhere.append(session.key, NAME, number, entry(first, first))
            assert again == AppendResult(stored.seq, number + 1, repeated=True)
            with pytest.raises(EventConflict):
                await elsewhere.append(session.key, NAME, number, entry(other, first))


@pytest.mark.parametrize("forked", [False, True])
async def test_an_input_starts_one_turn(store: Store, session: SessionInfo, *, forked: bool) -> None:
    hello = NewEvent("one", time.time(), Message("user", "hi", author="user"))
    turn = await store.submit_turn(session, hello, "me")
    await store.end_turn(NAME, turn, "done")
    name = SessionId("app", "alice", "fork") if forked else NAME
    made = await store.write(forks.fork_session, NAME, name, None, None, 0.0) if forked else session
    seen = await store.read(find_session, name)
    for again in (hello, NewEvent("one", time.time(), Message("user", "ho", author="user"))):
        with pytest.raises(EventConflict, match="'one'"):
            await store.submit_turn(made, again, "me")
    assert await store.read(find_session, name) == seen, "nothing is written"
    next_ = await store.submit_turn(made, NewEvent("two", time.time(), Message("user", "hi", author="user")), "me")
    assert next_.status == "running"


async def test_adk_gets_an_error_for_an_id_of_another_event(store: Store) -> None:
    service = SqlSessionService("", store=store)
    adk = await service.create_session(app_name="app", user_id="alice", session_id="s")
    await service.append_event(adk, Event(id="same", author="a", actions=EventActions(state_delta={"n": 1})))
    with pytest.raises(EventConflict):
        await service.append_event(adk, Event(id="same", author="a", error_code="E"))
    again = await service.get_session(app_name="app", user_id="alice", session_id="s")
    assert again
    assert [event.id for event in again.events] == ["same"]


async def test_an_export_with_a_repeated_id_is_refused(store: Store, session: SessionInfo) -> None:
    await store.append(session.key, NAME, 0, NewEvent("one", time.time(), Message("user", "hi", author="user")))
    await store.append(session.key, NAME, 1, entry("state", "two"))
    sessions = Sessions(store, "app")
    lines = [line async for line in sessions.export_lines("s", user_id="alice")]
    twice = [line.replace('"two"', '"one"') for line in lines]
    assert twice != lines
    with pytest.raises(InvalidExport, match="duplicate event 'one'"):
        await sessions.import_lines(twice, user_id="bob")
