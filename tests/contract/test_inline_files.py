"""Files in the rows of an older store: readable as they are, and moved to chunks one by one."""

import asyncio
import importlib
import shutil
import uuid
from pathlib import Path
from typing import Any

import apsw
import pytest
from google.adk.events import Event
from google.genai import types

from lango import open_runtime
from lango.adk import SqlSessionService
from lango.adk.events.events_to_rows import event_to_entry
from lango.messages import StoredBytes
from lango.store import SessionId, Store
from lango.store.codec.json_text import dumps
from lango.store.contents import blobs_of_parts
from lango.store.engine.database import Operation
from lango.store.lifecycle.delete import delete_session
from lango.store.lifecycle.fork import fork_session
from lango.store.lifecycle.inline_files import move_next_inline_files
from lango.store.lifecycle.integrity import check_database
from lango.testing import ScriptedProvider
from tests.agents.parts import rows, settings_for
from tests.frozen.make import APP, FOLDER, SCHEMA, USER

NAME = SessionId(APP, USER, "one of everything")
PICTURE = b"\x89PNG" + bytes(200_000)
DRAWING = b"\x89PNG" + bytes(range(256)) * 100
LITTLE = b"a few bytes"


def extra_of_old_message(*files: bytes, of_result: bool = False) -> str:
    """The row of a message as the first schema stored it: with the bytes in it."""
    blobs = [types.Blob(data=data, mime_type="image/png") for data in files]
    parts = [types.Part(inline_data=blob) for blob in blobs]
    if of_result:
        inner = [
            types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(data=blob.data, mime_type=blob.mime_type))
            for blob in blobs
        ]
        parts = [types.Part(function_response=types.FunctionResponse(id="c9", name="f", response={}, parts=inner))]
    entry = event_to_entry(Event(author="user", content=types.Content(role="user", parts=parts)))
    extra: Any = entry.extra
    for blob in blobs_of_parts(extra["parts"]):
        if isinstance(blob["data"], StoredBytes):
            blob["data"] = entry.contents[blob["data"].hash]
    text = dumps(extra)
    assert "$lango:content" not in text
    return text


OLD_ROWS = [
    ("user", extra_of_old_message(PICTURE, LITTLE), [PICTURE, LITTLE]),
    ("user", extra_of_old_message(PICTURE, DRAWING), [PICTURE, DRAWING]),
    ("user", extra_of_old_message(LITTLE), [LITTLE]),
]
INSERT = """
INSERT INTO messages (session_key, seq, role, author, content, tokens, total_tokens, created_at, event_id,
    invocation_id, extra)
SELECT session_key, last_seq + {number}, '{role}', 'user', '', 0, total_tokens, 1.0, 'old-{number}', 'i', '{extra}'
FROM {schema}sessions WHERE id = 'one of everything'
"""
ADVANCE = "UPDATE {schema}sessions SET last_seq = last_seq + 3, revision = revision + 3, user_seq = last_seq + 3"


def statements(schema: str = "") -> list[str]:
    """SQL that adds messages with files to the frozen store."""
    inserts = [
        INSERT.format(number=number, role=role, extra=extra, schema=schema).replace(
            "INTO messages", f"INTO {schema}messages"
        )
        for number, (role, extra, _) in enumerate(OLD_ROWS, 1)
    ]
    return [*inserts, ADVANCE.format(schema=schema) + " WHERE id = 'one of everything'"]


@pytest.fixture(params=["sqlite", "postgres"])
async def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the first schema with three messages that have files."""
    if request.param == "sqlite":
        path = shutil.copy(FOLDER / "schema_1.db", tmp_path / "old.db")
        connection: Any = apsw.Connection(str(path))
        for statement in statements():
            connection.execute(statement)
        connection.close()
        return f"sqlite:///{path}"
    server: str = request.getfixturevalue("postgres_server")
    name = f"old_{uuid.uuid4().hex[:12]}"
    remote: Any = await importlib.import_module("asyncpg").connect(server)
    await remote.execute((FOLDER / "schema_1.sql").read_text("utf-8").replace(SCHEMA, name))
    for statement in statements(f"{name}."):
        await remote.execute(statement)
    await remote.close()
    return f"{server}&schema={name}"


async def shown_files(store: Store, name: SessionId = NAME) -> list[list[bytes]]:
    """The files of the session's last three messages, as ADK sees them."""
    service = SqlSessionService("", store=store)
    session = await service.get_session(app_name=APP, user_id=USER, session_id=name.id)
    assert session
    contents = [event.content for event in session.events[-3:]]
    return [
        [part.inline_data.data or b"" for part in content.parts or () if part.inline_data]
        for content in contents
        if content
    ]


FILES = [files for _, _, files in OLD_ROWS]


async def test_old_files_are_readable_before_and_after_they_are_moved(old_url: str) -> None:
    async with Store(old_url) as store:
        assert await shown_files(store) == FILES
        assert len(await rows(store, "SELECT seq FROM inline_files")) == 2, "small ones stay"
        assert await store.write_long(move_next_inline_files)
        assert await shown_files(store) == FILES, "in between, too"
        assert await store.move_inline_files() == 1
        assert await store.move_inline_files() == 0
        assert await shown_files(store) == FILES
        assert await rows(store, "SELECT size, uses FROM contents ORDER BY size") == [
            (len(DRAWING), 1),
            (len(PICTURE), 2),
        ]
        [(size,)] = await rows(store, "SELECT MAX(LENGTH(extra)) FROM messages")
        assert size < 2_000
        assert await store.read(check_database, store.dialect) == []
        await store.delete_session(NAME)
        assert await rows(store, "SELECT hash FROM contents") == []


async def test_a_fork_of_an_old_session_keeps_the_files_that_are_moved_later(old_url: str) -> None:
    fork = SessionId(APP, USER, "fork")
    async with Store(old_url) as store:
        await store.write(fork_session, NAME, fork, None, None, 2.0)
        await store.delete_session(NAME)
        assert await store.move_inline_files() == 2
        assert await shown_files(store, fork) == FILES
        assert await store.read(check_database, store.dialect) == []
        await store.delete_session(fork)
        assert await rows(store, "SELECT hash FROM contents") == []


async def test_old_files_are_moved_while_their_session_is_deleted(old_url: str) -> None:
    async with Store(old_url) as store, Store(old_url) as another:
        await asyncio.gather(
            store.move_inline_files(), another.move_inline_files(), another.write_long(delete_session, NAME)
        )
        await store.move_inline_files()
        assert await rows(store, "SELECT seq FROM inline_files") == []
        assert await rows(store, "SELECT hash FROM contents") == []
        assert await store.read(check_database, store.dialect) == []


async def test_a_runtime_moves_old_files_in_the_background(old_url: str) -> None:
    async with open_runtime(settings_for(old_url), provider=ScriptedProvider(["hello"])) as runtime:
        for _ in range(600):
            if not await rows(runtime.store, "SELECT seq FROM inline_files"):
                break
            await asyncio.sleep(0.05)
        assert await shown_files(runtime.store) == FILES
        assert len(await rows(runtime.store, "SELECT hash FROM message_contents")) == 3


async def test_a_move_that_is_killed_changes_nothing(old_url: str) -> None:
    """The operation is stopped at each of its statements: its transaction is rolled back."""

    class Killed(Exception):
        pass

    def stopped_after(statements: int) -> Operation[bool]:
        operation = move_next_inline_files()
        statement = next(operation)
        for _ in range(statements):
            statement = operation.send((yield statement))
        raise Killed

    async with Store(old_url) as store:
        for number in range(1, 9):
            try:
                await store.write_long(stopped_after, number)
            except Killed:
                assert len(await rows(store, "SELECT seq FROM inline_files")) == 2
                assert await rows(store, "SELECT hash FROM content_chunks") == []
            except RuntimeError:  # it had fewer statements
                break
        assert await shown_files(store) == FILES
