"""Read a session as export lines, a page at a time."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from lango.errors import SessionNotFound
from lango.sessions import APP_PREFIX, SessionId, SessionInfo, without_app_state
from lango.store.artifacts.artifacts import COLUMNS as ARTIFACT_COLUMNS
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import call_key
from lango.store.codec.rows import MESSAGE_COLUMNS, RESULT_ROLES, calls_from_json
from lango.store.contents import hashes_of_messages, read_chunk, read_content
from lango.store.engine.database import Operation, Row
from lango.store.sessions import sessions
from lango.store.sessions.lineage import row_ranges
from lango.store.sessions.window import read_rows
from lango.store.transfer.export_format import (
    FORMAT,
    VERSION,
    ArtifactLine,
    BatchLine,
    ObservationLine,
    StateLine,
    ToolJournalLine,
    TurnLine,
    columns_of,
    dump_line,
    row_to_line,
)

PAGE = 50

_MESSAGE_NAMES = [name.strip() for name in MESSAGE_COLUMNS.split(",")]
_STATE_NAMES = columns_of(StateLine)
_STATES = f"""
SELECT {", ".join(_STATE_NAMES)} FROM state_events_with_lineage
WHERE session_key = $1 AND seq >= $2 AND seq <= $3 AND revision <= $4 ORDER BY revision
"""  # noqa: S608 - constants
_TURN_NAMES = columns_of(TurnLine)
_TURNS = f"""
SELECT {", ".join(_TURN_NAMES)} FROM turns WHERE session_key = $1 AND status NOT IN ('queued', 'running') ORDER BY turn
"""  # noqa: S608 - constants
_JOURNAL_NAMES = columns_of(ToolJournalLine)
_TOOL_JOURNAL = f"""
SELECT {", ".join(_JOURNAL_NAMES)} FROM tool_journal_with_lineage
WHERE session_key = $1 AND call_id = $2 AND epoch <= $3 ORDER BY epoch
"""  # noqa: S608 - constants
_BATCH_NAMES = columns_of(BatchLine)
_BATCHES = f"""
SELECT {", ".join(_BATCH_NAMES)} FROM observation_batches WHERE session_key = $1 AND last_seq <= $2 ORDER BY batch
"""  # noqa: S608 - constants
_OBSERVATION_NAMES = columns_of(ObservationLine)
_OBSERVATIONS = f"""
SELECT {", ".join(_OBSERVATION_NAMES)} FROM observations WHERE session_key = $1 AND batch = $2 ORDER BY number
"""  # noqa: S608 - constants
_ARTIFACT_NAMES = columns_of(ArtifactLine)  # `content` is the column `kind`
_ARTIFACTS = f"""
SELECT {ARTIFACT_COLUMNS} FROM artifacts WHERE app_name = $1 AND user_id = $2 AND session_id = $3
"""  # noqa: S608 - constants


class ExportState(Struct):
    """The session as it was when its export began."""

    session: SessionInfo
    turns: list[Row]
    artifacts: list[Row]
    contents: list[str]
    """The hashes of the contents of its messages and artifacts."""
    with_app_state: bool = True
    open_calls: dict[str, bool] = {}
    """The calls of the messages read so far, and whether each has no result."""


def begin_export(name: SessionId, with_app_state: bool = True) -> Operation[ExportState]:
    """Read the session and its ended turns. Raise `SessionNotFound`.

    Without `with_app_state`, changes of the state that all users share are left out.
    """
    session = yield from sessions.get_session(name)
    turns = yield _TURNS, (session.key,)
    artifacts = yield _ARTIFACTS, astuple(session.name)
    hash_at = _ARTIFACT_NAMES.index("hash")
    hashes = {str(row[hash_at]) for row in artifacts if row[hash_at] is not None}
    for place in row_ranges(session, 1, session.last_seq):
        hashes.update((yield from hashes_of_messages(*place)))
    # sorted by name and version here: the databases order text differently
    return ExportState(
        session, turns, sorted(artifacts, key=lambda row: tuple(row[:2])), sorted(hashes), with_app_state
    )


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
    return [dump_line(header), dump_line(known)]


def content_line(export: ExportState, hash_: str, number: int) -> Operation[str | None]:
    """Read a piece of a content; return None if there is no further one. An empty content has one piece."""
    data = yield from read_chunk(hash_, number)
    if data is None and number == 0:
        data = yield from read_content(hash_)
        if data is None:
            raise SessionNotFound(f"a file of session {export.session.name.id!r} was deleted while it was read")
    if data is None:
        return None
    return dump_line({"kind": "content", "hash": hash_, "number": number, "data": base64.b64encode(data).decode()})


def event_lines(export: ExportState, first: int) -> Operation[list[str]]:
    """Read a page of events in order, from a message on."""
    session = export.session
    last = min(first + PAGE - 1, session.last_seq)
    rows = yield from read_rows(session, first, last)
    if len(rows) != max(0, last - first + 1):
        raise SessionNotFound(f"session {session.name.id!r} was deleted while it was read")
    states = yield _STATES, (session.key, 0 if first == 1 else first, last, session.revision)
    events = [("message", dict(zip(_MESSAGE_NAMES, row, strict=True))) for row in rows]
    events += [("state", dict(zip(_STATE_NAMES, row, strict=True))) for row in states]
    events.sort(key=lambda event: (event[1]["seq"], event[0], event[1].get("revision")))  # "message" before "state"
    for kind, columns in events:
        if kind == "message":
            _note_calls(export, columns)
            del columns["total_tokens"]
        changes: str | None = columns["state_delta"]
        if not export.with_app_state and changes and APP_PREFIX in changes:
            columns["state_delta"] = dumps(without_app_state(loads(changes)))
    return [row_to_line(kind, columns) for kind, columns in events]


def _note_calls(export: ExportState, columns: Mapping[str, Any]) -> None:
    """Note the calls that a message makes or answers."""
    for call in calls_from_json(columns["tool_calls"]) if columns["tool_calls"] else ():
        export.open_calls[call_key(call.id)] = call.output is None and columns["role"] not in RESULT_ROLES


def turn_lines(export: ExportState) -> Iterator[str]:
    """Write the turns that had ended when the export began, each when it is asked for: there may be thousands."""
    return _lines("turn", _TURN_NAMES, export.turns)


def tool_journal_lines(export: ExportState, call_ids: list[str]) -> Operation[list[str]]:
    """Read the journal entries of some calls, without the results that are stored as messages."""
    lines: list[str] = []
    for call_id in call_ids:
        for row in (yield _TOOL_JOURNAL, (export.session.key, call_id, export.session.epoch)):
            columns = dict(zip(_JOURNAL_NAMES, row, strict=True))
            lines.append(row_to_line("effect", columns if export.open_calls[call_id] else columns | {"result": None}))
    return lines


def observation_lines(export: ExportState) -> Operation[list[str]]:
    """Read the observations."""
    lines: list[str] = []
    for row in (yield _BATCHES, (export.session.key, export.session.last_seq)):
        lines += _lines("observation_batch", _BATCH_NAMES, [row])
        notes = yield _OBSERVATIONS, (export.session.key, row[_BATCH_NAMES.index("batch")])
        lines += _lines("observation", _OBSERVATION_NAMES, notes)
    return lines


def artifact_lines(export: ExportState) -> Iterator[str]:
    """Write the versions of artifacts that there were when the export began, each when it is asked for."""
    return _lines("artifact", _ARTIFACT_NAMES, export.artifacts)


def _lines(kind: str, names: list[str], rows: Iterable[Row]) -> Iterator[str]:
    return (row_to_line(kind, dict(zip(names, row, strict=True))) for row in rows)


def end_line(lines: int) -> str:
    """Return the last line, with the number of lines before it."""
    return dump_line({"kind": "end", "lines": lines})
