"""Read, list and cancel turns, and define what a turn's row keeps as JSON.

One turn of a session runs at a time, the others are queued in order, and an epoch fences the writes of each. A turn is
stored with its input before it runs. Its owner is the process that runs it, or will (`lango.store.turns.lease`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from msgspec import Struct, ValidationError, field, to_builtins

from lango.errors import InvalidExport, LangoError
from lango.events import TurnDone, TurnError, Usage
from lango.json_values import convert
from lango.model_options import ModelOptions
from lango.sessions import SessionId, Status, StoredEvent
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn
from lango.store.codec.rows import MESSAGE_COLUMNS, STATE_COLUMNS, row_to_event, row_to_state_event
from lango.store.engine.database import LARGEST, Operation
from lango.store.sessions.lineage import is_live, live_ranges
from lango.store.sessions.titles import READ_CHARACTERS, shorten_title
from lango.store.waits.waits import IS_OPEN, WaitAnswer
from lango.waits import Wait

_REQUEST_OF_INVOCATION = """
SELECT request FROM turns WHERE session_key = $1 AND invocation_id = $2 ORDER BY turn DESC LIMIT 1
"""
BY_IDEMPOTENCY_KEY = "SELECT turn, status, epoch, digest FROM turns WHERE session_key = $1 AND idempotency_key = $2"
_READ = """
SELECT t.status, COALESCE(t.invocation_id, ''), t.extra, COALESCE(t.owner, ''), COALESCE(o.heartbeat, -1),
    t.resumptions, t.request, t.epoch, t.first_seq, t.attempts, t.created_at, t.ended_at, COALESCE(t.version, ''),
    t.continued_seq, COALESCE(t.continued_epoch, t.first_epoch), t.answer_stored
FROM turns t LEFT JOIN owners o ON o.owner = t.owner WHERE t.session_key = $1 AND t.turn = $2
"""
# the range of a turn's messages; a turn without `first_seq` lies between its neighbours
_MESSAGE_RANGE = """
SELECT t.invocation_id, t.extra, t.first_seq,
    (SELECT p.first_seq FROM turns p WHERE p.session_key = $1 AND p.turn < $2 AND p.first_seq IS NOT NULL
        ORDER BY p.turn DESC LIMIT 1),
    (SELECT n.first_seq FROM turns n WHERE n.session_key = $1 AND n.turn > $2 AND n.first_seq IS NOT NULL
        ORDER BY n.turn LIMIT 1)
FROM turns t WHERE t.session_key = $1 AND t.turn = $2
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM messages WHERE session_key = $1 AND seq > $2 AND seq < $3 ORDER BY seq
"""  # noqa: S608 - constants
_CONVERSATION = f"""
SELECT {MESSAGE_COLUMNS} FROM messages_with_lineage WHERE session_key = $1 AND seq > $2 AND seq <= $3 ORDER BY seq
"""  # noqa: S608 - constants
_STATE_EVENTS_SINCE = f"""
SELECT {STATE_COLUMNS} FROM state_events WHERE session_key = $1 AND seq >= $2 ORDER BY seq, revision
"""  # noqa: S608 - constants
_CANCEL = """
UPDATE turns SET cancel_requested = 1 WHERE session_key = $1 AND status = 'running' AND turn >= $2 AND turn < $3
RETURNING turn
"""
_RESUMED = "SELECT first_seq, resumptions FROM turns WHERE session_key = $1 AND resumptions IS NOT NULL"
_UNFINISHED = """
SELECT s.app_name, s.user_id, s.id, t.turn, t.status, t.created_at, t.owner, t.attempts
FROM turns t JOIN sessions s ON s.session_key = t.session_key
WHERE t.status IN ('queued', 'running')
"""
# a question of a running tool does not pause its turn
_PAUSED = f"""
SELECT s.app_name, s.user_id, s.id, w.turn, 'paused', MIN(w.opened_at), NULL, 0
FROM waits w JOIN sessions s ON s.session_key = w.session_key
WHERE (w.user_id IS NOT NULL OR CAST($1 AS BIGINT) = 1) AND w.epoch IS NULL AND {IS_OPEN}
GROUP BY s.app_name, s.user_id, s.id, w.turn
"""  # noqa: S608 - constants
_FAILED = f"""
SELECT s.app_name, s.user_id, s.id, t.turn, COALESCE(t.ended_at, t.created_at), t.status, t.extra, t.attempts,
    t.first_seq, s.last_seq, s.rewinds,
    NOT EXISTS (
        SELECT 1 FROM turns n WHERE n.session_key = t.session_key AND n.turn > t.turn AND n.status <> 'steered'
    ),
    (SELECT SUBSTR(m.content, 1, {READ_CHARACTERS}) FROM messages m
     WHERE m.session_key = t.session_key AND m.seq = t.first_seq AND m.role = 'user')
FROM turns t JOIN sessions s ON s.session_key = t.session_key
WHERE t.status IN ('failed', 'interrupted') AND t.first_seq IS NOT NULL
    AND (CAST($1 AS TEXT) IS NULL OR s.app_name = $1) AND (CAST($2 AS TEXT) IS NULL OR s.user_id = $2)
ORDER BY COALESCE(t.ended_at, t.created_at) DESC LIMIT $3
"""  # noqa: S608 - constants


class TurnFailure(Struct, frozen=True, omit_defaults=True):
    """The error that a turn ended with."""

    type: str
    message: str
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: LangoError) -> Self:
        """Describe an error."""
        return cls(type(error).__name__, str(error), error.retry_after_s)


class TurnResult(Struct, frozen=True, omit_defaults=True):
    """How a turn ended, and what it used."""

    error: TurnFailure | None = None
    status: str = "done"
    """That of its `TurnDone`."""
    finish_reason: str = ""
    stop_sequence: str = ""
    output: Any = None
    """The final output of a workflow."""
    usage: Usage = field(default_factory=Usage)
    calls: Sequence[Mapping[str, Any]] = ()
    """The model calls, in order; see `lango.adk.turn.model_calls`."""
    invocations: Sequence[str] = ()
    """The ids of the invocations of ADK's Runner in this turn."""

    def encode(self) -> str:
        """Return the JSON that the row stores."""
        return dumps(to_builtins(self))

    @classmethod
    def decode(cls, text: str | None) -> Self:
        """Read the JSON of a row; without any, nothing is known of the end."""
        return convert(loads(text), cls) if text else cls()

    @classmethod
    def check(cls, text: str | None) -> None:
        """Raise `InvalidExport` if a text is not what a row stores."""
        try:
            cls.decode(text)
        except ValidationError as error:
            raise InvalidExport(f"extra: {error}") from error

    def final_event(
        self, event_id: int, turn: int, row_status: str, *, has_run: bool, waits: tuple[Wait, ...] = ()
    ) -> TurnDone | TurnError:
        """Build the final event of an ended turn from its row, and from the waits that hold it up, where known."""
        if row_status in ("done", "steered"):
            status: Any = self.status
            return TurnDone(
                event_id, turn, status, self.usage, self.finish_reason, self.output, waits, self.stop_sequence
            )
        failed = self.error or _default_failure(row_status, has_run=has_run)
        return TurnError(event_id, failed.type, failed.message, retry_after_s=failed.retry_after_s)


def _default_failure(row_status: str, *, has_run: bool) -> TurnFailure:
    if row_status == "cancelled" and not has_run:
        message = "the message was withdrawn before its turn started: send it with another key"
        return TurnFailure("TurnCancelled", message)
    if row_status == "cancelled":
        return TurnFailure("TurnCancelled", "the turn was stopped")
    message = "the process that ran this turn is gone; what was stored is kept: send the message again"
    return TurnFailure("TurnFailed", message)


class StoredClientTool(Struct, frozen=True):
    """A tool that the client runs itself, as it was defined."""

    name: str
    description: str
    parameters: Mapping[str, Any] | None = None


class StoredRequest(Struct, frozen=True):
    """What a turn's row keeps of the request that brought its input."""

    client_tools: Sequence[StoredClientTool] = ()
    options: ModelOptions = ModelOptions()
    answer: WaitAnswer | None = None
    """The answer that the input brings, without its content: the row of the wait has that."""
    retry_of: str = ""
    """The event with the results from which the turn continues, if it is a retry."""
    quota: str | None = None
    """What the turn's tokens are counted against."""
    tokens_per_day: int | None = None
    """The tokens that the quota allows in a day, or None if it has no limit."""
    trace: Mapping[str, str] = {}
    """The trace and span that the request belongs to."""

    @property
    def as_json(self) -> dict[str, Any]:
        """The request as a JSON object, without what it does not set."""
        return {name: value for name, value in to_builtins(self).items() if value}


def request_to_text(request: StoredRequest) -> str | None:
    """Write a request for a turn's row, or return None if it sets nothing."""
    return dumps(fields) if (fields := request.as_json) else None


def text_to_request(text: str | None) -> StoredRequest:
    """Read the request of a turn's row."""
    return convert(loads(text), StoredRequest) if text else StoredRequest()


class StoredTurn(Struct, frozen=True):
    """A turn as it is stored."""

    status: Status
    invocation_id: str
    result: TurnResult
    owner: str = ""
    heartbeat: int = -1
    """The owner's; -1: it has sent none."""
    resumptions: Sequence[Mapping[str, Any]] = ()
    """When and why it was resumed: `at` and `reason`."""
    request: StoredRequest = StoredRequest()
    """What came with its input."""
    epoch: int | None = None
    """None if it has not started."""
    first_seq: int | None = None
    """The message that started it."""
    attempts: int = 0
    """How often it was run again after a crash or a failure."""
    created_at: float = 0.0
    ended_at: float | None = None
    version: str = ""
    """The version of the app that ran it last."""
    continued_seq: int | None = None
    """The message from which it continued after an update of the app, or None if its record begins at `first_seq`."""
    record_epoch: int | None = None
    """The epoch under which the tool journal keeps its steps since then."""
    answer_stored: int = 0
    """1: the answer that ends it is stored."""

    @property
    def record_seq(self) -> int | None:
        """The message after which its record begins: what a run of it has stored, and another one replays."""
        return self.first_seq if self.continued_seq is None else self.continued_seq

    @property
    def client_request(self) -> Mapping[str, Any] | None:
        """The parameters of the client's request, if its API shows them again."""
        return self.request.options.client_request


class OpenTurn(Struct, frozen=True):
    """A queued or running turn, and the heartbeat of its owner; -1: the owner has sent none."""

    turn: int
    status: Status
    owner: str
    heartbeat: int = -1


class UnfinishedTurn(Struct, frozen=True):
    """A turn that has not ended."""

    session: SessionId
    turn: int | None
    """None: a turn of the session that this one was forked from."""
    status: Literal["queued", "running", "paused"]
    since: float
    """When its input was stored; of a paused one, when it asked."""
    owner: str = ""
    """The process that runs it; empty: it was released, or is paused."""
    attempts: int = 0
    """How often it was run again after a crash or a failure."""


class FailedTurn(Struct, frozen=True):
    """A turn that failed for good, or was interrupted: it does not continue by itself."""

    session: SessionId
    turn: int
    failed_at: float
    error: str
    """The type of the error."""
    message: str
    attempts: int
    """How often it was run again after a crash or a failure."""
    can_retry: bool
    """Whether it can be run again: no other turn followed it."""
    first_words: str = ""
    """Of the message that began it."""


def read_paused_request(key: int, invocation_id: str) -> Operation[StoredRequest]:
    """Return what came with the input of the newest turn of an invocation; an empty request if there is none."""
    rows = yield _REQUEST_OF_INVOCATION, (key, invocation_id)
    return text_to_request(rows[0][0] if rows else None)


def read_turn(key: int, turn: int) -> Operation[StoredTurn | None]:
    """Read a turn as it is stored."""
    rows = yield _READ, (key, turn)
    for status, invocation_id, extra, owner, heartbeat, resumptions, request, *others in rows:
        return StoredTurn(
            status,
            invocation_id,
            TurnResult.decode(extra),
            owner,
            heartbeat,
            loads(resumptions) if resumptions else (),
            text_to_request(request),
            *others,
        )
    return None


def read_resumptions(key: int) -> Operation[dict[int, list[dict[str, Any]]]]:
    """Read when and why the turns of a session were resumed, by the message that started each."""
    rows = yield _RESUMED, (key,)
    return {first_seq: loads(resumptions) for first_seq, resumptions in rows if first_seq is not None}


def read_turn_texts(key: int, turn: int) -> Operation[list[StoredEvent]]:
    """Read the messages of a turn that hold text of an agent."""
    found = yield from read_turn_messages(key, turn)
    return [event for event in found if event.message and event.message.role == "assistant" and event.message.content]


def read_turn_messages(key: int, turn: int) -> Operation[list[StoredEvent]]:
    """Read the messages of a turn after its input."""
    ranges = yield _MESSAGE_RANGE, (key, turn)
    for invocation_id, extra, first, before, after in ranges:
        rows = yield _MESSAGES, (key, first or before or 0, after or LARGEST)
        found = [row_to_event(row) for row in rows]
        own = {invocation_id, *TurnResult.decode(extra).invocations}
        return found if first else [event for event in found if event.invocation_id in own]
    return []


def read_turn_record(turn: Turn, first_seq: int) -> Operation[list[StoredEvent]]:
    """Read what is stored of a running turn after its input, also events that only change state, in order."""
    messages = yield _MESSAGES, (turn.session_key, first_seq, LARGEST)
    changes = yield _STATE_EVENTS_SINCE, (turn.session_key, first_seq)
    # a state event follows the message that was the newest when it happened
    found = [row_to_event(row) for row in messages] + [row_to_state_event(row) for row in changes]
    return sorted(found, key=lambda event: (event.seq, event.message is None))


def read_conversation(key: int, until: int, limit: int) -> Operation[list[StoredEvent]]:
    """Read the newest messages of a session up to one, also of the lineage, in order."""
    rows = yield _CONVERSATION, (key, until - limit, until)
    return [row_to_event(row) for row in rows]


def request_cancel(key: int, before: int | None = None, *, only: int | None = None) -> Operation[bool]:
    """Ask the owner of a session's running turn to stop it; return False if no such turn runs.

    Only a turn before `before` is stopped, or only the turn `only`.
    """
    first, end = (0, LARGEST if before is None else before) if only is None else (only, only + 1)
    return bool((yield _CANCEL, (key, first, end)))


def list_failed(app_name: str | None, user_id: str | None, limit: int) -> Operation[list[FailedTurn]]:
    """Return the turns that failed for good, the newest first, without those that a rewind removed.

    They are those of one app and user, or of any if that is None.
    """
    found: list[FailedTurn] = []
    for app, user, id_, turn, at, status, extra, attempts, first_seq, last_seq, rewinds, is_newest, text in (
        yield _FAILED, (app_name, user_id, limit)
    ):
        if is_live(first_seq, live_ranges(last_seq, loads(rewinds) if rewinds else ())):
            event = TurnResult.decode(extra).final_event(0, turn, status, has_run=True)
            error, message = (event.error, event.message) if isinstance(event, TurnError) else ("", "")
            name, first_words = SessionId(app, user, id_), shorten_title(text)
            found.append(FailedTurn(name, turn, at, error, message, attempts, bool(is_newest), first_words))
    return found


def list_unfinished(*, with_client_calls: bool = False) -> Operation[list[UnfinishedTurn]]:
    """Return the unfinished turns of all apps, the oldest first.

    `with_client_calls`: also those that wait only for a client, whose next message may close its calls.
    """
    rows = [*(yield _UNFINISHED, ()), *(yield _PAUSED, (int(with_client_calls),))]
    found = [
        UnfinishedTurn(SessionId(app, user, id_), turn, status, since, owner or "", attempts)
        for app, user, id_, turn, status, since, owner, attempts in rows
    ]
    return sorted(found, key=lambda one: one.since)
