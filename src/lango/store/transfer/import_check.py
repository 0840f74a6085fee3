"""Parse and check a whole export before anything is written."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, assert_never

from msgspec import Struct, field
from pydantic import ValidationError

from lango.errors import InvalidExport, Unstorable
from lango.json_values import MAX_VALUES, TooManyValues, ValueCounter, as_object, is_nested_deeper_than
from lango.messages import RESERVED_PREFIX, ToolCall
from lango.sessions import SessionId, StoredEvent, is_steering, without_reserved_state
from lango.store.artifacts.artifacts import USER_PREFIX, check_name, row_to_artifact
from lango.store.codec.json_text import dumps, loads, loads_untagged
from lango.store.codec.records import call_key, without_temporary_state
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
from lango.store.transfer.import_claims import without_claims
from lango.store.turns.turns import TurnResult
from lango.threads import stop_if_abandoned

Lines = Iterable[str | bytes]
_MOST_VALUES = 2 * MAX_VALUES
"""The most values of a line, more than any protocol accepts in one event."""
_MOST_EXTRA_VALUES = 20_000
"""The most values of a message without its text and calls: each is checked again whenever the message is loaded."""
_USUAL_EXTRA_VALUES = 100
"""Beyond these, each of them counts as a token, so that a window has few of them."""
_MOST_OPEN_CALLS = 1_000
_MOST_ARTIFACTS = 10_000
"""One transaction names them all."""
_MOST_BATCHES = 3_000
"""Each is compared with each rewind whenever the memory is read."""
_DEEPEST = 260
CheckEvent = Callable[[StoredEvent], int]
"""Refuses an event with any error; returns its tokens."""
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


class OpenCall(Struct, frozen=True):
    """A call without a result: its message, whether it is long-running, and what an approval request is about."""

    seq: int = 0
    waits: int = 0
    is_request: bool = False
    """Whether ADK requested something of a person by it: only turns of this store open these."""
    approves_call_id: str | None = None
    approves_call_seq: int | None = None


_NO_CALL = OpenCall()


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
    batches: int = 0
    lines: int = 0
    section: int = -1
    ended: bool = False
    state: dict[str, Any] = {}
    calls: set[str] = set()
    open_calls: dict[str, OpenCall] = {}
    tokens: list[int] = []
    """Those of each message, counted here."""
    seen: set[tuple[str, Any]] = set()
    artifacts: int = 0
    contents: ContentCheck = field(default_factory=ContentCheck)


def parse_lines(lines: Lines) -> Iterator[tuple[int, Line]]:
    """Parse lines one by one. Raise `InvalidExport`, which names the line."""
    for number, line in enumerate(lines, 1):
        stop_if_abandoned()
        try:
            text = line.decode() if isinstance(line, bytes) else line
            if text.strip():
                ValueCounter(_MOST_VALUES).feed(text.encode("utf-8", "surrogatepass"))
                yield number, without_claims(_line(text, number))
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
    members = as_object(value)
    version = members.get("version")
    if members.get("format") == FORMAT and type(version) is int and version > VERSION:
        raise InvalidExport(
            f"line {number}: a newer Lango wrote this (format {version}, this one supports {VERSION}): install a "
            "newer version"
        )
    model = KINDS.get(str(members.get("kind")))
    if model is None:
        raise InvalidExport(
            f"line {number} has a kind that this Lango does not know (format {VERSION}): a newer one wrote it, "
            "or it is not an export"
        )
    return model.model_validate(members)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def check_lines(
    lines: Lines, check_event: CheckEvent | None = None, credential_names: Collection[str] = ()
) -> CheckedImport:
    """Parse a whole export and check that its lines agree. Without `check_event`, tokens are as the export says.

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
            raise InvalidExport(
                f"line {number} contains a value that cannot be read back: {type(error).__name__}"
            ) from error
        checked.lines += 1
    if not checked.ended:
        raise InvalidExport(f"the export ends after {checked.lines} lines, before its last line: it is cut off")
    try:
        ValueCounter(_MOST_VALUES).feed(dumps(checked.state).encode())
    except TooManyValues as error:
        raise InvalidExport(f"the resulting state: {error}") from error
    return checked


def _check_order(checked: CheckedImport, line: Line) -> None:
    stage = next(place for place, kinds in enumerate(_ORDER) if isinstance(line, kinds))
    in_turn = stage == checked.section + 1 if stage < 2 else stage >= max(checked.section, 1)
    if checked.ended or not in_turn or (stage >= 2 and checked.session is None):
        raise InvalidExport(f"a line of kind {line.kind!r} is out of order")
    checked.section = stage


def _check(checked: CheckedImport, line: Line, also: CheckEvent | None) -> None:
    match line:
        case Header():
            pass
        case SessionLine():
            _check_session(checked, line)
        case ContentLine():
            checked.contents.add(line)
        case MessageLine():
            values = _count_extra_values(line)
            _check_message(checked, line)
            stored = row_to_event(row_values(line, MESSAGE_COLUMNS, checked.total_tokens, checked.credential_names))
            tokens = _check_readable(stored, checked, also)
            checked.tokens.append(max(tokens, values - _USUAL_EXTRA_VALUES))
            checked.total_tokens += checked.tokens[-1]
        case StateLine():
            _require(line.seq == checked.last_seq, "seq: must be that of the newest message")
            _require(
                checked.revision < line.revision <= session_line(checked).revision,
                "revision: must increase, up to the session's",
            )
            _require_unique(checked, "event", line.event_id)
            checked.revision = line.revision
            _check_readable(
                row_to_state_event(row_values(line, STATE_COLUMNS, 0, checked.credential_names)), checked, also
            )
        case EndLine():
            checked.contents.finish()
            _require(line.lines == checked.lines, f"it counts {line.lines} lines before it; there are {checked.lines}")
            _require(
                all(at <= checked.last_seq for at, _ in session_line(checked).rewinds),
                "a rewind names a message that does not exist",
            )
            waiting = sum(not call.is_request for call in checked.open_calls.values())
            _require(waiting <= _MOST_OPEN_CALLS, f"more than {_MOST_OPEN_CALLS} calls have no result")
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
            _require(line.turn > checked.turn, "turn: must increase")
            _require((line.epoch or 0) <= session_line(checked).epoch, "epoch: must be at most the session's")
            if line.idempotency_key is not None:
                _require_unique(checked, "idempotency_key", line.idempotency_key)
            checked.turn = line.turn
            TurnResult.check(line.column("extra"))
        case ToolJournalLine():
            _require(line.epoch <= session_line(checked).epoch, "epoch: must be at most the session's")
            _require(line.call_id in checked.calls, "call_id: no message has this call")
            _require_unique(checked, "effect", (line.call_id, line.epoch))
            line.column("result")
        case BatchLine():
            _require(line.batch > checked.batch, "batch: must increase")
            _require(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            checked.batch = line.batch
            checked.batches += 1
            _require(checked.batches <= _MOST_BATCHES, f"there are more than {_MOST_BATCHES} batches of observations")
        case ObservationLine():
            _require(line.batch == checked.batch, "batch: must be that of the line before")
            _require(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            _require_unique(checked, "observation", (line.batch, line.number))
        case _:
            assert_never(line)


def _check_artifact(checked: CheckedImport, line: ArtifactLine) -> None:
    try:
        check_name(line.name)
    except Unstorable as error:
        raise InvalidExport(str(error)) from error
    _require(not line.name.startswith(USER_PREFIX), "name: artifacts of a user are not part of a session")
    _require_unique(checked, "artifact", (line.name, line.version))
    checked.artifacts += 1
    _require(checked.artifacts <= _MOST_ARTIFACTS, f"there are more than {_MOST_ARTIFACTS} versions of artifacts")
    _require((line.hash is None) == (line.content == "uri"), "hash: bytes and text have one, a uri has none")
    _require(line.after_seq <= checked.last_seq, "after_seq: there is no such message")
    if line.hash is not None:
        checked.contents.use(line.hash, line.size)
    artifact = row_to_artifact(artifact_values(line))
    address: Any = artifact.part.get("file_data")
    _require(bool(address) == (line.content == "uri"), "part: only a uri has file_data")
    spelled = not {"fileData"} & artifact.part.keys() and (not address or isinstance(address.get("file_uri"), str))
    _require(spelled and (not address or "fileUri" not in address), "part: member names must be in snake_case")


def artifact_values(line: ArtifactLine) -> Row:
    """Return the columns of an artifact's row."""
    columns = (line.name, line.version, line.content, line.mime_type, line.hash, line.size)
    return (*columns, line.column("part"), line.column("metadata"), line.after_seq, line.created_at)


def _check_session(checked: CheckedImport, line: SessionLine) -> None:
    try:
        SessionId(line.app, line.user, line.id).check()
        _require(clean_title(line.title) == line.title, "title: must be one line, and not empty")
    except Unstorable as error:
        raise InvalidExport(str(error)) from error
    ends = [at for at, _ in line.rewinds]
    _require(ends == sorted(set(ends)), "rewinds: must be in order")
    _require(all(first < at for at, first in line.rewinds), "rewinds: each must remove messages before it")
    checked.session = line


def _check_message(checked: CheckedImport, line: MessageLine) -> None:
    _require(line.seq == checked.last_seq + 1, f"seq: must be {checked.last_seq + 1}")
    _require(line.call_seq is None or line.call_seq < line.seq, "call_seq: a call comes before its result")
    _require_unique(checked, "event", line.event_id)
    checked.last_seq = line.seq
    if line.role == "user" and not is_steering(line.extra):
        checked.user_seq = line.seq
    calls, waits = line.column("tool_calls"), long_running_call_ids(line.column("extra"))
    for call in calls_from_json(calls) if calls else ():
        _track_call(checked, line, call, int(call.id in waits))


def _count_extra_values(line: MessageLine) -> int:
    """Count the values in `extra`. Raise `InvalidExport` if there are too many."""
    counter = ValueCounter(_MOST_EXTRA_VALUES)
    try:
        counter.feed((line.column("extra") or "").encode("utf-8", "surrogatepass"))
    except TooManyValues as error:
        raise InvalidExport(f"extra: {error}") from error
    return counter.count


def _track_call(checked: CheckedImport, line: MessageLine, call: ToolCall, waits: int) -> None:
    """Open or close a call, as `append` does."""
    made, about = call_key(call.id), approval_subject(call)
    checked.calls.add(made)
    if call.output is not None or line.role in RESULT_ROLES:
        closed = checked.open_calls.pop(made, _NO_CALL)
        if closed.approves_call_id is not None and closed.approves_call_seq is not None:
            checked.open_calls[closed.approves_call_id] = OpenCall(closed.approves_call_seq)
    elif about:
        approves_call_id = call_key(about["id"])
        approves_call_seq = checked.open_calls.get(approves_call_id, _NO_CALL).seq or None
        checked.open_calls.setdefault(
            made,
            OpenCall(
                line.seq, 1, is_request=True, approves_call_id=approves_call_id, approves_call_seq=approves_call_seq
            ),
        )
    else:
        checked.open_calls[made] = OpenCall(line.seq, waits, is_request=call.name.startswith(RESERVED_PREFIX))


def _check_readable(stored: StoredEvent, checked: CheckedImport, also: CheckEvent | None) -> int:
    """Check that an event can be decoded, and return its tokens."""
    if stored.state_delta:
        own, _, _ = state.split_scopes(without_temporary_state(stored.state_delta))
        checked.state |= own
    contents = contents_of_event(stored)
    for data in contents:
        checked.contents.use(data.hash, data.size)
    if also is None:
        return stored.tokens
    counted = also(stored)
    return max(counted, stored.tokens) if contents else counted  # the text of a file is not at hand


def session_line(checked: CheckedImport) -> SessionLine:
    """Return the session line of a checked export."""
    assert checked.session
    return checked.session


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidExport(otherwise)


def _require_unique(checked: CheckedImport, kind: str, id_: Any) -> None:
    _require((kind, id_) not in checked.seen, f"duplicate {kind} {id_!r}")
    checked.seen.add((kind, id_))


def row_values(line: Line, columns: str, total_tokens: int, credential_names: Collection[str]) -> Row:
    """Return the values of some columns; the state comes without what clients may not write."""
    return tuple(_value(line, name.strip(), total_tokens, credential_names) for name in columns.split(","))


def _value(line: Line, name: str, total_tokens: int, credential_names: Collection[str]) -> Any:
    if name == "state_delta" and (text := line.column(name)):
        return dumps(without_reserved_state(loads(text), credential_names))
    if name in line.json_columns:
        return line.column(name)
    return total_tokens if name == "total_tokens" else getattr(line, name)
