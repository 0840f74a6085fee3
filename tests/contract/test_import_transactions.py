"""No transaction of an import is large, so that other writers wait for a moment only."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest
from typing_extensions import override

from lango.errors import InvalidExport, SessionExists
from lango.messages import Message
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId
from lango.store import Store
from lango.store.contents import CHUNK_BYTES
from lango.store.engine.database import Operation
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import create_session
from lango.store.sessions.window import MOST_MESSAGES, read_session_window
from lango.store.transfer.import_write import BATCH_BYTES
from tests.contract.test_fork_and_rewind import left
from tests.contract.test_store import Writer

P = ParamSpec("P")
T = TypeVar("T")
_MOST_STATEMENTS = 1_100
_MOST_BYTES = BATCH_BYTES * 5 // 4  # several statements have the hash of a small file
Line = dict[str, Any]


class CountingStore(Store):
    """Counts the statements of each long write, and the bytes that they bring."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statements: list[int] = []
        self.bytes: list[int] = []

    @override
    async def write_long(self, operation: Callable[P, Operation[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        def counted() -> Operation[T]:
            running = operation(*args, **kwargs)
            statements = size = 0
            try:
                statement = next(running)
                while True:
                    statements += 1
                    size += sum(len(value) for value in statement[1] if isinstance(value, str | bytes))
                    statement = running.send((yield statement))
            except StopIteration as end:
                self.statements.append(statements)
                self.bytes.append(size)
                return end.value

        return await super().write_long(counted)


def large_export() -> list[str]:
    """A large file, many small ones, and many messages, turns, calls and journal entries."""
    large = bytes(range(256)) * (10 * CHUNK_BYTES // 256)
    files = [large, *(f"file {number}".encode() * 200 for number in range(200))]
    lines: list[Line] = [{"kind": "header", "format": "lango-session", "version": 1}]
    session = {"kind": "session", "app": "app", "user": "alice", "id": "s", "created_at": 1.0, "updated_at": 1.0}
    lines.append(session | {"revision": 1_600, "epoch": 1})
    parts: list[tuple[str, int]] = []
    for data in files:
        hash_ = hashlib.sha256(data).hexdigest()
        parts.append((hash_, len(data)))
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            piece = b64encode(data[start : start + CHUNK_BYTES]).decode()
            lines.append({"kind": "content", "hash": hash_, "number": number, "data": piece})
    for seq in range(1, 1_601):
        one: Line = {"kind": "message", "seq": seq, "role": "user", "event_id": f"e{seq}", "created_at": 1.0}
        if seq <= len(parts):
            blob = {"mime_type": "image/png", "data": {"$lango:content": list(parts[seq - 1])}}
            one["extra"] = {"parts": [{"inline_data": blob}]}
        else:
            one["content"] = "é " * 700  # words, which are counted sooner than a long one
        lines.append(one)
    for turn in range(1, 1_601):
        lines.append({"kind": "turn", "turn": turn, "status": "done", "epoch": 1, "created_at": 1.0})
    lines.append({"kind": "end", "lines": len(lines)})
    return [json.dumps(line) + "\n" for line in lines]


async def test_attack_23_no_transaction_of_an_import_is_large(store_url: str) -> None:
    async with CountingStore(store_url) as store:
        sessions = Sessions(store, "app")
        exported = large_export()
        await sessions.import_lines(exported, user_id="alice")
        assert len(store.bytes) > 10
        assert sum(store.bytes) > 4 * _MOST_BYTES
        assert sum(store.statements) > _MOST_STATEMENTS
        assert max(store.bytes) <= _MOST_BYTES
        assert max(store.statements) <= _MOST_STATEMENTS
        assert await store.read(check_database, store.dialect) == []
        assert len([line async for line in sessions.export_lines("s", user_id="alice")]) == len(exported)
        before = await left(store)
        with pytest.raises(SessionExists):
            await sessions.import_lines(exported, user_id="alice")
        assert await left(store) == before
        assert max(store.bytes) <= _MOST_BYTES
        assert max(store.statements) <= _MOST_STATEMENTS, "nor of the deletion of one that failed"
        assert await store.read(check_database, store.dialect) == []


@pytest.mark.parametrize("lines", ["calls", "artifacts"])
async def test_attack_23_what_one_transaction_names_is_bounded(store: Store, lines: str) -> None:
    head = [json.loads(line) for line in large_export()[:2]]
    calls: list[Line] = [{"id": f"c{number}", "name": "f", "input": {}} for number in range(300)]
    many: list[Line] = [
        {"kind": "message", "seq": seq, "role": "assistant", "event_id": f"e{seq}", "created_at": 1.0}
        | {"tool_calls": [call | {"id": f"{seq}-{call['id']}"} for call in calls]}
        for seq in range(1, 5)
    ]
    if lines == "artifacts":
        part = {"file_data": {"file_uri": "artifact://apps/app/users/alice/artifacts/user:x/versions/0"}}
        one: Line = {"kind": "artifact", "name": "a", "content": "uri", "part": part, "created_at": 1.0}
        many = [one | {"version": number} for number in range(10_001)]
    whole = [*head, *many, {"kind": "end", "lines": 2 + len(many)}]
    with pytest.raises(InvalidExport, match="more than"):
        await Sessions(store, "app").import_lines([json.dumps(line) + "\n" for line in whole], user_id="alice")


async def test_attack_23_a_window_has_few_messages_however_few_tokens_they_have(store: Store) -> None:
    name = SessionId("app", "alice", "s")
    writer = Writer(store, await store.write(create_session, name, None, 1.0))
    for number in range(MOST_MESSAGES + 100):
        await writer.add(Message("user" if number % 2 else "assistant", "x"), tokens=0)
    found = await store.read(read_session_window, name, 32_000)
    assert found
    assert len(found[1]) == MOST_MESSAGES
