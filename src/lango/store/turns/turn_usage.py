"""Operations that read what turns took: the newest few with their tools, and the sum of all."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from lango.events import Usage
from lango.json_values import convert
from lango.sessions import SessionInfo, Status, as_datetime
from lango.store.codec.json_text import loads
from lango.store.engine.database import LARGEST, Dialect, Operation, Row
from lango.store.sessions.lineage import is_live, live_ranges, total_tokens_at
from lango.store.tool_calls.tool_journal import seconds_between
from lango.store.turns.turns import TurnResult

# what the session had before a turn is in the running total of the turn's first message
_TURNS = """
SELECT t.turn, t.status, t.first_epoch, COALESCE(t.started_at, t.created_at), t.ended_at, t.first_seq,
    m.total_tokens - m.tokens, t.input_tokens, t.output_tokens, t.cached_tokens, t.model_calls, t.cost_usd, t.extra,
    t.resumptions, COALESCE(t.begun_version, ''), COALESCE(t.version, '')
FROM turns t LEFT JOIN messages m ON m.session_key = t.session_key AND m.seq = t.first_seq
WHERE t.session_key = $1 AND t.turn < $2 ORDER BY t.turn DESC LIMIT $3
"""
_NEXT_FIRST_SEQ = """
SELECT t.first_seq, m.total_tokens - m.tokens, t.first_epoch
FROM turns t JOIN messages m ON m.session_key = t.session_key AND m.seq = t.first_seq
WHERE t.session_key = $1 AND t.turn >= $2 ORDER BY t.turn LIMIT 1
"""
_TOOLS = """
SELECT epoch, call_id, name,
    CASE WHEN result LIKE '{"error":%' OR result LIKE '{"failure":{"module":%' THEN 'failed' ELSE status END,
    started_at, finished_at, CASE WHEN approved = 1 THEN approved_by END, intended_at
FROM tool_journal WHERE session_key = $1 AND epoch >= $2 AND epoch < $3 ORDER BY epoch, intended_at, call_id
"""
_OPEN_WAITS = """
SELECT turn, COALESCE(about_id, id) FROM waits
WHERE session_key = $1 AND turn IS NOT NULL AND closed IS NULL AND answered_at IS NULL
"""
_TOTALS = """
SELECT COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(cached_tokens), SUM(model_calls), SUM(cost_usd)
FROM turns WHERE session_key = $1
"""
# days since 1970, UTC
_DAY = "CAST(FLOOR(t.created_at) AS BIGINT) / 86400"
_TURNS_BY_DAY = """
SELECT {day}, COUNT(*), SUM(CASE WHEN t.status IN ('failed', 'interrupted') THEN 1 ELSE 0 END)
FROM sessions s JOIN turns t ON t.session_key = s.session_key
WHERE s.app_name = $1 AND s.updated_at >= $2 AND t.created_at >= $2 {of_user} GROUP BY 1 ORDER BY 1
"""
# PostgreSQL refuses some characters that JSON can escape, such as \\u0000 in the name of a model: it sees no escape
_EXTRA = r"REPLACE(REPLACE(t.extra, '\\', '//'), '\u', '/u')"
_CALLS_BY_DAY = """
SELECT {day}, CAST(c.value -> 'model' AS TEXT), COUNT(*), {sums}, MAX({duration})
FROM sessions s JOIN turns t ON t.session_key = s.session_key {calls}
WHERE s.app_name = $1 AND s.updated_at >= $2 AND t.created_at >= $2 {of_user} GROUP BY 1, 2 ORDER BY 1, 2
"""
_CALLS: Mapping[Dialect, str] = {
    "sqlite": f"JOIN json_each({_EXTRA}, '$.calls') c",
    "postgres": f"CROSS JOIN LATERAL json_array_elements(CAST({_EXTRA} AS json) -> 'calls') AS c(value)",
}
_DURATION = "CAST(CAST(c.value -> 'duration_s' AS TEXT) AS DOUBLE PRECISION)"
_SUMS = ", ".join(
    f"SUM(COALESCE(CAST(CAST(c.value -> '{name}' AS TEXT) AS BIGINT), 0))"
    for name in ("input_tokens", "output_tokens", "cached_tokens")
)
NEWEST_TURN = LARGEST


class ModelCall(Struct, frozen=True):
    """The duration and tokens of one model call."""

    model: str
    agent: str
    started_at: float
    duration_s: float
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


ToolStatus = Literal["waiting", "not_run", "running", "finished", "failed", "unknown"]
"""waiting: for an approval, a credential or a result. not_run: its turn ended before. unknown: it had started."""


class ToolUse(Struct, frozen=True):
    """A tool call, as the tool journal has it."""

    call_id: str
    name: str
    status: ToolStatus
    started_at: float | None
    finished_at: float | None
    approved_by: str | None
    """The user who approved it, if approval was needed."""
    intended_at: float = 0.0

    @property
    def duration_s(self) -> float | None:
        """How long the tool ran, or None if it has not started or not ended."""
        return seconds_between(self.started_at, self.finished_at)


class Resumption(Struct, frozen=True):
    """When a turn was resumed, and why: after a crash, a handover or a failure."""

    at: float
    reason: str


class TurnUsage(Struct, frozen=True):
    """The usage of a turn, and the range of its messages."""

    turn: int
    status: Status | Literal["waiting"]
    """waiting: it ended with a request that can still be answered."""
    started_at: float
    ended_at: float | None
    first_seq: int | None
    last_seq: int | None
    tokens: int
    """Tokens of the turn's own messages."""
    usage: Usage
    is_rewound: bool
    """Its messages were removed by a rewind; its cost still counts."""
    result: TurnResult = TurnResult()
    tools: Sequence[ToolUse] = ()
    resumptions: Sequence[Resumption] = ()
    begun_version: str = ""
    """The version of the app that began it."""
    version: str = ""
    """The version of the app that ran it last."""
    waiting_calls: frozenset[str] = frozenset()
    """The keys of the calls that its open waits are about."""

    @property
    def model_calls(self) -> list[ModelCall]:
        """The model calls, in order."""
        return convert(self.result.calls, list[ModelCall])


def read_turns(session: SessionInfo, before: int, limit: int) -> Operation[list[TurnUsage]]:
    """Read the newest turns before a turn, in order, each with its tools."""
    rows = yield _TURNS, (session.key, before, limit)
    if not rows:
        return []
    epochs = sorted(row[2] for row in rows if row[2] is not None)
    after = yield _NEXT_FIRST_SEQ, (session.key, before)
    # the messages and the epochs of a turn end before the first of the next turn
    next_seq, next_total, next_epoch = after[0] if after else (session.last_seq + 1, session.total_tokens, None)
    rows_by_epoch: dict[int, list[Row]] = {}
    if epochs:
        for tool in (yield _TOOLS, (session.key, epochs[0], next_epoch or LARGEST)):
            begun = epochs[bisect_right(epochs, tool[0]) - 1]
            rows_by_epoch.setdefault(begun, []).append(tool[1:])
    waiting: dict[int, set[str]] = {}
    for turn, call_id in (yield _OPEN_WAITS, (session.key,)):
        waiting.setdefault(turn, set()).add(call_id)
    live = live_ranges(session.last_seq, session.rewinds)
    found: list[TurnUsage] = []
    for row in rows:
        tools = rows_by_epoch.get(row[2], [])
        found.append(_row_to_turn(row, next_seq, next_total, live, tools, frozenset(waiting.get(row[0], ()))))
        if row[6] is not None:
            next_seq, next_total = row[5], row[6]
    return found[::-1]


def _row_to_turn(
    row: Row,
    next_seq: int,
    next_total: int,
    live: list[tuple[int, int]],
    tools: Sequence[Row],
    waiting_calls: frozenset[str],
) -> TurnUsage:
    turn, status, _epoch, started_at, ended_at, first_seq, before_tokens, *rest = row
    *spent, extra, resumptions, begun_version, version = rest
    known, result = before_tokens is not None, TurnResult.decode(extra)
    is_waiting = status == "done" and result.status == "waiting" and bool(waiting_calls)
    return TurnUsage(
        turn=turn,
        status="waiting" if is_waiting else status,
        started_at=started_at,
        ended_at=ended_at,
        first_seq=first_seq,
        last_seq=next_seq - 1 if known else None,
        tokens=next_total - before_tokens if known else 0,
        usage=Usage(*spent),
        is_rewound=known and not is_live(first_seq, live),
        result=result,
        tools=[_row_to_tool(tool, ended=ended_at is not None, waiting_calls=waiting_calls) for tool in tools],
        resumptions=convert(loads(resumptions), list[Resumption]) if resumptions else (),
        begun_version=begun_version,
        version=version,
        waiting_calls=waiting_calls,
    )


class ModelUsage(Struct, frozen=True):
    """What the calls of a model on a day took. Days are those of UTC."""

    day: str
    agent: str
    """The app, as the server names it."""
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    duration_s: float = 0.0
    """The time of all calls together."""
    slowest_s: float = 0.0
    cost_usd: float | None = None
    """Null: the price is not known."""


class TurnCount(Struct, frozen=True):
    """How many turns began on a day, and how many of them failed or were interrupted."""

    day: str
    agent: str
    turns: int = 0
    failed: int = 0


def sum_by_day(
    dialect: Dialect, app_name: str, user_id: str | None, since: float
) -> Operation[tuple[list[TurnCount], list[ModelUsage]]]:
    """Sum the turns since a time by day, and their model calls by day and model, of a user or of all users."""
    values = (app_name, since, *(() if user_id is None else (user_id,)))
    about = {"day": _DAY, "of_user": "" if user_id is None else "AND s.user_id = $3"}
    calls = {"calls": _CALLS[dialect], "sums": f"{_SUMS}, SUM({_DURATION})", "duration": _DURATION}
    turns = [TurnCount(_day(day), app_name, *counts) for day, *counts in (yield _TURNS_BY_DAY.format(**about), values)]
    models = [
        ModelUsage(_day(day), app_name, str(loads(model or '""') or ""), *sums)
        for day, model, *sums in (yield _CALLS_BY_DAY.format(**about, **calls), values)
    ]
    return turns, models


def _day(number: int) -> str:
    return as_datetime(number * 86_400.0).date().isoformat()


def _row_to_tool(row: Row, *, ended: bool, waiting_calls: frozenset[str]) -> ToolUse:
    call_id, name, journaled, *rest = row
    status: ToolStatus
    match journaled:
        case "finished" | "failed":
            status = "waiting" if call_id in waiting_calls else journaled  # a long-running tool's result comes later
        case "started":
            status = "unknown" if ended else "running"
        case "intended":
            status = "not_run" if ended and call_id not in waiting_calls else "waiting"
        case _:  # it asked for an approval or a credential before it did anything
            status = "not_run" if ended and not waiting_calls else "waiting"
    return ToolUse(call_id, name, status, *rest)


def read_totals(key: int) -> Operation[tuple[int, Usage]]:
    """Count the turns of a session, and sum their usage."""
    [[count, *tokens, cost_usd]] = yield _TOTALS, (key,)
    return count, Usage(*(int(summed or 0) for summed in tokens), cost_usd=cost_usd)


def read_live(session: SessionInfo) -> Operation[tuple[int, int]]:
    """Count the messages that no rewind removed, and their tokens, by the running totals."""
    messages = tokens = 0
    for first, last in live_ranges(session.last_seq, session.rewinds):
        messages += last - first + 1
        tokens += yield from total_tokens_at(session, last)
        tokens -= yield from total_tokens_at(session, first - 1)
    return messages, tokens
