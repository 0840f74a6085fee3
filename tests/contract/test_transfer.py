"""Export and import: nothing is lost, a second export has the same bytes, and an invalid file writes nothing."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.genai import types
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from lango.adk import SqlArtifactService, SqlSessionService
from lango.errors import IdempotencyKeyReused, InvalidExport, SessionExists, SessionNotFound, StoreDamaged
from lango.events import Usage
from lango.history import count_tokens
from lango.messages import Message
from lango.runtime.sessions.session_transfer import import_session
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, Store
from lango.store.engine.database import Operation
from lango.store.memory.observations import Priority
from lango.store.sessions.sessions import create_session, find_session, list_session_page, list_sessions
from lango.store.sessions.state import read_state_at
from lango.store.tool_calls.tool_journal import (
    read_full_result,
    record_intent,
    record_result,
    record_start,
    store_full_result,
)
from lango.store.transfer import export_format
from lango.store.transfer.export import PAGE
from lango.store.transfer.import_check import check_lines
from lango.store.transfer.import_write import insert_batch, row_batches, stage_session
from lango.store.turns.submit import SubmitOptions
from lango.store.turns.turns import TurnResult
from lango.store.waits import recovery
from lango.turns.liveness import Owner
from tests.contract.test_fork_and_rewind import events, left, rows, window
from tests.contract.test_store import Writer as WriterOfAnyTokens
from tests.contract.test_store import user_message as message_of_any_tokens
from tests.frozen.make import events as frozen_events
from tests.support import strategies
from tests.support.examples import examples

NAME = SessionId("app", "alice", "s")
_MANY = 3_000


class Writer(WriterOfAnyTokens):
    """Appends messages with the tokens that they have: an import counts them."""

    async def add(self, message: Message | None, tokens: int = 0, **fields: Any) -> int:
        return await super().add(message, count_tokens(message) if message else 0, **fields)


def following(store: Store, record: SessionInfo) -> Writer:
    after = Writer(store, record)
    after.count = 1_000 * (record.key % 1_000_003)  # ids that no other session has
    return after


def user_message(text: str) -> NewEvent:
    entry = message_of_any_tokens(text)
    assert entry.message
    return replace(entry, tokens=count_tokens(entry.message))


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store, "app")


@pytest.fixture
def other_url(request: pytest.FixtureRequest, store_url: str) -> str:
    """A database of the other kind."""
    return request.getfixturevalue("postgres_url" if store_url.startswith("sqlite") else "sqlite_url")


async def exported(sessions: Sessions, id_: str = "s") -> list[str]:
    return [line async for line in sessions.export_lines(id_, user_id="alice")]


def kinds(lines: list[str]) -> list[str]:
    return [json.loads(line)["kind"] for line in lines]


async def everything(store: Store, sessions: Sessions) -> None:
    """A session with messages, state, turns, journal entries, a rewind, a title, and odd values."""
    service = SqlSessionService("", store=store)
    odd = {"nul": "a\0b", "half": "\ud800", "nan": float("nan"), "bytes": b"\xff\0", "tag": {"$lango:bytes": 1}}
    session = await service.create_session(app_name="app", user_id="alice", session_id="s", state=odd)
    for event in frozen_events():
        await service.append_event(session, event)
    changed = Event(author="a", actions=EventActions(state_delta={"user:u": 1, "app:a": 2, "n": float("inf")}))
    await service.append_event(session, changed)
    await with_files(store, service, session)
    record = await store.read(find_session, NAME)
    assert record
    turn = await store.submit_turn(record, user_message("1"), Owner().name, SubmitOptions(idempotency_key="once"))
    writer = following(store, record)
    writer.revision = record.revision + 1
    await writer.call("long", invocation_id="i-1")
    await store.write(record_intent, turn, "long", "f", "once", "hash", time.time())
    await store.write(record_start, turn, "long", time.time())
    await store.write(store_full_result, turn, "long", "all of it\n" * 1_000)
    await store.write(record_result, turn, "long", {"a": "part of it"}, time.time())
    await writer.answer("long", invocation_id="i-1")
    await store.end_turn(NAME, turn, "done", TurnResult(usage=Usage(3, 4)))
    await store.write(observed, record.key)
    await sessions.rewind("s", before=5, user_id="alice")
    await sessions.rename("s", "Everything — 漢字", user_id="alice")


REFERENCE = "artifact://apps/app/users/alice/artifacts/user:picture/versions/0"
FILES = [bytes(range(256)) * 2_000, b"small, but not so small" * 100]


async def with_files(store: Store, service: SqlSessionService, session: Session) -> None:
    """Messages with files, one of them in the result of a tool, and artifacts of the session."""
    blob = types.Blob(mime_type="image/png", data=FILES[0], display_name="a.png")
    content = types.Content(role="user", parts=[types.Part(text="look"), types.Part(inline_data=blob)])
    await service.append_event(session, Event(author="user", content=content, invocation_id="i-f"))
    call = types.Part(function_call=types.FunctionCall(id="c-f", name="draw", args={}))
    await service.append_event(session, Event(author="a", content=types.Content(role="model", parts=[call])))
    picture = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(mime_type="image/png", data=FILES[1]))
    result = types.FunctionResponse(id="c-f", name="draw", response={"ok": True}, parts=[picture])
    answer = types.Content(role="user", parts=[types.Part(function_response=result)])
    await service.append_event(session, Event(author="a", content=answer))
    artifacts = SqlArtifactService("", store=store)
    where: Any = {"app_name": "app", "user_id": "alice", "session_id": "s"}
    for part in (
        types.Part(inline_data=blob, thought_signature=b"\xff"),
        types.Part(text="half \ud800"),
        types.Part(inline_data=types.Blob(mime_type="text/plain", data=b"")),
        types.Part(file_data=types.FileData(file_uri=REFERENCE)),
    ):
        await artifacts.save_artifact(**where, filename="a/b", artifact=part, custom_metadata={"nan": float("nan")})


def observed(key: int) -> Operation[None]:
    batch = "session_key, batch, generation, first_seq, last_seq, floor_seq, sources, model, created_at"
    yield f"INSERT INTO observation_batches ({batch}) VALUES ({key}, 1, 0, 1, 2, 1, NULL, 'm', 1.5)", ()
    yield f"INSERT INTO observation_batches ({batch}) VALUES ({key}, 2, 1, 1, 3, 1, '[1]', '', 2.5)", ()
    note = "session_key, batch, number, first_seq, last_seq, priority, day, text"
    for number, priority in enumerate(get_args(Priority), 1):
        yield (
            f"INSERT INTO observations ({note}) VALUES ({key}, 2, {number}, 1, 3, '{priority}', '2026-01-01', 'é')",
            (),
        )


async def test_export_import_export_gives_the_same_bytes(store: Store, sessions: Sessions, other_url: str) -> None:
    await everything(store, sessions)
    lines = await exported(sessions)
    assert set(kinds(lines)) == set(export_format.KINDS)
    async with Store(other_url) as other:
        there = Sessions(other, "app")
        made = await there.import_lines(lines, user_id="alice")
        assert await exported(there) == lines, "in a database of the other kind"
        before = await store.read(find_session, NAME)
        assert before
        own = {name: value for name, value in before.state.items() if not name.startswith(("user:", "app:"))}
        assert repr(made.state) == repr(own), "the state of users and apps is not a session's to bring"
        assert (made.rewinds, made.last_seq, made.total_tokens, made.user_seq) == (
            (before.rewinds, before.last_seq, before.total_tokens, before.user_seq)
        )
        assert await other.read(read_full_result, made.key, "long", 0, 9) == "all of it"
        assert await window(other, "s") == await window(store, "s")
        assert repr(await events(other, "s")) == repr(await events(store, "s"))
        turn = await other.submit_turn(made, user_message("2"), "me")
        assert (turn.turn, turn.epoch) == (2, 2), "and it goes on"
        twice = await other.submit_turn(made, user_message("1"), "me", SubmitOptions(idempotency_key="once"))
        assert (twice.repeated, twice.turn) == (True, 1)
        with pytest.raises(IdempotencyKeyReused):
            await other.submit_turn(made, user_message("2"), "me", SubmitOptions(idempotency_key="once"))


async def test_a_fork_is_exported_whole(store: Store, sessions: Sessions) -> None:
    await everything(store, sessions)
    await sessions.fork("s", new_id="f", user_id="alice")
    made = await sessions.fork("f", new_id="g", user_id="alice")
    await following(store, made).talk(3)
    lines = await exported(sessions, "g")
    before = [repr(one) for one in await events(store, "g")]
    for id_ in ("s", "f", "g"):
        await sessions.delete(id_, user_id="alice")
    again = await sessions.import_lines(lines, user_id="alice")
    assert again.lineage == ()
    assert again.forked_from == made.forked_from
    assert [repr(one) for one in await events(store, "g")] == before
    assert await exported(sessions, "g") == lines
    assert await store.read(read_full_result, again.key, "long", 0, 9) == "all of it"
    await following(store, again).talk(1)
    await sessions.delete("g", user_id="alice")
    assert await left(store) == {}


async def test_an_import_may_change_user_app_and_id(store: Store, sessions: Sessions) -> None:
    await everything(store, sessions)
    lines = await exported(sessions)
    with pytest.raises(SessionExists):
        await sessions.import_lines(lines, user_id="alice")
    bobs = await Sessions(store, "other app").import_lines(lines, user_id="bob", session_id="mine")
    assert bobs.name == SessionId("other app", "bob", "mine")
    members = [line async for line in Sessions(store, "other app").export_lines("mine", user_id="bob")]
    assert members[2:] == lines[2:], "only the session's own line names them"
    with pytest.raises(SessionNotFound):
        await anext(sessions.export_lines("s", user_id="bob"))
    found = await sessions.search("naive", user_id="alice")
    assert {hit.session_id for hit in found} <= {"s"}


async def test_a_running_turn_is_not_exported_and_its_calls_are_closed_after_the_import(
    store: Store, sessions: Sessions
) -> None:
    record = await store.write(create_session, NAME, None, time.time())
    turn = await store.submit_turn(record, user_message("1"), Owner().name)
    writer = following(store, record)
    writer.revision = 1
    await writer.call("known")
    await writer.call("unknown")
    for call_id in ("known", "unknown"):
        await store.write(record_intent, turn, call_id, "f", "once", "hash", time.time())
        await store.write(record_start, turn, call_id, time.time())
    await store.write(record_result, turn, "known", {"real": "result"}, time.time())
    lines = await exported(sessions)
    assert "turn" not in kinds(lines)
    made = await sessions.import_lines(lines, user_id="alice", session_id="copy")
    copied = await exported(sessions, "copy")
    assert copied[2:] == lines[2:]
    await store.submit_turn(made, user_message("2"), "me")
    outputs = {
        call.id: dict(call.output)
        for one in await events(store, "copy")
        if one.message
        for call in one.message.tool_calls
        if call.output
    }
    assert outputs["known"] == {"real": "result"}
    assert outputs["unknown"]["error"] == recovery.UNKNOWN_RESULT


async def test_an_export_of_many_pages(store: Store, sessions: Sessions) -> None:
    writer = Writer(store, await store.write(create_session, NAME, {"n": 0}, time.time()))
    for number in range(PAGE + 7):
        await writer.add(Message("user", f"m{number}"), state_delta={"n": number} if number % 3 == 0 else None)
        if number % 5 == 0:
            await writer.add(None, state_delta={"k": number})
    lines = await exported(sessions)
    made = await sessions.import_lines(lines, user_id="alice", session_id="copy")
    assert (await exported(sessions, "copy"))[2:] == lines[2:]
    for seq in (0, 1, 20, PAGE, PAGE + 7):
        assert await store.read(read_state_at, made.key, seq) == await store.read(
            read_state_at, writer.session.key, seq
        )


async def test_an_export_is_a_snapshot(store: Store, sessions: Sessions) -> None:
    writer = Writer(store, await store.write(create_session, NAME, None, time.time()))
    await writer.talk(2 * PAGE)
    lines: list[str] = []
    async for line in sessions.export_lines("s", user_id="alice"):
        if len(lines) == 10:
            await writer.talk(5)
            await writer.add(None, state_delta={"late": 1})
        lines.append(line)
    assert kinds(lines).count("message") == 2 * PAGE
    assert "state" not in kinds(lines)
    assert check_lines(lines).last_seq == 2 * PAGE


async def test_an_export_of_a_session_that_is_deleted_meanwhile_fails(store: Store, sessions: Sessions) -> None:
    writer = Writer(store, await store.write(create_session, NAME, None, time.time()))
    await writer.talk(3 * PAGE)
    lines: list[str] = []

    async def read() -> None:
        async for line in sessions.export_lines("s", user_id="alice"):
            if len(lines) == 5:
                await sessions.delete("s", user_id="alice")
            lines.append(line)

    with pytest.raises(SessionNotFound):
        await read()
    with pytest.raises(InvalidExport, match="cut off"):
        check_lines(lines)


# -- invalid files -------------------------------------------------------------------------------------------------


def changed(lines: list[str], place: int, /, **values: Any) -> list[str]:
    members = json.loads(lines[place]) | values
    return [
        *lines[:place],
        json.dumps({k: v for k, v in members.items() if v is not ...}) + "\n",
        *(lines[place + 1 :] if place >= 0 else []),
    ]


async def small(store: Store, sessions: Sessions) -> list[str]:
    writer = Writer(store, await store.write(create_session, NAME, {"n": 0}, time.time()))
    await writer.talk(1)
    await writer.call("c")
    await writer.answer("c")
    await writer.add(None, state_delta={"n": 1})
    return await exported(sessions)  # header, session, state, 3 messages, state, end


WRONG: dict[str, Callable[[list[str]], list[Any]]] = {
    "nothing": lambda lines: [],
    "text": lambda lines: ["hello\n"],
    "an array": lambda lines: ["[]\n"],
    "bytes": lambda lines: [b"\xff\xfe\n"],
    "deep": lambda lines: ["[" * 100_000],
    "no header": lambda lines: lines[1:],
    "no session": lambda lines: [lines[0], *lines[2:]],
    "cut off": lambda lines: lines[:-1],
    "a line is missing": lambda lines: [*lines[:3], *lines[4:]],
    "two sessions": lambda lines: lines * 2,
    "another order": lambda lines: [lines[0], lines[1], lines[3], lines[2], *lines[4:]],
    "a newer format": lambda lines: changed(lines, 0, version=2),
    "another format": lambda lines: changed(lines, 0, format="zip"),
    "an unknown kind": lambda lines: changed(lines, 3, kind="future"),
    "an unknown member": lambda lines: changed(lines, 3, more=1),
    "a number that is none": lambda lines: changed(lines, 3, seq="1"),
    "a huge number": lambda lines: changed(lines, 3, tokens=2**70),
    "a wrong role": lambda lines: changed(lines, 3, role="root"),
    "NUL": lambda lines: changed(lines, 3, content="a\0b"),
    "lone surrogate": lambda lines: changed(lines, 3, content="\ud800"),
    "NaN": lambda lines: [*lines[:3], re.sub('"tokens":[0-9]+', '"tokens":NaN', lines[3]), *lines[4:]],
    "infinite time": lambda lines: [*lines[:3], lines[3].replace('"created_at":', '"created_at":1e999'), *lines[4:]],
    "infinite extra": lambda lines: [*lines[:3], lines[3].replace('"seq":', '"extra":{"x":1e999},"seq":'), *lines[4:]],
    "the same event twice": lambda lines: changed(lines, 4, event_id=json.loads(lines[3])["event_id"]),
    "a call after its result": lambda lines: changed(lines, 4, call_seq=9),
    "calls that are none": lambda lines: changed(lines, 4, tool_calls=[{"id": 1, "name": "f"}]),
    "calls of text": lambda lines: changed(lines, 4, tool_calls=["f"]),
    "actions that ADK cannot read": lambda lines: changed(lines, 3, extra={"actions": {"artifact_delta": 1}}),
    "parts that do not fit": lambda lines: changed(lines, 3, extra={"parts": [{"inline_data": "x"}]}),
    "bytes that are none": lambda lines: changed(lines, 3, extra={"custom_metadata": {"$lango:bytes": "!"}}),
    "a state that is none": lambda lines: changed(lines, 3, state_delta={"$lango:float": "nan"}),
    "a revision of the future": lambda lines: changed(lines, 6, revision=99),
    "an empty title": lambda lines: changed(lines, 1, title=" "),
    "a long title": lambda lines: changed(lines, 1, title="x" * 201),
    "a long id": lambda lines: changed(lines, 1, id="é" * 400),
    "a rewind to nowhere": lambda lines: changed(lines, 1, rewinds=[[9, 1]]),
    "a rewind of the future": lambda lines: changed(lines, 1, rewinds=[[1, 2]]),
    "a running turn": lambda lines: [
        *lines[:-1],
        json.dumps({"kind": "turn", "turn": 1, "status": "running", "created_at": 1.0}),
        lines[-1],
    ],
    "a turn of a later epoch": lambda lines: [
        *lines[:-1],
        json.dumps({"kind": "turn", "turn": 1, "status": "done", "epoch": 5, "created_at": 1.0}),
        lines[-1],
    ],
    "a wrong count": lambda lines: changed(lines, -1, lines=3),
}


async def test_an_invalid_export_is_refused_and_nothing_is_written(store: Store, sessions: Sessions) -> None:
    lines = await small(store, sessions)
    assert kinds(lines) == ["header", "session", "state", "message", "message", "message", "state", "end"]
    before = await left(store)
    for name, wrong in WRONG.items():
        with pytest.raises(InvalidExport) as caught:
            await sessions.import_lines(wrong(lines), user_id="alice", session_id="copy")
        assert "line" in str(caught.value), name
        assert "\0" not in str(caught.value)
    assert await left(store) == before
    with pytest.raises(InvalidExport, match=r"line 4 has a kind that this Lango does not know \(format 1\)"):
        await sessions.import_lines(changed(lines, 3, kind="future"), user_id="alice", session_id="copy")
    with pytest.raises(InvalidExport, match="line 1: a newer Lango wrote this"):
        await sessions.import_lines(changed(lines, 0, version=2), user_id="alice", session_id="copy")
    await sessions.import_lines(iter(lines), user_id="alice", session_id="copy")


async def many(store: Store, sessions: Sessions) -> list[str]:
    """The export of a session that is written in several batches."""
    lines = await small(store, sessions)
    first = json.loads(lines[3])
    more = [json.dumps(first | {"seq": seq, "event_id": f"e-{seq}"}) + "\n" for seq in range(4, _MANY + 1)]
    kept = [line for line in lines[:-1] if json.loads(line)["kind"] != "state" or line == lines[2]]
    end = json.dumps(json.loads(lines[-1]) | {"lines": len(kept) + len(more)}) + "\n"
    return [*kept, *more, end]


def counted() -> Operation[int]:
    [[count]] = yield "SELECT COUNT(*) FROM messages", ()
    return count


async def half_way(store: Store, importing: "asyncio.Task[Any]", before: int) -> bool:
    """Write beside an import until some of its rows are stored; False: it ended before."""
    while not importing.done():
        if before < await store.write(counted) < before + _MANY:
            return True
        await asyncio.sleep(0)  # a write may complete without waiting
    return False


async def test_attack_16_an_import_does_not_block_writers_and_is_visible_only_when_complete(
    store: Store, sessions: Sessions
) -> None:
    lines = await many(store, sessions)
    before = await store.write(counted)
    importing = asyncio.ensure_future(sessions.import_lines(lines, user_id="alice", session_id="copy"))
    assert await half_way(store, importing, before), "the import held the writer until it was done"
    assert await store.read(find_session, SessionId("app", "alice", "copy")) is None
    assert [one.name.id for one in await store.read(list_session_page, "app", "alice")] == ["s"]
    assert (await importing).last_seq == _MANY
    again = [json.loads(line) for line in await exported(sessions, "copy")]
    assert again[2:] == [json.loads(line) for line in lines][2:]


async def test_attack_16_an_import_that_is_stopped_leaves_nothing(store: Store, sessions: Sessions) -> None:
    lines = await many(store, sessions)
    before, rows_before = await store.write(counted), await left(store)
    importing = asyncio.ensure_future(sessions.import_lines(lines, user_id="alice", session_id="copy"))
    assert await half_way(store, importing, before)
    importing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await importing
    assert await left(store) == rows_before
    with pytest.raises(SessionExists):  # detected at the end, after all rows were written
        await sessions.import_lines(lines, user_id="alice", session_id="s")
    assert await left(store) == rows_before


async def test_attack_16_the_rows_of_a_killed_import_are_deleted_by_a_later_one(
    store: Store, sessions: Sessions
) -> None:
    lines = await small(store, sessions)
    before = await left(store)
    staged = await store.write(stage_session, 0.0)
    [batch] = row_batches(staged, check_lines(lines), lines)
    await store.write(insert_batch, staged, batch)
    assert await left(store) != before
    await sessions.import_lines(lines, user_id="alice", session_id="copy")
    await store.delete_session(SessionId("app", "alice", "copy"))
    assert await left(store) == before


async def test_lines_may_come_as_bytes_and_one_by_one(store: Store, sessions: Sessions) -> None:
    lines = await small(store, sessions)

    async def chunks() -> AsyncIterator[bytes]:
        whole = "".join(lines).encode()
        for start in range(0, len(whole), 7):
            yield whole[start : start + 7]

    await sessions.import_lines(chunks(), user_id="alice", session_id="a")
    await sessions.import_lines([line.encode() for line in lines] + [b"\n"], user_id="alice", session_id="b")
    assert (await import_session(store, lines, user_id="carol")).name == SessionId("app", "carol", "s")
    assert (await exported(sessions, "a"))[2:] == (await exported(sessions, "b"))[2:] == lines[2:]


async def test_json_of_another_encoder_is_exported_with_the_same_values(store: Store, sessions: Sessions) -> None:
    writer = Writer(store, await store.write(create_session, NAME, None, time.time()))
    await writer.talk(2)
    odd = """'{ "b" : 1,  "a" : [ 1.50 ] }'"""

    def rewrite() -> Operation[None]:
        yield f"UPDATE messages SET extra = {odd} WHERE seq = 1", ()

    await store.write(rewrite)
    lines = await exported(sessions)
    assert json.loads(lines[2])["extra"] == {"b": 1, "a": [1.5]}
    await sessions.import_lines(lines, user_id="alice", session_id="copy")
    texts = await rows(store, "SELECT extra FROM messages WHERE seq = 1")
    assert [json.loads(text) for [text] in texts] == [{"b": 1, "a": [1.5]}] * 2


async def test_a_session_with_damaged_json_is_not_exported(store: Store, sessions: Sessions) -> None:
    writer = Writer(store, await store.write(create_session, NAME, None, time.time()))
    await writer.talk(1)

    def set_extra(text: str | None) -> Operation[None]:
        yield "UPDATE messages SET extra = $1 WHERE seq = 1", (text,)

    await store.write(set_extra, "{")
    with pytest.raises(StoreDamaged, match="extra of a message"):
        await exported(sessions)
    await store.write(set_extra, None)


COLUMNS = {
    # of every table of a session: the columns that an export omits, and why
    "sessions": "last_seq user_seq total_tokens: counted again; session_key: ours; input_hash: made by the next turn",
    "messages": "total_tokens: counted again; session_key",
    "state_events": "session_key",
    "turns": (
        "owner cancel_requested queued_input answer_stored request quota_id credential_wait steers replaces: of turns "
        "that run; session_key"
    ),
    "tool_journal": "actions: of turns that run; grant_id: grants are not exported; session_key",
    "observation_batches": "session_key",
    "observations": "session_key",
    "artifacts": "app user session_id: those of the session; saved_by: of turns that run",
}


async def test_every_column_is_exported_or_left_out_on_purpose(sqlite_url: str) -> None:
    lines = {
        "sessions": export_format.SessionLine,
        "messages": export_format.MessageLine,
        "state_events": export_format.StateLine,
        "turns": export_format.TurnLine,
        "tool_journal": export_format.ToolJournalLine,
        "observation_batches": export_format.BatchLine,
        "observations": export_format.ObservationLine,
        "artifacts": export_format.ArtifactLine,
    }
    renamed = {"app_name": "app", "user_id": "user", "kind": "content"}
    async with Store(sqlite_url) as store:
        for table, model in lines.items():
            columns = {row[1] for row in await rows(store, f"PRAGMA table_info({table})")}
            left_out = set(COLUMNS[table].replace(":", " ").replace(";", " ").split())
            members = {renamed.get(column, column) for column in columns}
            assert members - left_out == set(model.model_fields) - {"kind"} - left_out, table


def _with_own_addresses(event: Event) -> Event:
    """Let files be artifacts: an import leaves other addresses out."""
    parts = (event.content and event.content.parts) or []
    files: list[Any] = [part.file_data for part in parts]
    files += [
        piece.file_data for part in parts if part.function_response for piece in part.function_response.parts or ()
    ]
    for file in files:
        if file is not None:
            file.file_uri = "artifact://a"
    return event


@given(st.lists(strategies.events, max_size=4))
@example([Event(author="a", timestamp=253_402_300_800.0)])  # the year 10000
@examples(25)
async def test_any_events_survive_export_and_import(sqlite_url: str, events_: list[Event]) -> None:
    async with SqlSessionService(sqlite_url) as service:
        sessions = Sessions(service.store, "app")
        for id_ in ("s", "copy"):
            await sessions.delete(id_, user_id="alice")
        session = await service.create_session(app_name="app", user_id="alice", session_id="s")
        seen: set[str] = set()
        for event in events_:
            if event.id not in seen:
                await service.append_event(session, _with_own_addresses(event))
            seen.add(event.id)
        lines = await exported(sessions)
        assert all("\n" not in line[:-1] for line in lines)
        assert "".join(lines).encode().decode() == "".join(lines)
        assume(not any('"file_data":' in line for line in lines))  # an import replaces the addresses of files
        await sessions.import_lines(lines, user_id="alice", session_id="copy")
        assert (await exported(sessions, "copy"))[2:] == lines[2:]
        loaded = [await service.get_session(app_name="app", user_id="alice", session_id=id_) for id_ in ("s", "copy")]
        assert loaded[0]
        assert loaded[1]
        assert repr(loaded[0].events) == repr(loaded[1].events)


ABSURD: list[tuple[str, dict[str, Any]]] = [
    ("session", {"updated_at": 1e300}),
    ("session", {"created_at": -1e300}),
    ("session", {"epoch": 2**62}),
    ("session", {"revision": 2**62}),
    ("message", {"created_at": 1e300}),
    ("message", {"tokens": 2**62}),
    ("turn", {"turn": 2**62}),
    ("turn", {"ended_at": 1e18}),
    ("turn", {"input_tokens": 2**62}),
    ("turn", {"cost_usd": 1e300}),
    ("turn", {"cost_usd": -1.0}),
    ("effect", {"intended_at": 1e300}),
]


@pytest.mark.parametrize(("kind", "absurd"), ABSURD)
async def test_an_import_with_out_of_range_numbers_writes_nothing(
    store: Store, sessions: Sessions, kind: str, absurd: dict[str, Any]
) -> None:
    await everything(store, sessions)
    lines = [json.loads(line) for line in await exported(sessions)]
    changed = next(number for number, line in enumerate(lines) if line["kind"] == kind)
    lines[changed] |= absurd
    with pytest.raises(InvalidExport, match=next(iter(absurd))):
        await sessions.import_lines([json.dumps(line) + "\n" for line in lines], user_id="alice", session_id="absurd")
    assert await store.read(find_session, SessionId("app", "alice", "absurd")) is None
    assert [record.name.id for record in await sessions.list(user_id="alice")] == ["s"]


async def test_an_unreadable_session_does_not_break_the_list(store: Store, sessions: Sessions) -> None:
    for id_ in ("sound", "broken"):
        await store.write(create_session, SessionId("app", "alice", id_), None, time.time())

    def write_rewinds(text: str | None) -> Operation[None]:
        yield "UPDATE sessions SET rewinds = $1 WHERE id = $2", (text, "broken")

    await store.write(write_rewinds, "no JSON")
    assert [record.name.id for record in await sessions.list(user_id="alice")] == ["sound"]
    assert [record.name.id for record in await store.read(list_sessions, "app", "alice")] == ["sound"]
    await store.write(write_rewinds, None)
