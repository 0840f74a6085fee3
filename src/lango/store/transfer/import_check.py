"""Parse and check a whole export before anything is written."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, assert_never, cast

from msgspec import Struct, field
from pydantic import ValidationError

from lango.errors import InvalidExport, Unstorable
from lango.json_input import MAX_VALUES, TooManyValues, ValueCounter, is_nested_deeper_than
from lango.messages import ToolCall
from lango.store.artifacts.artifacts import USER_PREFIX, check_name, row_to_artifact
from lango.store.codec.ids import call_key, shorten
from lango.store.codec.json_text import dumps, loads, loads_untagged
from lango.store.codec.records import SessionId, StoredEvent, without_temporary_state
from lango.store.codec.rows import (
    MESSAGE_COLUMNS,
    RESULT_ROLES,
    STATE_COLUMNS,
    approval_subject,
    calls_from_json,
    long_running_call_ids,
    row_to_event,
    row_to_state_event,
)
from lango.store.contents import contents_of_event
from lango.store.engine.database import Row
from lango.store.sessions import state
from lango.store.sessions.client_state import without_reserved_state
from lango.store.sessions.titles import clean_title
from lango.store.transfer.content_check import ContentCheck
from lango.store.transfer.export_format import (
    FORMAT,
    KINDS,
    VERSION,
    ArtifactLine,
    BatchLine,
    ContentLine,
    EndLine,
    Header,
    Line,
    MessageLine,
    ObservationLine,
    SessionLine,
    StateLine,
    ToolJournalLine,
    TurnLine,
)

Lines = Iterable[str | bytes]
_MOST_VALUES = 2 * MAX_VALUES
"""The most values of a line, more than any protocol accepts in one event."""
_DEEPEST = 260
_ORDER: list[tuple[type[Line], ...]] = [
    (Header,),
    (SessionLine,),
    (ContentLine,),
    (MessageLine, StateLine),
    (TurnLine,),
    (ToolJournalLine,),
    (BatchLine, ObservationLine),
    (ArtifactLine,),
    (EndLine,),
]


_OpenCall = tuple[int, int, str | None, int | None]
"""An open call: its message, whether it is long-running, and the call that an approval request is about."""
_NO_CALL: _OpenCall = (0, 0, None, None)


class CheckedImport(Struct):
    """The values that the lines of a session lead to."""

    session: SessionLine | None = None
    credential_names: Collection[str] = ()
    last_seq: int = 0
    user_seq: int = 0
    total_tokens: int = 0
    revision: int = -1
    turn: int = 0
    batch: int = 0
    lines: int = 0
    section: int = -1
    ended: bool = False
    state: dict[str, Any] = {}
    open_calls: dict[str, _OpenCall] = {}
    seen: set[tuple[str, Any]] = set()
    turns: list[Row] = []
    contents: ContentCheck = field(default_factory=ContentCheck)


def parse_lines(lines: Lines) -> Iterator[tuple[int, Line]]:
    """Parse lines one by one. Raise `InvalidExport`, which names the line."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode() if isinstance(line, bytes) else line
            if text.strip():
                ValueCounter(_MOST_VALUES).feed(text.encode("utf-8", "surrogatepass"))
                yield number, _line(text, number)
        except TooManyValues as error:
            raise InvalidExport(f"line {number}: {error}") from error
        except ValidationError as error:
            raise InvalidExport(f"line {number}: {_problem(error)}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidExport(f"line {number} is not JSON of this format") from error


def _line(text: str, number: int) -> Line:
    value: Any = loads_untagged(text)
    if is_nested_deeper_than(value, _DEEPEST):
        raise InvalidExport(f"line {number}: a value is nested more than {_DEEPEST} levels deep")
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    version = members.get("version")
    if members.get("format") == FORMAT and type(version) is int and version > VERSION:
        raise InvalidExport(
            f"line {number}: a newer Lango wrote this (format {version}, this one knows {VERSION}): install a "
            "newer version"
        )
    model = KINDS.get(str(members.get("kind")))
    if model is None:
        raise InvalidExport(
            f"line {number} is of a kind that this Lango does not know (format {VERSION}): it was written by a newer "
            "one, or it is no export"
        )
    return model.model_validate(members)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def check_lines(
    lines: Lines, check_event: Callable[[StoredEvent], None] | None = None, credential_names: Collection[str] = ()
) -> CheckedImport:
    """Parse a whole export and check that its lines agree. `check_event` may refuse an event with any error.

    `credential_names` are those under which tools look for credentials in the state: they are left out.
    """
    checked = CheckedImport(credential_names=credential_names)
    for number, line in parse_lines(lines):
        try:
            _check_order(checked, line)
            _check(checked, line, check_event)
        except InvalidExport as error:
            raise InvalidExport(f"line {number}: {error}") from error
        except Exception as error:
            raise InvalidExport(f"line {number} holds what cannot be read back: {type(error).__name__}") from error
        checked.lines += 1
    if not checked.ended:
        raise InvalidExport(f"the export ends after {checked.lines} lines, before its last line: it is cut off")
    try:
        ValueCounter(_MOST_VALUES).feed(dumps(checked.state).encode())
    except TooManyValues as error:
        raise InvalidExport(f"the state that these lines come to: {error}") from error
    return checked


def _check_order(checked: CheckedImport, line: Line) -> None:
    stage = next(place for place, kinds in enumerate(_ORDER) if isinstance(line, kinds))
    in_turn = stage == checked.section + 1 if stage < 2 else stage >= max(checked.section, 1)
    if checked.ended or not in_turn or (stage >= 2 and checked.session is None):
        raise InvalidExport(f"a line of kind {line.kind!r} does not belong here")
    checked.section = stage


def _check(checked: CheckedImport, line: Line, also: Callable[[StoredEvent], None] | None) -> None:
    match line:
        case Header():
            pass
        case SessionLine():
            _check_session(checked, line)
        case ContentLine():
            checked.contents.add(line)
        case MessageLine():
            _check_message(checked, line)
            _check_readable(
                row_to_event(row_values(line, MESSAGE_COLUMNS, checked.total_tokens, checked.credential_names)),
                checked,
                also,
            )
        case StateLine():
            _require(line.seq == checked.last_seq, "seq: it stands after the newest message")
            _require(
                checked.revision < line.revision <= session_line(checked).revision,
                "revision: they grow, up to the session's",
            )
            _require_unique(checked, "event", line.event_id)
            checked.revision = line.revision
            _check_readable(
                row_to_state_event(row_values(line, STATE_COLUMNS, 0, checked.credential_names)), checked, also
            )
        case EndLine():
            checked.contents.finish()
            _require(
                line.lines == checked.lines, f"it speaks of {line.lines} lines before it; there are {checked.lines}"
            )
            _require(
                all(at <= checked.last_seq for at, _ in session_line(checked).rewinds), "a rewind names no message"
            )
            checked.ended = True
        case _:
            _check_record(checked, line)


def _check_record(
    checked: CheckedImport, line: TurnLine | ToolJournalLine | BatchLine | ObservationLine | ArtifactLine
) -> None:
    match line:
        case ArtifactLine():
            _check_artifact(checked, line)
        case TurnLine():
            _require(line.turn > checked.turn, "turn: they grow")
            _require((line.epoch or 0) <= session_line(checked).epoch, "epoch: at most the session's")
            if line.idempotency_key is not None:
                _require_unique(checked, "idempotency_key", line.idempotency_key)
            checked.turn = line.turn
            line.column("extra")
        case ToolJournalLine():
            _require(line.epoch <= session_line(checked).epoch, "epoch: at most the session's")
            _require_unique(checked, "effect", (line.call_id, line.epoch))
            line.column("result")
        case BatchLine():
            _require(line.batch > checked.batch, "batch: they grow")
            _require(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            checked.batch = line.batch
        case ObservationLine():
            _require(line.batch == checked.batch, "batch: it belongs to the one before it")
            _require(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            _require_unique(checked, "observation", (line.batch, line.number))
        case _:
            assert_never(line)


def _check_artifact(checked: CheckedImport, line: ArtifactLine) -> None:
    try:
        check_name(line.name)
    except Unstorable as error:
        raise InvalidExport(str(error)) from error
    _require(not line.name.startswith(USER_PREFIX), "name: artifacts of users are not part of a session")
    _require_unique(checked, "artifact", (line.name, line.version))
    _require((line.hash is None) == (line.content == "uri"), "hash: of bytes and text, and of nothing else")
    _require(line.after_seq <= checked.last_seq, "after_seq: there is no such message")
    if line.hash is not None:
        checked.contents.use(line.hash, line.size)
    artifact = row_to_artifact(artifact_values(line))
    _require(line.content != "uri" or bool(artifact.part.get("file_data")), "part: a uri has file_data")


def artifact_values(line: ArtifactLine) -> Row:
    """Return the columns of an artifact's row."""
    columns = (line.name, line.version, line.content, line.mime_type, line.hash, line.size)
    return (*columns, line.column("part"), line.column("metadata"), line.after_seq, line.created_at)


def _check_session(checked: CheckedImport, line: SessionLine) -> None:
    try:
        SessionId(line.app, line.user, line.id).check()
        _require(clean_title(line.title) == line.title, "title: one line, not empty")
    except Unstorable as error:
        raise InvalidExport(str(error)) from error
    ends = [at for at, _ in line.rewinds]
    _require(ends == sorted(set(ends)), "rewinds: in order")
    _require(all(first < at for at, first in line.rewinds), "rewinds: each takes back what is before it")
    checked.session = line


def _check_message(checked: CheckedImport, line: MessageLine) -> None:
    _require(line.seq == checked.last_seq + 1, f"seq: {checked.last_seq + 1} comes next")
    _require(line.call_seq is None or line.call_seq < line.seq, "call_seq: a call stands before its result")
    _require_unique(checked, "event", line.event_id)
    checked.last_seq = line.seq
    checked.user_seq = line.seq if line.role == "user" else checked.user_seq
    checked.total_tokens += line.tokens
    calls, waits = line.column("tool_calls"), long_running_call_ids(line.column("extra"))
    for call in calls_from_json(calls) if calls else ():
        _track_call(checked, line, call, int(call.id in waits))


def _track_call(checked: CheckedImport, line: MessageLine, call: ToolCall, waits: int) -> None:
    """Open or close a call, as `append` does."""
    made, about = call_key(call.id), approval_subject(call)
    if call.output is not None or line.role in RESULT_ROLES:
        _, _, approves_call_id, approves_call_seq = checked.open_calls.pop(made, _NO_CALL)
        if approves_call_id is not None and approves_call_seq is not None:
            checked.open_calls[approves_call_id] = (approves_call_seq, 0, None, None)
    elif about:
        approves_call_id = call_key(about["id"])
        approves_call_seq = checked.open_calls.get(approves_call_id, _NO_CALL)[0] or None
        checked.open_calls.setdefault(made, (line.seq, 1, approves_call_id, approves_call_seq))
    else:
        checked.open_calls[made] = (line.seq, waits, None, None)


def _check_readable(stored: StoredEvent, checked: CheckedImport, also: Callable[[StoredEvent], None] | None) -> None:
    """Check that an event can be decoded."""
    if stored.state_delta:
        own, _, _ = state.split_scopes(without_temporary_state(stored.state_delta))
        checked.state |= own
    for data in contents_of_event(stored):
        checked.contents.use(data.hash, data.size)
    if also is not None:
        also(stored)


def session_line(checked: CheckedImport) -> SessionLine:
    """Return the session line of a checked export."""
    assert checked.session
    return checked.session


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidExport(otherwise)


def _require_unique(checked: CheckedImport, kind: str, id_: Any) -> None:
    _require((kind, id_) not in checked.seen, f"{kind} {id_!r} is there twice")
    checked.seen.add((kind, id_))


def row_values(line: Line, columns: str, total_tokens: int, credential_names: Collection[str]) -> Row:
    """Return the values of some columns; the state comes without what clients may not write."""
    return tuple(_value(line, name.strip(), total_tokens, credential_names) for name in columns.split(","))


def _value(line: Line, name: str, total_tokens: int, credential_names: Collection[str]) -> Any:
    if name == "state_delta" and (text := line.column(name)):
        return dumps(without_reserved_state(loads(text), credential_names))
    if name in line.json_columns:
        return line.column(name)
    if isinstance(line, MessageLine | StateLine) and name in ("event_id", "invocation_id"):
        return shorten(getattr(line, name))
    return total_tokens if name == "total_tokens" else getattr(line, name)
