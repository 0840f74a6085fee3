"""Store the questions of running tools to a person, and the answers, which may come from any process.

A tool of an MCP server may ask while it runs. Its turn goes on with the answer, in the same call: nothing can wait
longer than the call. A question of a process that died is not shown any more once another one has the turn.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, to_builtins

from lango.sessions import SessionRecord
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import check_epoch
from lango.store.tool_calls.input_requests import InputRequest
from lango.typed_values import convert

_ASK = """
INSERT INTO tool_questions (session_key, question_id, epoch, turn, question, asked_at, expires_at, app_name, user_id)
VALUES ($1, $2, $3, $4, $5, $6, (SELECT now FROM database_clock) + $7,
    (SELECT app_name FROM sessions WHERE session_key = $1), (SELECT user_id FROM sessions WHERE session_key = $1))
ON CONFLICT (session_key, question_id) DO UPDATE SET epoch = excluded.epoch, turn = excluded.turn,
    question = excluded.question, asked_at = excluded.asked_at, expires_at = excluded.expires_at, answer = NULL
"""
_OPEN = """
SELECT q.question_id, q.question, q.asked_at, q.expires_at, q.turn
FROM tool_questions q JOIN sessions s ON s.session_key = q.session_key AND s.epoch = q.epoch
WHERE q.session_key = $1 AND q.answer IS NULL AND q.expires_at > (SELECT now FROM database_clock) ORDER BY q.asked_at
"""
_ANSWER = """
UPDATE tool_questions SET answer = $1 WHERE session_key = $2 AND question_id = $3 AND answer IS NULL
    AND expires_at > (SELECT now FROM database_clock) RETURNING question_id
"""
_READ = "SELECT answer FROM tool_questions WHERE session_key = $1 AND question_id = $2"
_CLOSE = "DELETE FROM tool_questions WHERE session_key = $1 AND question_id = $2"
_CLOSE_EARLIER = "DELETE FROM tool_questions WHERE session_key = $1 AND epoch < $2"


class ToolQuestion(Struct, frozen=True):
    """What a running tool asks."""

    message: str
    schema: Mapping[str, Any] | None
    """The JSON schema of the answer; None: the user only agrees, or declines."""
    payload: Any
    """What is shown besides the message: the server, and an address to open."""
    tool_call_id: str
    author: str = ""


class ToolAnswer(Struct, frozen=True):
    """A person's answer to a tool."""

    action: Literal["accept", "decline", "cancel"]
    value: Any = None


def ask(turn: Turn, question_id: str, question: ToolQuestion, now: float, timeout_s: float) -> Operation[None]:
    """Store a question of a tool in a running turn. Raise `FencedWrite` if the turn lost its lease."""
    yield from check_epoch(turn.session_key, turn.epoch)
    yield _CLOSE_EARLIER, (turn.session_key, turn.epoch)
    values = question_id, turn.epoch, turn.turn, dumps(to_builtins(question)), now, timeout_s
    yield _ASK, (turn.session_key, *values)


def read_tool_questions(session: SessionRecord) -> Operation[list[tuple[InputRequest, int]]]:
    """Read the questions of a session that can still be answered, each with the turn that asks."""
    rows = yield _OPEN, (session.key,)
    return [(question_request(*row), turn) for *row, turn in rows]


def question_request(question_id: str, question: str, asked_at: float, expires_at: float) -> InputRequest:
    """Return a stored question as the input request that people see."""
    asked = convert(loads(question), ToolQuestion)
    return InputRequest(
        question_id,
        asked.message,
        asked.schema,
        asked.payload,
        asked.author,
        "",
        asked_at,
        expires_at,
        0,
        "",
        tool_call_id=asked.tool_call_id,
    )


def answer_question(key: int, question_id: str, answer: ToolAnswer) -> Operation[bool]:
    """Store the answer to a question; False: it is not open any more."""
    return bool((yield _ANSWER, (dumps(to_builtins(answer)), key, question_id)))


def read_tool_answer(key: int, question_id: str) -> Operation[ToolAnswer | None]:
    """Read the answer to a question; None: there is none yet."""
    rows = yield _READ, (key, question_id)
    return convert(loads(rows[0][0]), ToolAnswer) if rows and rows[0][0] is not None else None


def close_question(key: int, question_id: str) -> Operation[None]:
    """Delete a question and its answer: the tool goes on."""
    yield _CLOSE, (key, question_id)
