"""A large file adds hardly anything to what the load of a window reads from the database."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.genai import types

from lango.adk import SqlArtifactService, SqlSessionService
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sessions import get_session
from lango.store.sessions.window import read_message_page
from lango.store.turns.lease import lease_turn
from lango.store.turns.queue import read_queued_messages

TEN_MB = bytes(range(256)) * (10_000_000 // 256)
LIMIT = 1_000
NAME = SessionId("app", "alice", "s")
WHERE: Any = {"app_name": "app", "user_id": "alice", "session_id": "s"}


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, bytes | bytearray) else 8


async def bytes_read(store: Store, load: Callable[[], Awaitable[Any]]) -> int:
    """Count the bytes of all rows that the database returns during a load."""
    database: Any = vars(store)["_database"]
    read = database.read
    total = 0

    def counted(operation: Callable[[], Operation[Any]]) -> Operation[Any]:
        nonlocal total
        running = operation()
        try:
            statement = next(running)
            while True:
                rows: list[Row] = yield statement
                total += sum(_size(value) for row in rows for value in row)
                statement = running.send(rows)
        except StopIteration as end:
            return end.value

    def read_counted(operation: Callable[[], Operation[Any]]) -> Any:
        return read(lambda: counted(operation))

    database.read = read_counted
    try:
        await load()
    finally:
        database.read = read
    return total


def message(*parts: types.Part, author: str = "user") -> Event:
    role = "user" if author == "user" else "model"
    return Event(author=author, invocation_id="i", content=types.Content(role=role, parts=list(parts)))


def inline(data: bytes) -> types.Part:
    return types.Part(inline_data=types.Blob(data=data, mime_type="application/pdf", display_name="large.pdf"))


def result(data: bytes) -> list[Event]:
    call = types.FunctionCall(id="c1", name="draw", args={})
    blob = types.FunctionResponseBlob(data=data, mime_type="image/png")
    answer = types.FunctionResponse(
        id="c1", name="draw", response={"ok": True}, parts=[types.FunctionResponsePart(inline_data=blob)]
    )
    return [
        message(types.Part(function_call=call), author="a"),
        message(types.Part(function_response=answer), author="a"),
    ]


async def add_attachment(service: SqlSessionService, session: Any, data: bytes) -> None:
    await service.append_event(session, message(types.Part(text="see this"), inline(data)))


async def add_result(service: SqlSessionService, session: Any, data: bytes) -> None:
    for event in result(data):
        await service.append_event(session, event)


async def add_artifact(service: SqlSessionService, session: Any, data: bytes) -> None:
    artifacts = SqlArtifactService("", store=service.store)
    version = await artifacts.save_artifact(**WHERE, filename="large.pdf", artifact=inline(data))
    saved = message(types.Part(text="saved"), author="a")
    saved.actions = EventActions(artifact_delta={"large.pdf": version})
    await service.append_event(session, saved)


WAYS = {"attachment": add_attachment, "result of a tool": add_result, "artifact": add_artifact}


@pytest.mark.parametrize("way", WAYS)
async def test_ten_megabytes_add_less_than_a_kilobyte_to_a_load(store: Store, way: str) -> None:
    """Compared with the same message whose file has a few bytes, which are in its row."""
    service = SqlSessionService("", store=store, budget_tokens=100_000, load_files=False)
    found: list[dict[str, int]] = []
    for data in (b"few bytes", TEN_MB):
        session = await service.create_session(**WHERE)
        await service.append_event(session, message(types.Part(text="hello")))
        await WAYS[way](service, session, data)
        await service.append_event(session, message(types.Part(text="and now?")))
        record = await store.read(get_session, NAME)

        async def load_window() -> None:
            assert await service.get_session(**WHERE)

        async def load_page(record: Any = record) -> None:
            assert await store.read(read_message_page, record, before=None, limit=50)

        found.append({each.__name__: await bytes_read(store, each) for each in (load_window, load_page)})
        await service.delete_session(**WHERE)
    for name, before in found[0].items():
        assert before > 100, "something is counted"
        assert found[1][name] - before <= LIMIT, (name, found)


async def test_ten_megabytes_in_the_queue_add_less_than_a_kilobyte(store: Store) -> None:
    from lango.adk.events.events_to_rows import event_to_entry

    service = SqlSessionService("", store=store, budget_tokens=100_000, load_files=False)
    await service.create_session(**WHERE)
    record = await store.read(get_session, NAME)
    running = await store.submit_turn(record, event_to_entry(message(types.Part(text="first"))), "me")
    large = event_to_entry(message(types.Part(text="second"), inline(TEN_MB)))
    queued = await store.submit_turn(record, large, "me")
    assert queued.status == "queued"

    async def load_queue() -> None:
        assert len(await store.read(read_queued_messages, record.key)) == 1

    assert 100 < await bytes_read(store, load_queue) < 1_500
    await store.end_turn(NAME, running, "done")
    await store.write_long(lease_turn, record.key, NAME, queued.turn, "me", time.time())

    async def load_window() -> None:
        assert await service.get_session(**WHERE)

    assert 100 < await bytes_read(store, load_window) < 3_000
