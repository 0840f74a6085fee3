"""Write a checked import in short transactions, and publish it with the last one."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import astuple

from lango.messages import content_hash
from lango.sessions import SessionId, SessionInfo
from lango.store.artifacts.artifacts import COLUMNS as ARTIFACT_COLUMNS
from lango.store.artifacts.session_artifacts import delete_artifacts, rename_artifacts
from lango.store.codec.json_text import dumps
from lango.store.codec.rows import MESSAGE_COLUMNS, insert_rows, row_to_event
from lango.store.contents import contents_of_event, release, release_some, use_again, use_chunk
from lango.store.engine.database import LARGEST, Operation, Row
from lango.store.lifecycle.delete import delete_session
from lango.store.sessions import sessions
from lango.store.sessions.open_calls import OPEN_CALL
from lango.store.sessions.state import set_session_state
from lango.store.transfer.content_check import piece_of
from lango.store.transfer.export_format import (
    ArtifactLine,
    BatchLine,
    ContentLine,
    MessageLine,
    ObservationLine,
    StateLine,
    ToolJournalLine,
    TurnLine,
    columns_of,
)
from lango.store.transfer.import_check import (
    CheckedImport,
    Lines,
    artifact_values,
    parse_lines,
    row_values,
    session_line,
)
from lango.store.transfer.import_claims import imported_artifact

_SET = """
UPDATE sessions SET updated_at = $1, revision = $2, last_seq = $3, user_seq = $4, total_tokens = $5, epoch = $6,
    rewinds = $7, title = $8, forked_from = $9, created_at = $10, app_name = $11, user_id = $12, id = $13
WHERE session_key = $14
"""
_FREE_NAME = "DELETE FROM sessions WHERE session_key = $1"
_ABANDONED = "SELECT session_key, user_id, id FROM sessions WHERE app_name = $1 AND created_at < $2"
_LARGE_TABLES = {"messages": "seq", "state_events": "revision", "turns": "turn", "tool_journal": "call_id"}
_DELETE_SOME = [
    f"""
    DELETE FROM {table} WHERE session_key = $1
        AND {column} IN (SELECT {column} FROM {table} WHERE session_key = $1 ORDER BY {column} LIMIT 100)
    RETURNING {column}
    """  # noqa: S608 - constants
    for table, column in _LARGE_TABLES.items()
]
_TABLES = {
    "message": ("messages", MESSAGE_COLUMNS),
    "state": ("state_events", ", ".join(columns_of(StateLine))),
    "turn": ("turns", ", ".join(columns_of(TurnLine))),
    "effect": ("tool_journal", ", ".join(columns_of(ToolJournalLine))),
    "observation_batch": ("observation_batches", ", ".join(columns_of(BatchLine))),
    "observation": ("observations", ", ".join(columns_of(ObservationLine))),
    "message_content": ("message_contents", "seq, hash"),
}
_ARTIFACT_HASH = ARTIFACT_COLUMNS.split(", ").index("hash")
BATCH_ROWS = 500
BATCH_BYTES = 500_000
_STAGING_APP = "lango:import"
_ABANDONED_AFTER_S = 86_400.0
_ADD_ARTIFACT = f"""
INSERT INTO artifacts (app_name, user_id, session_id, {ARTIFACT_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""  # noqa: S608 - constants
Batch = list[tuple[str, Row]]
"""Rows by their kind; a chunk of a content with its hash, number and bytes, the last one with the size of all."""


class StagedSession(Struct, frozen=True):
    """A session that is being imported, under a name that no user sees."""

    name: SessionId
    key: int


def stage_session(now: float) -> Operation[StagedSession]:
    """Create a session that no user sees, to be filled by `insert_batch` and named by `publish_session`."""
    name = SessionId(_STAGING_APP, "", uuid.uuid4().hex)
    return StagedSession(name, (yield from sessions.insert(name, now)))


def find_abandoned(now: float) -> Operation[list[StagedSession]]:
    """Find the sessions that a killed process staged a day ago."""
    rows = yield _ABANDONED, (_STAGING_APP, now - _ABANDONED_AFTER_S)
    return [StagedSession(SessionId(_STAGING_APP, user_id, id_), key) for key, user_id, id_ in rows]


def delete_some(staged: StagedSession) -> Operation[bool]:
    """Delete a few rows of a staged session, at the end the session; return whether there is more to delete."""
    for statement in _DELETE_SOME:
        if (yield statement, (staged.key,)):
            return True
    if (yield from release_some(staged.key, LARGEST)):
        return True
    yield from delete_session(staged.name)
    return False


def row_batches(staged: StagedSession, checked: CheckedImport, lines: Lines) -> Iterator[Batch]:
    """Yield the rows of an import in batches of so few rows and bytes that other writers wait for a moment only."""
    batch: Batch = []
    size = 0
    for kind, row in _rows(staged, checked, lines):
        row_size = sum(map(_size, row))
        if batch and (len(batch) >= BATCH_ROWS or size + row_size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((kind, row))
        size += row_size
    yield batch


def _size(value: object) -> int:
    """Return the bytes of a value in a row; of a text, the most that they can be."""
    if isinstance(value, str):
        return len(value) if value.isascii() else 4 * len(value)
    return len(value) if isinstance(value, bytes) else 8


def _rows(staged: StagedSession, checked: CheckedImport, lines: Lines) -> Iterator[tuple[str, Row]]:
    """Yield the rows of an import by their kind, with the key of the staged session."""
    total = 0
    sizes: Counter[str] = Counter()
    for _, line in parse_lines(lines):
        if isinstance(line, ContentLine):
            data = piece_of(line)
            sizes[line.hash] += len(data)
            size = sizes[line.hash] if sizes[line.hash] == checked.contents.sizes[line.hash] else None
            yield "content", (staged.key, line.hash, line.number, data, size)
        elif isinstance(line, ArtifactLine):
            line, data = imported_artifact(line)
            if data is not None:
                line = line.model_copy(update={"hash": content_hash(data), "size": len(data)})
                yield "content", (staged.key, line.hash, 0, data, len(data))
            yield "artifact", (staged.key, *artifact_values(line))
        elif line.kind in _TABLES:
            if isinstance(line, MessageLine):
                line = line.model_copy(update={"tokens": checked.tokens[line.seq - 1]})
                total += line.tokens
            values = row_values(line, _TABLES[line.kind][1], total, checked.credential_names)
            yield line.kind, (staged.key, *values)
            if isinstance(line, MessageLine):
                hashes = {data.hash for data in contents_of_event(row_to_event(values))}
                yield from (("message_content", (staged.key, line.seq, hash_)) for hash_ in sorted(hashes))


def insert_batch(staged: StagedSession, batch: Batch) -> Operation[None]:
    """Insert some rows of a staged session, which holds the contents that come before the rows that use them."""
    yield from _use_contents(batch)
    name = staged.name
    for kind, together in itertools.groupby(batch, key=lambda row: row[0]):
        rows = [row for _, row in together]
        match kind:
            case "content":
                held = [(key, 0, hash_) for key, hash_, number, *_ in rows if number == 0]
                yield from insert_rows("message_contents", "seq, hash", held)
            case "artifact":
                for _, *columns in rows:
                    yield _ADD_ARTIFACT, (*astuple(name), *columns)
            case _:
                yield from insert_rows(*_TABLES[kind], rows)


def _use_contents(batch: Batch) -> Operation[None]:
    """Store the contents of a batch, and count the rows of it that use contents, in the order of the hashes."""
    chunks: dict[str, list[Row]] = {}
    for kind, row in batch:
        if kind == "content":
            chunks.setdefault(row[1], []).append(row)
    used = [row[2] for kind, row in batch if kind == "message_content"]
    used += [row[1 + _ARTIFACT_HASH] for kind, row in batch if kind == "artifact" and row[1 + _ARTIFACT_HASH]]
    uses = Counter[str](used)
    for hash_ in sorted({*chunks, *uses}):
        for _, _, number, data, size in chunks.get(hash_, ()):
            yield from use_chunk(hash_, number, data, size)
        if uses[hash_]:
            yield from use_again(hash_, uses[hash_])


def publish_session(name: SessionId, staged: StagedSession, checked: CheckedImport) -> Operation[SessionInfo]:
    """Give a staged session its name. Raise `SessionExists` if the name is taken."""
    name.check_new()
    session = session_line(checked)
    placeholder = yield from sessions.insert(name, session.created_at)  # so that of two imports at once one is refused
    yield _FREE_NAME, (placeholder,)
    unused = yield from delete_artifacts(name)  # of a session that was never stored here
    yield from rename_artifacts(staged.name, name)
    yield from release(unused)
    newest = session.revision, checked.last_seq, checked.user_seq, checked.total_tokens, session.epoch
    rewinds = dumps(session.rewinds) if session.rewinds else None
    origin = session.forked_from and dumps(session.forked_from.model_dump())
    about = session.title, origin, session.created_at
    yield _SET, (session.updated_at, *newest, rewinds, *about, *astuple(name), staged.key)
    if checked.state:
        yield from set_session_state(staged.key, checked.state)
    for call_id, call in sorted(checked.open_calls.items()):
        if not call.is_request:
            # without a wait: its answer would continue a turn from what the import says of the steps before
            yield OPEN_CALL, (staged.key, call_id, call.seq, call.waits)
    return (yield from sessions.get_titled_session(name))
