"""Reading the lines of `lango.store.transfer.export_format`: checked whole before anything is written.

Then the rows are written in short transactions, so that others write in between, to a session that no user sees; the
last transaction gives it its name. So an import is there whole or not at all.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never, cast

from msgspec import Struct, field
from pydantic import ValidationError

from lango.errors import InvalidExport, Unstorable
from lango.json_input import MAX_VALUES, TooManyValues, ValueCounter, is_deeper_than
from lango.messages import ToolCall
from lango.store.codec.ids import call_key, shorten
from lango.store.codec.json_text import dumps, plain_loads
from lango.store.codec.records import SessionId, Stored, without_temp
from lango.store.codec.rows import (
    MESSAGE_COLUMNS,
    RESULT_ROLES,
    STATE_COLUMNS,
    asked_about,
    calls_from_json,
    from_message_row,
    from_state_row,
    long_running,
)
from lango.store.engine.database import Row
from lango.store.sessions import state
from lango.store.sessions.titles import cleaned
from lango.store.transfer.export_format import (
    FORMAT,
    KINDS,
    VERSION,
    BatchLine,
    EffectLine,
    EndLine,
    Header,
    Line,
    MessageLine,
    ObservationLine,
    SessionLine,
    StateLine,
    TurnLine,
)

Lines = Iterable[str | bytes]
_MOST_VALUES = 2 * MAX_VALUES
"""Of one line: more than any door lets into one event."""
_DEEPEST = 260
_ORDER: list[tuple[type[Line], ...]] = [
    (Header,),
    (SessionLine,),
    (MessageLine, StateLine),
    (TurnLine,),
    (EffectLine,),
    (BatchLine, ObservationLine),
    (EndLine,),
]


_Open = tuple[int, int, str | None, int | None]
"""A call without a result: its message, whether it may take long, and, of a question, what it is about."""
_CLOSED: _Open = (0, 0, None, None)


class Checked(Struct):
    """What the lines of one session come to."""

    session: SessionLine | None = None
    last_seq: int = 0
    user_seq: int = 0
    total_tokens: int = 0
    revision: int = -1
    turn: int = 0
    batch: int = 0
    lines: int = 0
    stage: int = -1
    ended: bool = False
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    open_calls: dict[str, _Open] = field(default_factory=dict[str, _Open])
    seen: set[tuple[str, Any]] = field(default_factory=set[tuple[str, Any]])
    turns: list[Row] = field(default_factory=list[Row])


def parsed(lines: Lines) -> Iterator[tuple[int, Line]]:
    """Read lines one by one. Raise `InvalidExport` that names the line."""
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
    value: Any = plain_loads(text)
    if is_deeper_than(value, _DEEPEST):
        raise InvalidExport(f"line {number}: a value is nested more than {_DEEPEST} levels deep")
    told = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    version = told.get("version")
    if told.get("format") == FORMAT and type(version) is int and version > VERSION:
        raise InvalidExport(
            f"line {number}: a newer Lango wrote this (format {version}, this one knows {VERSION}): upgrade with "
            "`pip install --upgrade lango-adk`"
        )
    model = KINDS.get(str(told.get("kind")))
    if model is None:
        raise InvalidExport(
            f"line {number} is of a kind that this Lango does not know (format {VERSION}): it was written by a newer "
            "one, or it is no export"
        )
    return model.model_validate(told)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


# -- checking ------------------------------------------------------------------------------------------------------


def check(lines: Lines, also: Callable[[Stored], None] | None = None) -> Checked:
    """Read a whole export and check that it fits together. `also` may refuse an event with any error."""
    checked = Checked()
    for number, line in parsed(lines):
        try:
            _check_order(checked, line)
            _check(checked, line, also)
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


def _check_order(checked: Checked, line: Line) -> None:
    stage = next(place for place, kinds in enumerate(_ORDER) if isinstance(line, kinds))
    in_turn = stage == checked.stage + 1 if stage < 2 else stage >= max(checked.stage, 1)
    if checked.ended or not in_turn or (stage >= 2 and checked.session is None):
        raise InvalidExport(f"a line of kind {line.kind!r} does not belong here")
    checked.stage = stage


def _check(checked: Checked, line: Line, also: Callable[[Stored], None] | None) -> None:
    match line:
        case Header():
            pass
        case SessionLine():
            _check_session(checked, line)
        case MessageLine():
            _check_message(checked, line)
            _read_back(from_message_row(row_values(line, MESSAGE_COLUMNS, checked.total_tokens)), checked, also)
        case StateLine():
            _must(line.seq == checked.last_seq, "seq: it stands after the newest message")
            _must(
                checked.revision < line.revision <= session_line(checked).revision,
                "revision: they grow, up to the session's",
            )
            _once(checked, "event", line.event_id)
            checked.revision = line.revision
            _read_back(from_state_row(row_values(line, STATE_COLUMNS, 0)), checked, also)
        case EndLine():
            _must(line.lines == checked.lines, f"it speaks of {line.lines} lines before it; there are {checked.lines}")
            _must(all(at <= checked.last_seq for at, _ in session_line(checked).rewinds), "a rewind names no message")
            checked.ended = True
        case _:
            _check_beside(checked, line)


def _check_beside(checked: Checked, line: TurnLine | EffectLine | BatchLine | ObservationLine) -> None:
    match line:
        case TurnLine():
            _must(line.turn > checked.turn, "turn: they grow")
            _must((line.epoch or 0) <= session_line(checked).epoch, "epoch: at most the session's")
            if line.idempotency_key is not None:
                _once(checked, "idempotency_key", line.idempotency_key)
            checked.turn = line.turn
            line.column("extra")
        case EffectLine():
            _must(line.epoch <= session_line(checked).epoch, "epoch: at most the session's")
            _once(checked, "effect", (line.call_id, line.epoch))
            line.column("result")
        case BatchLine():
            _must(line.batch > checked.batch, "batch: they grow")
            _must(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            checked.batch = line.batch
        case ObservationLine():
            _must(line.batch == checked.batch, "batch: it belongs to the one before it")
            _must(line.first_seq <= line.last_seq <= checked.last_seq, "last_seq: there is no such message")
            _once(checked, "observation", (line.batch, line.number))
        case _:
            assert_never(line)


def _check_session(checked: Checked, line: SessionLine) -> None:
    try:
        SessionId(line.app, line.user, line.id).check()
        _must(cleaned(line.title) == line.title, "title: one line, not empty")
    except Unstorable as error:
        raise InvalidExport(str(error)) from error
    ends = [at for at, _ in line.rewinds]
    _must(ends == sorted(set(ends)), "rewinds: in order")
    _must(all(first < at for at, first in line.rewinds), "rewinds: each takes back what is before it")
    checked.session = line


def _check_message(checked: Checked, line: MessageLine) -> None:
    _must(line.seq == checked.last_seq + 1, f"seq: {checked.last_seq + 1} comes next")
    _must(line.call_seq is None or line.call_seq < line.seq, "call_seq: a call stands before its result")
    _once(checked, "event", line.event_id)
    checked.last_seq = line.seq
    checked.user_seq = line.seq if line.role == "user" else checked.user_seq
    checked.total_tokens += line.tokens
    calls, waits = line.column("tool_calls"), long_running(line.column("extra"))
    for call in calls_from_json(calls) if calls else ():
        _track(checked, line, call, int(call.id in waits))


def _track(checked: Checked, line: MessageLine, call: ToolCall, waits: int) -> None:
    """Note a call that waits for a result, or strike one that got it, as appending does."""
    made, about = call_key(call.id), asked_about(call)
    if call.output is not None or line.role in RESULT_ROLES:
        _, _, asks_about, about_seq = checked.open_calls.pop(made, _CLOSED)
        if asks_about is not None and about_seq is not None:
            checked.open_calls[asks_about] = (about_seq, 0, None, None)
    elif about:
        asks_about = call_key(about["id"])
        about_seq = checked.open_calls.get(asks_about, _CLOSED)[0] or None
        checked.open_calls.setdefault(made, (line.seq, 1, asks_about, about_seq))
    else:
        checked.open_calls[made] = (line.seq, waits, None, None)


def _read_back(stored: Stored, checked: Checked, also: Callable[[Stored], None] | None) -> None:
    """What is written must be read again one day."""
    if stored.state_delta:
        own, _, _ = state.split_scopes(without_temp(stored.state_delta))
        checked.state |= own
    if also is not None:
        also(stored)


def session_line(checked: Checked) -> SessionLine:
    """Return the line of the session, which a checked export has."""
    assert checked.session
    return checked.session


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvalidExport(otherwise)


def _once(checked: Checked, kind: str, id_: Any) -> None:
    _must((kind, id_) not in checked.seen, f"{kind} {id_!r} is there twice")
    checked.seen.add((kind, id_))


def row_values(line: Line, columns: str, total_tokens: int) -> Row:
    """Return the values of some columns."""
    return tuple(_value(line, name.strip(), total_tokens) for name in columns.split(","))


def _value(line: Line, name: str, total_tokens: int) -> Any:
    if name in line.json_columns:
        return line.column(name)
    if isinstance(line, MessageLine | StateLine) and name in ("event_id", "invocation_id"):
        return shorten(getattr(line, name))
    return total_tokens if name == "total_tokens" else getattr(line, name)
