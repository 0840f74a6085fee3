"""Write a checked import in short transactions, and publish it with the last one."""

import itertools
import uuid
from collections import Counter
from collections.abc import Collection, Iterator

from msgspec import Struct

from lango.store.artifacts.artifacts import COLUMNS as ARTIFACT_COLUMNS
from lango.store.artifacts.session_artifacts import delete_artifacts, rename_artifacts
from lango.store.codec.json_text import dumps
from lango.store.codec.records import SessionId, SessionRecord
from lango.store.codec.rows import MESSAGE_COLUMNS, STATE_COLUMNS, insert_rows, row_to_event
from lango.store.contents import contents_of_event, delete_of_messages, release, use_again, use_content
from lango.store.engine.database import Operation, Row
from lango.store.lifecycle.delete import delete_session
from lango.store.memory.observations import BATCH_COLUMNS, OBSERVATION_COLUMNS
from lango.store.sessions import sessions
from lango.store.sessions.open_calls import OPEN_CALL
from lango.store.sessions.state import set_session_state
from lango.store.sessions.titles import with_first_words
from lango.store.transfer.content_check import piece_of
from lango.store.transfer.export import TOOL_JOURNAL_COLUMNS, TURN_COLUMNS
from lango.store.transfer.export_format import ArtifactLine, ContentLine, MessageLine
from lango.store.transfer.import_check import (
    CheckedImport,
    Lines,
    artifact_values,
    parse_lines,
    row_values,
    session_line,
)

_SET = """
UPDATE sessions SET updated_at = $1, revision = $2, last_seq = $3, user_seq = $4, total_tokens = $5, epoch = $6,
    rewinds = $7, title = $8, forked_from = $9, created_at = $10, app_name = $11, user_id = $12, id = $13
WHERE session_key = $14
"""
_FREE_NAME = "DELETE FROM sessions WHERE session_key = $1"
_SET_FIRST_EPOCHS = "UPDATE turns SET first_epoch = epoch WHERE session_key = $1 AND first_epoch IS NULL"
_ABANDONED = "SELECT user_id, id FROM sessions WHERE app_name = $1 AND created_at < $2"
_TABLES = {
    "message": ("messages", MESSAGE_COLUMNS),
    "state": ("state_events", f"{STATE_COLUMNS}, revision"),
    "turn": ("turns", TURN_COLUMNS),
    "effect": ("tool_journal", TOOL_JOURNAL_COLUMNS),
    "observation_batch": ("observation_batches", BATCH_COLUMNS),
    "observation": ("observations", OBSERVATION_COLUMNS),
    "message_content": ("message_contents", "seq, hash"),
}
_ARTIFACT_HASH = ARTIFACT_COLUMNS.split(", ").index("hash")
_BATCH_ROWS = 500
_BATCH_CHARACTERS = 500_000
_STAGING_APP = "lango:import"
_ABANDONED_AFTER_S = 86_400.0
_ADD_ARTIFACT = f"""
INSERT INTO artifacts (app_name, user_id, session_id, {ARTIFACT_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""  # noqa: S608 - constants
Batch = list[tuple[str, Row]]
"""Rows by their kind; a content with its hash and bytes."""


class StagedSession(Struct, frozen=True):
    """A session that is being imported, under a name that no user sees."""

    name: SessionId
    key: int


def stage_session(now: float) -> Operation[StagedSession]:
    """Create a session that no user sees, to be filled by `insert_batch` and named by `publish_session`.

    Sessions that a killed process staged a day ago are deleted.
    """
    for [user_id, id_] in (yield _ABANDONED, (_STAGING_APP, now - _ABANDONED_AFTER_S)):
        yield from delete_session(SessionId(_STAGING_APP, user_id, id_))
    name = SessionId(_STAGING_APP, "", uuid.uuid4().hex)
    return StagedSession(name, (yield from sessions.insert(name, now)))


def row_batches(staged: StagedSession, checked: CheckedImport, lines: Lines) -> Iterator[Batch]:
    """Yield the rows of an import in batches; its turns go to `checked.turns`, for `publish_session`."""
    batch: Batch = []
    size = 0
    for kind, row in _rows(staged, lines, checked.credential_names):
        if kind == "turn":
            checked.turns.append(row)
            continue
        batch.append((kind, row))
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    yield batch


def _rows(staged: StagedSession, lines: Lines, credential_names: Collection[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of an import by their kind, with the key of the staged session. A content is joined first."""
    total = 0
    pieces: dict[str, list[bytes]] = {}
    for _, line in parse_lines(lines):
        if pieces and not (isinstance(line, ContentLine) and line.hash in pieces):
            [(hash_, data)] = pieces.items()
            yield "content", (staged.key, hash_, b"".join(data))
            pieces.clear()
        if isinstance(line, ContentLine):
            pieces.setdefault(line.hash, []).append(piece_of(line))
        elif isinstance(line, ArtifactLine):
            yield "artifact", (staged.key, *artifact_values(line))
        elif line.kind in _TABLES:
            total += line.tokens if isinstance(line, MessageLine) else 0
            values = row_values(line, _TABLES[line.kind][1], total, credential_names)
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
                yield from insert_rows("message_contents", "seq, hash", [(key, 0, hash_) for key, hash_, _ in rows])
            case "artifact":
                for _, *columns in rows:
                    yield _ADD_ARTIFACT, (name.app_name, name.user_id, name.id, *columns)
            case _:
                yield from insert_rows(*_TABLES[kind], rows)


def _use_contents(batch: Batch) -> Operation[None]:
    """Store the contents of a batch, and count the rows of it that use contents, in the order of the hashes."""
    new = {row[1]: row[2] for kind, row in batch if kind == "content"}
    used = [row[2] for kind, row in batch if kind == "message_content"]
    used += [row[1 + _ARTIFACT_HASH] for kind, row in batch if kind == "artifact" and row[1 + _ARTIFACT_HASH]]
    uses = Counter[str](used)
    for hash_ in sorted({*new, *uses}):
        if hash_ in new:
            yield from use_content(hash_, new[hash_])
        if uses[hash_]:
            yield from use_again(hash_, uses[hash_])


def publish_session(name: SessionId, staged: StagedSession, checked: CheckedImport) -> Operation[SessionRecord]:
    """Give a staged session its name. Raise `SessionExists` if the name is taken."""
    name.check_new()
    session = session_line(checked)
    placeholder = yield from sessions.insert(name, session.created_at)  # so that of two imports at once one is refused
    yield _FREE_NAME, (placeholder,)
    yield from insert_batch(staged, [("turn", row) for row in checked.turns])
    unused = yield from delete_of_messages(staged.key, 0, 0)
    unused += yield from delete_artifacts(name)  # of a session that was never stored here
    yield from rename_artifacts(staged.name, name)
    yield from release(unused)
    yield _SET_FIRST_EPOCHS, (staged.key,)
    origin = session.forked_from
    yield (
        _SET,
        (
            session.updated_at,
            session.revision,
            checked.last_seq,
            checked.user_seq,
            checked.total_tokens,
            session.epoch,
            dumps(session.rewinds) if session.rewinds else None,
            session.title,
            dumps({"id": origin.id, "seq": origin.seq}) if origin else None,
            session.created_at,
            name.app_name,
            name.user_id,
            name.id,
            staged.key,
        ),
    )
    if checked.state:
        yield from set_session_state(staged.key, checked.state)
    for call_id, (seq, waits, _, _) in sorted(checked.open_calls.items()):
        # never as an approval request: only turns of this store make these
        yield OPEN_CALL, (staged.key, call_id, seq, waits)
    return (yield from with_first_words((yield from sessions.get_session(name))))
