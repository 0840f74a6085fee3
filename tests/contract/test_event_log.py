"""The event log of turns: in order, once, and with one final event."""

import json
import time
from typing import Any

import pytest

from lango.errors import EventsGone, FencedWrite
from lango.events import IDS_PER_TURN, TextDelta, TextEnd, TextWithdrawn, ToolStart, TurnDone, Usage, turn_of_event
from lango.events.text import StreamedText
from lango.messages import Message
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, OpenTurn, Store, Turn
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import create_session, find_session, list_session_page
from lango.store.sessions.window import read_message_page
from lango.store.turns.event_log import (
    KEPT_TURNS,
    PAGE,
    EventBatch,
    LoggedEvent,
    append_log_batches,
    append_log_events,
    has_joined_texts,
    read_event_log,
)
from lango.store.turns.queue import find_newest_turn, find_next_turn
from lango.store.turns.turns import TurnResult, read_turn

NAME = SessionId("app", "alice", "s1")


def log_event(number: int, text: str = "x", *, turn: int = 1, final: bool = False) -> LoggedEvent:
    id_ = turn * IDS_PER_TURN + number
    return LoggedEvent.of(TurnDone(id_, turn) if final else TextDelta(id_, text))


async def running(store: Store, name: SessionId = NAME) -> tuple[SessionInfo, Turn]:
    session = await store.read(find_session, name) or await store.write(create_session, name, None, time.time())
    entry = NewEvent(f"e{time.monotonic_ns()}", time.time(), Message("user", "hi"), invocation_id="inv")
    return session, await store.submit_turn(session, entry, "owner")


async def answer(
    store: Store, session: SessionInfo, turn: Turn, text: str, *, id_: str = "answer", ends_turn: bool = False
) -> None:
    now = await store.read(find_session, session.name)
    assert now
    entry = NewEvent(id_, time.time(), Message("assistant", text), invocation_id="inv")
    await store.append(session.key, session.name, now.revision, entry, epoch=turn.epoch, ends_turn=ends_turn)


async def test_events_are_read_after_any_id_in_order(store: Store) -> None:
    session, turn = await running(store)
    assert await store.write(append_log_events, session.key, 1, [log_event(4)])
    assert await store.write(append_log_events, session.key, 1, [log_event(7), log_event(8, final=True)])
    everything = await store.read(read_event_log, session.key, 1)
    assert [one.id - IDS_PER_TURN for one in everything.events] == [1, 4, 7, 8]
    assert [one.final for one in everything.events] == [False, False, False, True]
    assert everything.turn
    assert everything.turn.status == "running"
    for after, ids in [(0, [1, 4, 7, 8]), (1, [4, 7, 8]), (4, [7, 8]), (8, []), (99, [])]:
        part = await store.read(read_event_log, session.key, 1, IDS_PER_TURN + after)
        assert [one.id - IDS_PER_TURN for one in part.events] == ids
    with pytest.raises(EventsGone):
        await store.read(read_event_log, session.key, 1, IDS_PER_TURN + 5)
    assert turn_of_event(everything.events[-1].id) == turn.turn


async def test_a_repeated_write_changes_nothing_and_a_closed_log_refuses_events(store: Store) -> None:
    session, _ = await running(store)
    assert await store.write(append_log_events, session.key, 1, [log_event(2), log_event(3)])
    assert await store.write(
        append_log_events, session.key, 1, [log_event(2, "other"), log_event(3, "other"), log_event(4, final=True)]
    )
    assert not await store.write(append_log_events, session.key, 1, [log_event(5)])
    events = (await store.read(read_event_log, session.key, 1)).events
    assert events[1:] == [log_event(2), log_event(3), log_event(4, final=True)]


async def test_events_of_many_turns_in_one_write_are_stored_as_in_many(store: Store) -> None:
    names = ("goes on", "begins", "is closed", "is repeated", "ends", "is gone")
    keys = {name: (await running(store, SessionId("app", "alice", name)))[0].key for name in names}
    for name in set(names) - {"begins"}:
        await store.write(append_log_events, keys[name], 1, [log_event(2, "two", final=name == "is closed")])
    await store.delete_session(SessionId("app", "alice", "is gone"))
    given = {
        "goes on": [log_event(3, 'NUL \0, "quotes", \u2028 and 中'), log_event(5)],
        "begins": [log_event(2)],
        "is closed": [log_event(3)],
        "is repeated": [log_event(2, "other"), log_event(3)],
        "ends": [log_event(3), log_event(4, final=True)],
        "is gone": [log_event(3)],
    }
    stored = await store.write(
        append_log_batches, [EventBatch(keys[name], 1, events) for name, events in given.items()], store.dialect
    )
    assert dict(zip(given, stored, strict=True)) == dict.fromkeys(given, True) | {"is closed": False, "is gone": False}
    numbers = {
        name: [one.id - IDS_PER_TURN for one in (await store.read(read_event_log, key, 1)).events]
        for name, key in keys.items()
    }
    assert numbers == {
        "goes on": [1, 2, 3, 5],
        "begins": [1, 2],
        "is closed": [1, 2],
        "is repeated": [1, 2, 3],
        "ends": [1, 2, 3, 4],
        "is gone": [],
    }
    assert (await store.read(read_event_log, keys["goes on"], 1)).events[2:] == given["goes on"]
    repeated = (await store.read(read_event_log, keys["is repeated"], 1)).events
    assert [json.loads(one.data)["text"] for one in repeated[1:]] == ["two", "x"]
    assert (await store.read(read_event_log, keys["ends"], 1)).closed


async def test_events_of_running_turns_are_stored_by_one_statement(store: Store) -> None:
    batches: list[EventBatch] = []
    for number in range(20):
        session, _ = await running(store, SessionId("app", "alice", f"s{number}"))
        batches.append(EventBatch(session.key, 1, [log_event(2), log_event(3)]))
    statements: list[str] = []

    def counted() -> Operation[list[bool]]:
        operation = append_log_batches(batches, "sqlite" if is_sqlite(store) else "postgres")
        statement = next(operation)
        try:
            while True:
                statements.append(statement[0])
                statement = operation.send((yield statement))
        except StopIteration as end:
            return end.value

    assert all(await store.write(counted))
    assert len(statements) == (1 if is_sqlite(store) else 2), "PostgreSQL locks the turns first, all at once"


def is_sqlite(store: Store) -> bool:
    return store.dialect == "sqlite"


async def test_a_long_turn_is_read_in_pages(store: Store) -> None:
    session, _ = await running(store)
    await store.write(append_log_events, session.key, 1, [log_event(number) for number in range(2, PAGE + 11)])
    first = (await store.read(read_event_log, session.key, 1)).events
    rest = (await store.read(read_event_log, session.key, 1, first[-1].id)).events
    assert (len(first), len(rest)) == (PAGE, 10)


@pytest.mark.parametrize("already", ["", "Hello ", "Hello world", "something else"])
async def test_an_end_without_events_closes_the_log_from_stored_messages(store: Store, already: str) -> None:
    """The process died after it stored the answer and before it logged the events."""
    session, turn = await running(store)
    if already:
        await store.write(append_log_events, session.key, 1, [log_event(2, already)])
    await answer(store, session, turn, "Hello world")
    used = TurnResult(usage=Usage(3, 2), invocations=["inv"])
    assert await store.end_turn(session.name, turn, "done", used)
    assert not await store.end_turn(session.name, turn, "done", used)
    page = await store.read(read_event_log, session.key, 1)
    events = [json.loads(one.data) for one in page.events]
    text = "".join(event.get("text", "") for event in events)
    assert page.closed
    assert text == ("Hello world" if "Hello world".startswith(already) else already)
    assert [event["type"] for event in events].count("done") == 1
    assert events[-1]["usage"]["input_tokens"] == 3
    assert [event["id"] for event in events] == sorted({event["id"] for event in events})


async def test_events_of_a_newer_version_are_left_out_and_their_ids_are_not_used_again(store: Store) -> None:
    session, turn = await running(store)
    first = turn.turn * IDS_PER_TURN
    unknown = [(session.key, first + 2 + n, 1, "added_later", '{"type": "added_later"}', 0) for n in range(PAGE + 5)]
    await store.write(insert_events, unknown)
    await store.write(append_log_events, session.key, 1, [log_event(PAGE + 10)])
    page = await store.read(read_event_log, session.key, 1)
    assert [one.id for one in page.events] == [first + 1]
    rest = await store.read(read_event_log, session.key, 1, page.last_id)
    assert ([one.id for one in rest.events], rest.closed) == ([first + PAGE + 10], False)
    await store.write(insert_events, [(session.key, first + PAGE + 20, 1, "added_later", "{}", 0)])
    await answer(store, session, turn, "Hello world")
    assert await store.end_turn(session.name, turn, "done")
    rest = await store.read(read_event_log, session.key, 1, page.last_id)
    assert [one.id - first - PAGE for one in rest.events] == [10, 21]
    assert rest.closed


def insert_events(rows: list[tuple[Any, ...]]) -> Operation[None]:
    for row in rows:
        yield "INSERT INTO event_log (session_key, id, turn, type, data, final) VALUES ($1, $2, $3, $4, $5, $6)", row


async def test_the_end_of_a_turn_stores_its_last_events(store: Store) -> None:
    session, turn = await running(store)
    assert await store.end_turn(session.name, turn, "done", None, [log_event(2), log_event(3, final=True)])
    page = await store.read(read_event_log, session.key, 1)
    assert ([one.id - IDS_PER_TURN for one in page.events], page.closed) == ([1, 2, 3], True)
    _, other = await running(store)
    assert not await store.end_turn(session.name, turn, "done", None, [log_event(4)]), "it ended before"
    assert [one.event.type for one in (await store.read(read_event_log, session.key, other.turn)).events] == [
        "accepted"
    ]


async def test_an_interrupted_turn_ends_with_an_error(store: Store) -> None:
    session, turn = await running(store)
    await store.write(append_log_events, session.key, 1, [log_event(2, "half an ans")])
    assert await store.interrupt_turn(session, OpenTurn(turn.turn, "running", "owner", 0))
    *_, last = (await store.read(read_event_log, session.key, 1)).events
    assert last.final
    assert json.loads(last.data)["fatal"] is True
    assert not await store.write(append_log_events, session.key, 1, [log_event(9, "the zombie speaks")])


async def test_a_withdrawn_turn_ends_with_an_error(store: Store) -> None:
    session, _ = await running(store)
    _, queued = await running(store)
    assert await store.withdraw_turn(queued)
    page = await store.read(read_event_log, session.key, queued.turn)
    assert [one.event.type for one in page.events] == ["accepted", "turn_error"]
    assert json.loads(page.events[-1].data)["error"] == "TurnCancelled"
    assert page.closed


async def test_a_turn_of_a_dead_process_is_done_if_its_answer_is_stored(store: Store) -> None:
    session, turn = await running(store)
    await answer(store, session, turn, "a step")
    await answer(store, session, turn, "the end", id_="end", ends_turn=True)
    assert await store.interrupt_turn(session, OpenTurn(turn.turn, "running", "owner", 0))
    *_, last = (await store.read(read_event_log, session.key, 1)).events
    assert (last.final, last.event.type) == (True, "done")
    assert not await store.end_turn(session.name, turn, "failed"), "its owner, taken for dead, does not change it"
    record = await store.read(read_turn, turn.session_key, turn.turn)
    assert record
    assert record.status == "done"


async def test_an_answer_marks_only_its_own_turn_and_only_while_it_runs(store: Store) -> None:
    session, late = await running(store)
    assert await store.interrupt_turn(session, OpenTurn(late.turn, "running", "owner", 0))
    with pytest.raises(FencedWrite):
        await answer(store, session, late, "too late", ends_turn=True)
    _, newer = await running(store)
    with pytest.raises(FencedWrite):
        await answer(store, session, late, "much too late", id_="later", ends_turn=True)
    assert await store.interrupt_turn(session, OpenTurn(newer.turn, "running", "owner", 0))
    records = [await store.read(read_turn, one.session_key, one.turn) for one in (late, newer)]
    assert [record and record.status for record in records] == ["interrupted", "interrupted"]


async def over(store: Store, session: SessionInfo, turn: Turn, text: str) -> None:
    """Answer a turn and end it, with its text in two pieces."""
    await answer(store, session, turn, text, id_=f"answer {turn.turn}")
    events = [
        log_event(2, text[:3], turn=turn.turn),
        log_event(3, text[3:], turn=turn.turn),
        log_event(4, turn=turn.turn, final=True),
    ]
    assert await store.end_turn(session.name, turn, "done", TurnResult(usage=Usage(3, 2)), events)


async def test_older_turns_keep_their_events_with_whole_texts(store: Store, store_url: str) -> None:
    session, first = await running(store)
    await over(store, session, first, "answer 1")
    for number in range(2, KEPT_TURNS + 2):
        _, turn = await running(store)
        await over(store, session, turn, f"answer {number}")
    logged = (await store.read(read_event_log, session.key, 2)).events
    assert [one.id % IDS_PER_TURN for one in logged] == [1, 2, 3, 4], "it keeps its pieces"
    assert not await store.read(has_joined_texts, session.key, 2)
    assert await store.read(has_joined_texts, session.key, 1)
    with pytest.raises(EventsGone, match="no longer kept: read the messages of the session"):
        await store.read(read_event_log, session.key, 1, IDS_PER_TURN + 2)
    whole = await store.read(read_event_log, session.key, 1)
    assert whole.closed, "no reader waits for more"
    assert [(one.id % IDS_PER_TURN, one.event.type) for one in whole.events] == [
        (1, "accepted"),
        (3, "text_delta"),
        (4, "done"),
    ]
    assert json.loads(whole.events[1].data)["text"] == "answer 1"
    async with Store(store_url) as elsewhere:
        for at, one in enumerate(whole.events):
            rest = await elsewhere.read(read_event_log, session.key, 1, one.id)
            assert (rest.events, rest.closed) == (whole.events[at + 1 :], True), "the same ids in every process"
    assert await store.read(find_next_turn, session, 0) == 1


async def test_withdrawn_text_is_no_part_of_a_whole_text(store: Store) -> None:
    session, turn = await running(store)
    first = IDS_PER_TURN
    events = [
        TextDelta(first + 2, "kept ", block=1),
        TextDelta(first + 3, "half an", block=2),
        TextWithdrawn(first + 4, 2),
        ToolStart(first + 5, "c1", "note"),
        TextDelta(first + 6, "the ", block=3),
        TextDelta(first + 7, "end", block=3),
        TurnDone(first + 8, 1),
    ]
    await store.end_turn(session.name, turn, "done", None, [LoggedEvent.of(event) for event in events])
    for _ in range(KEPT_TURNS):
        _, turn = await running(store)
        await over(store, session, turn, "answer")
    page = await store.read(read_event_log, session.key, 1)
    whole = TextDelta(first + 7, "the end", block=3)
    assert [one.event for one in page.events[1:]] == [events[0], events[3], whole, events[-1]]


async def test_texts_that_alternate_are_joined_and_followed_from_the_beginning_only(store: Store) -> None:
    session, turn = await running(store)
    first = IDS_PER_TURN
    events = [
        TextDelta(first + 2, "I am ", "anna", 1),
        TextDelta(first + 3, "And I ", "ben", 2),
        TextDelta(first + 4, "Anna.", "anna", 1),
        TextEnd(first + 5, 1, "anna"),
        ToolStart(first + 6, "c1", "note"),
        TextDelta(first + 7, "am Ben.", "ben", 2),
        TextEnd(first + 8, 2, "ben"),
        TurnDone(first + 9, 1),
    ]
    await store.end_turn(session.name, turn, "done", None, [LoggedEvent.of(event) for event in events])
    pieces = (await store.read(read_event_log, session.key, 1, first + 5)).events
    assert [one.event for one in pieces] == events[4:], "a new log is followed from any place"
    for _ in range(KEPT_TURNS):
        _, turn = await running(store)
        await over(store, session, turn, "answer")
    page = await store.read(read_event_log, session.key, 1)
    of_anna = TextDelta(first + 4, "I am Anna.", "anna", 1)
    assert [one.event for one in page.events[1:]] == [events[1], of_anna, *events[3:]], "not across a call"
    for place in (3, 4, 5, 6, 8):
        with pytest.raises(EventsGone):
            await store.read(read_event_log, session.key, 1, first + place)
    for place, left in ((1, page.events[1:]), (9, [])):
        assert (await store.read(read_event_log, session.key, 1, first + place)).events == left


async def test_an_end_without_events_completes_the_text_of_each_parallel_agent(store: Store) -> None:
    session, turn = await running(store)
    first = IDS_PER_TURN
    logged = [
        TextDelta(first + 2, "I am ", "anna", 1),
        TextDelta(first + 3, "And I ", "ben", 2),
        TextDelta(first + 4, "Anna.", "anna", 1),
        TextEnd(first + 5, 1, "anna"),
    ]
    await store.write(append_log_events, session.key, 1, [LoggedEvent.of(event) for event in logged])
    said = [("ben", "And I am Ben."), ("anna", "I am Anna."), ("critic", "Both are right.")]
    for number, (author, text) in enumerate(said, 1):
        entry = NewEvent(f"a{number}", time.time(), Message("assistant", text, author=author), invocation_id="inv")
        await store.append(session.key, session.name, number, entry, epoch=turn.epoch)
    assert await store.end_turn(session.name, turn, "done")
    events = [one.event for one in (await store.read(read_event_log, session.key, 1)).events]
    assert StreamedText(events).by_author == [said[1], said[0], said[2]]
    assert [event.block for event in events if isinstance(event, TextEnd)] == [1, 2, 3]


async def test_a_running_turn_keeps_its_pieces_however_many_turns_are_queued(store: Store) -> None:
    session, turn = await running(store)
    assert await store.write(append_log_events, session.key, 1, [log_event(2), log_event(3)])
    for number in range(2, KEPT_TURNS + 10):
        _, queued = await running(store)
        assert (queued.turn, queued.status) == (number, "queued")
        assert await store.withdraw_turn(queued)
    assert await store.write(append_log_events, session.key, 1, [log_event(4)])
    assert [one.id for one in (await store.read(read_event_log, session.key, 1)).events] == [
        IDS_PER_TURN + n for n in (1, 2, 3, 4)
    ]
    assert turn.turn == 1


async def test_events_are_deleted_with_their_session(store: Store) -> None:
    session, _ = await running(store)
    assert await store.read(find_newest_turn, session) == 1
    assert await store.read(find_next_turn, session, 0) == 1
    assert await store.read(find_next_turn, session, 1) is None
    await store.delete_session(session.name)
    assert (await store.read(read_event_log, session.key, 1)).events == []
    assert not await store.write(append_log_events, session.key, 1, [log_event(2)]), (
        "nothing for a session that is gone"
    )


async def test_sessions_are_listed_in_pages(store: Store) -> None:
    for number in range(7):
        await store.write(create_session, SessionId("app", "alice", f"s{number}"), None, 100.0 + number // 2)
    await store.write(create_session, SessionId("app", "bob", "theirs"), None, time.time())
    seen: list[str] = []
    after = None
    while page := await store.read(list_session_page, "app", "alice", after=after, limit=2):
        seen += [record.name.id for record in page]
        after = page[-1].updated_at, page[-1].key
    assert sorted(seen) == [f"s{number}" for number in range(7)]
    assert seen[0] == "s6"
    assert seen[-1] in ("s0", "s1")


async def test_messages_are_read_in_pages_without_rewound_ones(store: Store) -> None:
    session = await store.write(create_session, NAME, None, time.time())
    for number in range(1, 8):
        entry = NewEvent(f"e{number}", time.time(), Message("user", str(number)), invocation_id=f"i{number}")
        await store.append(session.key, NAME, number - 1, entry)
    rewind = NewEvent("e8", time.time(), Message("event"), rewind_before="i5")
    await store.append(session.key, NAME, 7, rewind)
    again = await store.read(find_session, NAME)
    assert again
    newest = await store.read(read_message_page, again, limit=3)
    assert [one.message.content for one in newest if one.message] == ["2", "3", "4"]
    rest = await store.read(read_message_page, again, before=newest[0].seq, limit=3)
    assert [one.message.content for one in rest if one.message] == ["1"]
