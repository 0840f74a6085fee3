"""Artifacts in the store: versions, contents stored once, and what forks, rewinds and deletions do to them."""

from collections.abc import Mapping
from typing import Any

from lango.messages import Message, content_hash
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, Store
from lango.store.artifacts import artifacts
from lango.store.artifacts.artifacts import NewArtifact, list_artifacts, load_artifact, save_artifact
from lango.store.contents import CHUNK_BYTES
from lango.store.engine.database import Operation, Row
from lango.store.lifecycle.fork import fork_session
from lango.store.lifecycle.rewind import rewind_session
from lango.store.sessions.sessions import create_session, get_session

S = SessionId("app", "alice", "s")
LARGE = bytes(range(256)) * (CHUNK_BYTES // 256) + b"and a little more"


async def rows(store: Store, sql: str) -> list[Any]:
    def operation() -> Operation[list[Row]]:
        return (yield sql, ())

    return [tuple(row) for row in await store.read(operation)]


async def save(store: Store, name: str, data: bytes, scope: SessionId = S) -> int:
    return await store.write(save_artifact, scope, NewArtifact(name, "bytes", "text/plain", data), 1.0)


async def contents(store: Store, scope: SessionId = S) -> Mapping[str, bytes | None]:
    """The newest content of each artifact that a session shows."""
    found: dict[str, bytes | None] = {}
    for artifact in await store.read(list_artifacts, scope.app_name, scope.user_id, scope.id):
        owner = artifacts.scope_of(scope.app_name, scope.user_id, scope.id, artifact.name)
        loaded = await store.read(load_artifact, owner, artifact.name)
        assert loaded
        found[artifact.name] = loaded[1]
    return found


async def say(store: Store, session: SessionInfo, text: str, **more: Any) -> SessionInfo:
    entry = NewEvent(f"e{session.revision}", 1.0, Message("user", text), invocation_id=f"i{session.revision}", **more)
    await store.append(session.key, session.name, session.revision, entry)
    return await store.read(get_session, session.name)


async def test_equal_contents_are_stored_once_in_chunks(store: Store) -> None:
    assert [await save(store, "a", LARGE), await save(store, "b", LARGE), await save(store, "a", b"")] == [0, 0, 1]
    assert await rows(store, "SELECT size, uses FROM contents ORDER BY size") == [(0, 1), (len(LARGE), 2)]
    assert await rows(store, "SELECT LENGTH(data) FROM content_chunks ORDER BY number") == [(CHUNK_BYTES,), (17,)]
    assert await contents(store) == {"a": b"", "b": LARGE}


async def test_the_last_artifact_with_a_content_takes_it_away(store: Store) -> None:
    for name in ("a", "b"):
        await save(store, name, LARGE)
    assert await store.write(artifacts.delete_artifact, S, "a")
    assert await contents(store) == {"b": LARGE}
    assert await store.write(artifacts.delete_artifact, S, "b")
    assert not await store.write(artifacts.delete_artifact, S, "b")
    assert await rows(store, "SELECT * FROM contents") == await rows(store, "SELECT hash FROM content_chunks") == []


async def test_a_fork_has_the_versions_that_were_saved_before_its_last_message(store: Store) -> None:
    session = await store.write(create_session, S, None, 1.0)
    session = await say(store, session, "one")
    await save(store, "a", b"first")
    await save(store, "user:of alice", b"mine", SessionId("app", "alice", ""))
    session = await say(store, session, "two")
    await save(store, "a", b"second")
    await save(store, "b", b"new")
    expected = {1: {}, 2: {"a": b"first"}, None: {"a": b"second", "b": b"new"}}
    session = await say(store, session, "three")
    for at, files in expected.items():
        fork = SessionId("app", "alice", f"fork at {at}")
        await store.write(fork_session, S, fork, at, None, 2.0)
        assert await contents(store, fork) == files | {"user:of alice": b"mine"}
    await save(store, "a", b"of the source")
    assert (await contents(store, SessionId("app", "alice", "fork at None")))["a"] == b"second"
    assert await store.delete_session(S)
    assert (await contents(store, SessionId("app", "alice", "fork at None")))["a"] == b"second"
    assert await contents(store) == {"user:of alice": b"mine"}


async def test_a_rewind_restores_the_artifacts_and_keeps_every_version(store: Store) -> None:
    session = await store.write(create_session, S, None, 1.0)
    session = await say(store, session, "one")
    await save(store, "a", b"first")
    session = await say(store, session, "two")
    await save(store, "a", b"second")
    await save(store, "b", b"new")
    rewound = await store.write(rewind_session, S, 2, 3.0)
    assert await contents(store) == {"a": b"first"}
    versions = await store.read(artifacts.list_versions, S, "a")
    assert [version.hash for version in versions] == [content_hash(text) for text in (b"first", b"second", b"first")]
    assert [artifact.is_removed for artifact in await store.read(artifacts.list_versions, S, "b")] == [False, True]
    [(extra,)] = await rows(store, f"SELECT extra FROM messages WHERE seq = {rewound.last_seq}")
    assert '"artifact_delta":{"a":2,"b":1}' in extra


async def test_the_files_of_messages_are_shared_by_forks_until_the_last_is_deleted(store: Store) -> None:
    session = await store.write(create_session, S, None, 1.0)
    session = await say(store, session, "see this", contents={content_hash(LARGE): LARGE})
    fork = SessionId("app", "alice", "fork")
    await store.write(fork_session, S, fork, None, None, 2.0)
    session = await say(store, session, "and this", contents={content_hash(b"later"): b"later"})
    assert await rows(store, "SELECT size FROM contents ORDER BY size") == [(5,), (len(LARGE),)]
    await store.delete_session(S)
    assert await rows(store, "SELECT size, uses FROM contents") == [(len(LARGE), 1)]
    await store.delete_session(fork)
    assert await rows(store, "SELECT hash FROM contents UNION SELECT hash FROM content_chunks") == []
