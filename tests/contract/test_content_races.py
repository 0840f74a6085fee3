"""Contents that many sessions share: nothing is deleted too early, and nothing is left over, whatever comes at once."""

import asyncio
import random
import time
from typing import Any

import pytest

from lango.errors import LangoError, SessionExists, SessionNotFound
from lango.messages import Message, content_hash
from lango.runtime.artifacts import Artifacts
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.artifacts import artifacts
from lango.store.artifacts.artifacts import NewArtifact, load_artifact, save_artifact
from lango.store.engine.database import Operation
from lango.store.lifecycle.fork import fork_session
from lango.store.lifecycle.integrity import check_database
from lango.store.lifecycle.rewind import rewind_session
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_session_events
from tests.agents.parts import rows

SHARED = b"the same bytes everywhere" * 100
CONTENTS = [SHARED, b"others" * 1_000, b"x" * 300_000]
USER = SessionId("app", "alice", "")


def named(number: int) -> SessionId:
    return SessionId("app", "alice", f"s{number}")


async def save(store: Store, scope: SessionId, name: str, data: bytes) -> int:
    return await store.write_long(save_artifact, scope, NewArtifact(name, "bytes", "image/png", data), time.time())


async def everything_is_whole(store: Store) -> None:
    """Every artifact and every file of a message can be loaded, and no byte is left over."""
    assert await store.read(check_database, store.dialect) == []
    for app_name, user_id, session_id, name, version in await rows(
        store, "SELECT app_name, user_id, session_id, name, version FROM artifacts"
    ):
        found = await store.read(load_artifact, SessionId(app_name, user_id, session_id), name, version)
        if found is not None and found[0].hash is not None:
            assert content_hash(found[1] or b"") == found[0].hash


@pytest.mark.parametrize("attempt", range(3))
async def test_two_deletions_at_once_release_a_content_once(store: Store, store_url: str, attempt: int) -> None:
    async with Store(store_url) as another:
        for number in range(10):
            await save(store, USER, "user:keeps it", SHARED)
            await save(store, USER, "user:gone", SHARED)
            deleted = await asyncio.gather(
                *(each.write_long(artifacts.delete_artifact, USER, "user:gone") for each in (store, another) * 3)
            )
            assert deleted.count(True) == 1
            assert await rows(store, "SELECT uses FROM contents") == [(number + 1,)]
    await everything_is_whole(store)


@pytest.mark.parametrize("attempt", range(3))
async def test_a_content_that_is_deleted_and_saved_at_once_is_there(store: Store, store_url: str, attempt: int) -> None:
    async with Store(store_url) as another:
        for number in range(10):
            await save(store, USER, f"user:a{number}", SHARED)
            await asyncio.gather(
                store.write_long(artifacts.delete_artifact, USER, f"user:a{number}"),
                *(save(each, USER, f"user:b{number}", SHARED) for each in (store, another)),
            )
            found = await store.read(load_artifact, USER, f"user:b{number}")
            assert found
            assert found[1] == SHARED
            await store.write_long(artifacts.delete_artifact, USER, f"user:b{number}")
            assert await rows(store, "SELECT hash FROM contents UNION SELECT hash FROM content_chunks") == []


async def test_an_artifact_is_not_saved_for_a_session_that_is_deleted_meanwhile(store: Store, store_url: str) -> None:
    service = Artifacts(store, "app")
    async with Store(store_url) as another:
        for number in range(15):
            await store.write(create_session, named(number), None, 1.0)

            async def save_one(number: int = number) -> bool:
                try:
                    await service.save(f"s{number}", "f", SHARED, user_id="alice")
                except SessionNotFound:
                    return False
                return True

            await asyncio.gather(save_one(), another.delete_session(named(number)), save_one())
    assert await rows(store, "SELECT name FROM artifacts") == []
    assert await rows(store, "SELECT hash FROM contents") == []


class Traffic:
    """Does things at random to a few sessions that share a few contents."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._seed = seed
        self._steps = 0
        self.done: list[str] = []

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            kind = self._random.choice(["save", "save", "drop", "say", "say", "fork", "rewind", "delete", "queue"])
            name = named(self._random.randrange(7))
            data = self._random.choice(CONTENTS)
            try:
                self._steps += 1
                await getattr(self, f"_{kind}")(name, data, f"{self._seed} {self._steps}")
                self.done.append(kind)
            except (SessionNotFound, SessionExists):
                pass
            except LangoError as error:
                if type(error).__name__ not in _ALLOWED:
                    raise

    async def _save(self, name: SessionId, data: bytes, _: str) -> None:
        scope = USER if self._random.random() < 0.3 else name
        prefix = "" if scope.id else "user:"
        new = NewArtifact(f"{prefix}f{self._random.randrange(3)}", "bytes", "image/png", data)
        await self._store.write_long(save_artifact, scope, new, time.time(), needs_session=True)

    async def _drop(self, name: SessionId, data: bytes, _: str) -> None:
        scope = USER if self._random.random() < 0.3 else name
        prefix = "" if scope.id else "user:"
        await self._store.write_long(artifacts.delete_artifact, scope, f"{prefix}f{self._random.randrange(3)}")

    async def _session(self, name: SessionId) -> Any:
        session = await self._store.read(find_session, name)
        return session or await self._store.write(create_session, name, None, time.time())

    async def _say(self, name: SessionId, data: bytes, id_: str) -> None:
        session = await self._session(name)
        await self._store.append(session.key, name, session.revision, _message(id_, data))

    async def _queue(self, name: SessionId, data: bytes, id_: str) -> None:
        session = await self._session(name)
        for number in range(2):
            turn = await self._store.submit_turn(session, _message(f"{id_} {number}", data), f"owner {self._seed}")
            if turn.status == "queued" and self._random.random() < 0.7:
                await self._store.withdraw_turn(turn)
            elif turn.status == "running":
                await self._store.end_turn(name, turn, "done")

    async def _fork(self, name: SessionId, data: bytes, _: str) -> None:
        new = named(self._random.randrange(7))
        if new != name:
            await self._store.delete_session(new)  # else there is hardly ever a free name
        await self._store.write_long(fork_session, name, new, None, None, time.time())

    async def _rewind(self, name: SessionId, data: bytes, _: str) -> None:
        found = await self._store.read(read_session_events, name)
        seqs = [stored.seq for stored in found[1] if stored.message and stored.message.role == "user"] if found else []
        if seqs:
            await self._store.write_long(rewind_session, name, self._random.choice(seqs), time.time())

    async def _delete(self, name: SessionId, data: bytes, _: str) -> None:
        await self._store.delete_session(name)


_ALLOWED = {"StaleSession", "TurnRunning", "MessageNotFound"}
"""The errors that a writer gets which lost a race."""


def _message(id_: str, data: bytes) -> NewEvent:
    contents = {content_hash(data): data}
    return NewEvent(f"e {id_}", time.time(), Message("user", id_), 1, f"i {id_}", contents=contents)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_comes_at_once_the_counts_are_right(store: Store, store_url: str, seed: int) -> None:
    async with Store(store_url) as another:
        traffic = [Traffic(each, seed * 10 + number) for number, each in enumerate((store, another, store, another))]
        for _ in range(3):
            await asyncio.gather(*(each.run(16) for each in traffic))
            await everything_is_whole(store)
    assert {kind for each in traffic for kind in each.done} >= {"save", "say", "delete", "queue"}
    for number in range(7):
        await store.delete_session(named(number))
    for number in range(3):
        await store.write_long(artifacts.delete_artifact, USER, f"user:f{number}")
    assert await rows(store, "SELECT hash FROM contents UNION SELECT hash FROM content_chunks") == []


async def test_a_save_that_is_killed_at_any_statement_leaves_no_bytes(store: Store) -> None:
    """Bytes and row stand or fall together: the operation is stopped at each of its statements."""

    class Killed(Exception):
        pass

    def stopped_after(statements: int) -> Operation[int]:
        operation = save_artifact(USER, NewArtifact("user:f", "bytes", "image/png", CONTENTS[2]), 1.0)
        statement = next(operation)
        for _ in range(statements):
            statement = operation.send((yield statement))
        raise Killed

    stopped = 0
    for number in range(20):
        try:
            await store.write_long(stopped_after, number)
        except Killed:
            stopped += 1
            assert await rows(store, "SELECT hash FROM contents UNION SELECT hash FROM content_chunks") == []
        except RuntimeError:  # it had fewer statements
            break
    assert stopped >= 4
