"""Read a session as export lines, a page at a time."""

import base64
from collections.abc import Iterator

from msgspec import Struct

from lango.client_state import without_app_state
from lango.errors import SessionNotFound
from lango.sessions import APP_PREFIX, SessionId, SessionRecord
from lango.store.artifacts.artifacts import Artifact, read_all_versions
from lango.store.codec.ids import call_key
from lango.store.codec.json_text import dumps, loads, loads_untagged
from lango.store.codec.rows import MESSAGE_COLUMNS, RESULT_ROLES, calls_from_json
from lango.store.contents import hashes_of_messages, read_chunk, read_content
from lango.store.engine.database import Operation, Row
from lango.store.memory.observations import BATCH_COLUMNS, OBSERVATION_COLUMNS
from lango.store.sessions import sessions
from lango.store.sessions.lineage import row_ranges
from lango.store.sessions.window import read_rows
from lango.store.transfer.export_format import FORMAT, VERSION, dump_line, row_to_line

PAGE = 50

_STATE_COLUMNS = "seq, revision, event_id, created_at, state_delta, extra"
_STATES = f"""
SELECT {_STATE_COLUMNS} FROM state_events_with_lineage
WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND revision <= $4 ORDER BY revision
"""  # noqa: S608 - constants
TURN_COLUMNS = (
    "turn, status, epoch, idempotency_key, created_at, started_at, ended_at, invocation_id, first_seq, input_tokens, "
    "output_tokens, cached_tokens, model_calls, cost_usd, extra, digest, first_epoch, attempts, resumptions"
)
_TURNS = f"""
SELECT {TURN_COLUMNS} FROM turns WHERE session_key = $1 AND status NOT IN ('queued', 'running') ORDER BY turn
"""  # noqa: S608 - constants
TOOL_JOURNAL_COLUMNS = (
    "call_id, epoch, name, effect, status, arguments, intended_at, started_at, finished_at, result, whole, approved, "
    "approved_by, approved_at"
)
_TOOL_JOURNAL = f"""
SELECT {TOOL_JOURNAL_COLUMNS} FROM tool_journal_with_lineage
WHERE session_key = $1 AND call_id = $2 AND epoch <= $3 ORDER BY epoch
"""  # noqa: S608 - constants
_BATCHES = f"""
SELECT {BATCH_COLUMNS} FROM observation_batches WHERE session_key = $1 AND last_seq <= $2 ORDER BY batch
"""  # noqa: S608 - constants
_OBSERVATIONS = f"""
SELECT {OBSERVATION_COLUMNS} FROM observations WHERE session_key = $1 AND batch = $2 ORDER BY number
"""  # noqa: S608 - constants

_MESSAGE_NAMES = [name.strip() for name in MESSAGE_COLUMNS.split(",")]
_STATE_NAMES = _STATE_COLUMNS.split(", ")
_TURN_NAMES = TURN_COLUMNS.split(", ")
_JOURNAL_NAMES = TOOL_JOURNAL_COLUMNS.split(", ")
_CALLS = _MESSAGE_NAMES.index("tool_calls")
_ROLE = _MESSAGE_NAMES.index("role")
_TOTAL = _MESSAGE_NAMES.index("total_tokens")
_MESSAGE_DELTA, _STATE_DELTA = (names.index("state_delta") for names in (_MESSAGE_NAMES, _STATE_NAMES))
_RESULT = _JOURNAL_NAMES.index("result")


class ExportState(Struct):
    """The session as it was when its export began."""

    session: SessionRecord
    turns: list[Row]
    artifacts: list[Artifact]
    contents: list[str]
    """The hashes of the contents of its messages and artifacts."""
    with_app_state: bool = True
    lines: int = 0
    open_calls: dict[str, bool] = {}
    """The calls of the messages read so far, and whether each has no result."""

    def count(self, lines: list[str]) -> list[str]:
        """Count lines. Operations do so after their last statement: they may be run again."""
        self.lines += len(lines)
        return lines


def begin_export(name: SessionId, with_app_state: bool = True) -> Operation[ExportState]:
    """Read the session and its ended turns. Raise `SessionNotFound`.

    Without `with_app_state`, changes of the state that all users share are left out.
    """
    session = yield from sessions.get_session(name)
    turns = yield _TURNS, (session.key,)
    artifacts = yield from read_all_versions(session.name)
    hashes = {artifact.hash for artifact in artifacts if artifact.hash is not None}
    for place in row_ranges(session, 1, session.last_seq):
        hashes.update((yield from hashes_of_messages(*place)))
    return ExportState(session, turns, artifacts, sorted(hashes), with_app_state)


def header_lines(export: ExportState) -> list[str]:
    """Return the first lines."""
    session = export.session
    header = {"kind": "header", "format": FORMAT, "version": VERSION}
    members = {
        "kind": "session",
        "app": session.name.app_name,
        "user": session.name.user_id,
        "id": session.name.id,
        "title": session.title,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "revision": session.revision,
        "epoch": session.epoch,
        "forked_from": session.forked_from and {"id": session.forked_from.id, "seq": session.forked_from.seq},
        "rewinds": [list(rewind) for rewind in session.rewinds] or None,
    }
    known = {name: value for name, value in members.items() if value is not None}
    return export.count([dump_line(header), dump_line(known)])


def content_line(export: ExportState, hash_: str, number: int) -> Operation[str | None]:
    """Read a piece of a content; return None if there is no further one. An empty content has one piece."""
    data = yield from read_chunk(hash_, number)
    if data is None and number == 0:
        data = yield from read_content(hash_)
        if data is None:
            raise SessionNotFound(f"a file of session {export.session.name.id!r} was deleted while it was read")
    if data is None:
        return None
    line = dump_line({"kind": "content", "hash": hash_, "number": number, "data": base64.b64encode(data).decode()})
    export.count([line])
    return line


def artifact_lines(export: ExportState) -> Iterator[str]:
    """Write the versions of artifacts that there were when the export began, each when it is asked for."""
    for artifact in export.artifacts:
        members = {
            "kind": "artifact",
            "name": artifact.name,
            "version": artifact.version,
            "content": artifact.kind,
            "mime_type": artifact.mime_type,
            "hash": artifact.hash,
            "size": artifact.size,
            "part": loads_untagged(dumps(artifact.part)) if artifact.part else None,
            "metadata": loads_untagged(dumps(artifact.metadata)) if artifact.metadata else None,
            "after_seq": artifact.after_seq,
            "created_at": artifact.created_at,
        }
        line = dump_line({name: value for name, value in members.items() if value is not None})
        yield from export.count([line])


def event_lines(export: ExportState, first: int) -> Operation[list[str]]:
    """Read a page of events in order, from a message on."""
    session = export.session
    last = min(first + PAGE - 1, session.last_seq)
    rows = yield from read_rows(session, first, last)
    if len(rows) != max(0, last - first + 1):
        raise SessionNotFound(f"session {session.name.id!r} was deleted while it was read")
    states = yield _STATES, (session.key, 0 if first == 1 else first, last, session.revision)
    placed = [(row[0], 1, row[1], row) for row in states] + [(row[0], 0, 0, row) for row in rows]
    lines = [
        row_to_line("state", _STATE_NAMES, _shown(export, row, _STATE_DELTA)) if is_state else _message(export, row)
        for _, is_state, _, row in sorted(placed, key=lambda place: place[:3])
    ]
    return export.count(lines)


def _message(export: ExportState, row: Row) -> str:
    for call in calls_from_json(row[_CALLS]) if row[_CALLS] else ():
        export.open_calls[call_key(call.id)] = call.output is None and row[_ROLE] not in RESULT_ROLES
    columns = [name for place, name in enumerate(_MESSAGE_NAMES) if place != _TOTAL]
    shown = _shown(export, row, _MESSAGE_DELTA)
    return row_to_line("message", columns, [value for place, value in enumerate(shown) if place != _TOTAL])


def _shown(export: ExportState, row: Row, delta_place: int) -> Row:
    """Return the row of an event, without changes of the app's state where they are left out."""
    text: str | None = row[delta_place]
    if export.with_app_state or text is None or APP_PREFIX not in text:
        return row
    return (*row[:delta_place], dumps(without_app_state(loads(text))), *row[delta_place + 1 :])


def turn_lines(export: ExportState) -> Iterator[str]:
    """Write the turns that had ended when the export began, each when it is asked for: there may be thousands."""
    for row in export.turns:
        yield from export.count([row_to_line("turn", _TURN_NAMES, row)])


def tool_journal_lines(export: ExportState, call_ids: list[str]) -> Operation[list[str]]:
    """Read the journal entries of some calls."""
    lines: list[str] = []
    for call_id in call_ids:
        for row in (yield _TOOL_JOURNAL, (export.session.key, call_id, export.session.epoch)):
            values = list(row)
            if not export.open_calls[call_id]:
                values[_RESULT] = None  # it is stored as a message
            lines.append(row_to_line("effect", _JOURNAL_NAMES, values))
    return export.count(lines)


def observation_lines(export: ExportState) -> Operation[list[str]]:
    """Read the observations."""
    session = export.session
    batches = yield _BATCHES, (session.key, session.last_seq)
    lines: list[str] = []
    for row in batches:
        lines.append(row_to_line("observation_batch", BATCH_COLUMNS.split(", "), row))
        notes = yield _OBSERVATIONS, (session.key, row[0])
        lines += [row_to_line("observation", OBSERVATION_COLUMNS.split(", "), note) for note in notes]
    return export.count(lines)


def end_line(export: ExportState) -> str:
    """Return the last line."""
    return dump_line({"kind": "end", "lines": export.lines})
