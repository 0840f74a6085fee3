"""Files and artifacts in exports: whole, checked, counted, and never taken from others by their hash alone."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from lango.adk import SqlSessionService
from lango.errors import InvalidExport
from lango.runtime.artifacts import Artifacts
from lango.runtime.sessions.session_transfer import delete_abandoned_imports
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId
from lango.store import Store
from lango.store.contents import CHUNK_BYTES
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.window import read_session_events
from lango.store.transfer.import_check import check_lines
from lango.store.transfer.import_write import insert_batch, row_batches, stage_session
from tests.contract.test_fork_and_rewind import rows
from tests.contract.test_transfer import FILES, exported, kinds, with_files


@pytest.fixture
async def sessions(store: Store) -> Sessions:
    service = SqlSessionService("", store=store)
    session = await service.create_session(app_name="app", user_id="alice", session_id="s")
    await with_files(store, service, session)
    await Artifacts(store, "app").save("s", "user:mine", "not the session's", user_id="alice")
    return Sessions(store, "app")


async def used(store: Store) -> list[tuple[str, int]]:
    return await rows(store, "SELECT hash, uses FROM contents ORDER BY hash")


async def test_an_imported_session_has_the_files_and_artifacts(store: Store, sessions: Sessions) -> None:
    lines = await exported(sessions)
    assert kinds(lines)[2:-1] == ["content"] * 5 + ["message"] * 3 + ["artifact"] * 4
    assert max(map(len, lines)) < 2 * CHUNK_BYTES, "a large file has several lines"
    before = await used(store)
    await sessions.import_lines(lines, user_id="bob", session_id="copy")
    assert [hash_ for hash_, _ in await used(store)] == [hash_ for hash_, _ in before], "stored once"
    found = await store.read(read_session_events, SessionId("app", "bob", "copy"))
    assert found
    await store.load_files(found[1])
    shown: Any = [(stored.extra or {}).get("parts") for stored in found[1]]
    assert shown[0][1]["inline_data"]["data"] == FILES[0]
    assert shown[2][0]["result"]["parts"][0]["inline_data"]["data"] == FILES[1]
    artifacts = Artifacts(store, "app")
    assert [one.name for one in await artifacts.list("copy", user_id="bob")] == ["a/b"]
    assert await artifacts.load("copy", "a/b", 0, user_id="bob") == FILES[0]
    await sessions.delete("copy", user_id="bob")
    assert await used(store) == before


async def test_a_fork_is_exported_with_the_files_of_its_source(store: Store, sessions: Sessions) -> None:
    await sessions.fork("s", user_id="alice", new_id="f")
    lines = await exported(sessions, "f")
    await sessions.delete("s", user_id="alice")
    assert await exported(sessions, "f") == lines
    await sessions.delete("f", user_id="alice")
    mine = await rows(store, "SELECT name FROM artifacts")
    assert mine == [("user:mine",)]
    await sessions.import_lines(lines, user_id="alice")
    assert await exported(sessions, "f") == lines


def changed(lines: list[str], kind: str, nth: int, /, **members: Any) -> list[str]:
    """The lines with other members in one line of a kind."""
    place = [at for at, line in enumerate(lines) if json.loads(line)["kind"] == kind][nth]
    return [*lines[:place], json.dumps(json.loads(lines[place]) | members) + "\n", *lines[place + 1 :]]


def without(lines: list[str], kind: str, number: int) -> list[str]:
    place = [at for at, line in enumerate(lines) if json.loads(line)["kind"] == kind][number]
    end = json.dumps({"kind": "end", "lines": len(lines) - 2}) + "\n"
    return [*lines[:place], *lines[place + 1 : -1], end]


OTHER = hashlib.sha256(b"of another user").hexdigest()
EMPTY = hashlib.sha256(b"").hexdigest()
WRONG: dict[str, Callable[[list[str]], list[str]]] = {
    "a piece is missing": lambda lines: without(lines, "content", 1),
    "the last content is missing": lambda lines: without(lines, "content", -1),
    "other bytes": lambda lines: changed(lines, "content", -1, data=base64.b64encode(b"x").decode()),
    "no base64": lambda lines: changed(lines, "content", -1, data="!"),
    "another number": lambda lines: changed(lines, "content", 0, number=1),
    "a hash that is none": lambda lines: changed(lines, "content", 0, hash="../x"),
    "the content of another user": lambda lines: changed(lines, "artifact", 0, hash=OTHER, size=15),
    "another size": lambda lines: changed(lines, "artifact", 0, size=3),
    "a uri with a content": lambda lines: changed(lines, "artifact", 0, content="uri"),
    "bytes without a content": lambda lines: changed(lines, "artifact", 3, content="bytes"),
    "a uri without an address": lambda lines: changed(lines, "artifact", 3, part={}),
    "the artifact of a user": lambda lines: changed(lines, "artifact", 0, name="user:x"),
    "a name that escapes": lambda lines: changed(lines, "artifact", 0, name="../x"),
    "the same version twice": lambda lines: changed(lines, "artifact", 1, version=0),
    "saved after a message that is not there": lambda lines: changed(lines, "artifact", 1, after_seq=9),
    "a file of another user in a message": lambda lines: changed(
        lines, "message", 0, extra={"parts": [{"inline_data": {"data": {"$lango:content": [OTHER, 15]}}}]}
    ),
    "a content that is no hash": lambda lines: changed(
        lines, "message", 0, extra={"parts": [{"inline_data": {"data": {"$lango:content": 1}}}]}
    ),
}


async def test_an_export_with_wrong_files_is_refused_and_nothing_is_written(store: Store, sessions: Sessions) -> None:
    await Artifacts(store, "app").save("s", "secret", b"of another user", user_id="alice")
    lines = [line for line in await exported(sessions) if OTHER not in line]
    lines[-1] = json.dumps({"kind": "end", "lines": len(lines) - 1}) + "\n"
    before = await used(store)
    for name, wrong in WRONG.items():
        with pytest.raises(InvalidExport) as caught:
            await sessions.import_lines(wrong(lines), user_id="bob", session_id="copy")
        assert "line" in str(caught.value), name
    assert await used(store) == before
    await sessions.import_lines(lines, user_id="bob", session_id="copy")


async def test_an_import_that_is_killed_anywhere_leaves_no_files(store: Store, sessions: Sessions) -> None:
    lines = await exported(sessions)
    before = await used(store)
    # one batch per row
    for kept in range(len(lines) + 4):
        staged = await store.write(stage_session, 0.0)
        rows_of_import = [row for batch in row_batches(staged, check_lines(lines), lines) for row in batch]
        for row in rows_of_import[:kept]:
            await store.write_long(insert_batch, staged, [row])
        assert await store.read(check_database, store.dialect) == []
        await delete_abandoned_imports(store, 100_000.0)
        assert await used(store) == before


async def test_imports_and_deletions_at_once_keep_the_counts(store: Store, sessions: Sessions) -> None:
    lines = await exported(sessions)
    before = await used(store)

    async def come_and_go(number: int) -> None:
        await sessions.import_lines(lines, user_id="bob", session_id=f"copy {number}")
        await sessions.delete(f"copy {number}", user_id="bob")

    await asyncio.gather(*(come_and_go(number) for number in range(5)))
    assert await used(store) == before
    await sessions.delete("s", user_id="alice")
    for number in range(2):
        await asyncio.gather(*(come_and_go(number * 10 + place) for place in range(3)))
    assert [uses for _, uses in await used(store)] == [1], "of the user's own artifact"
