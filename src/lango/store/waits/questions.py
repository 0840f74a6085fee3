"""Open, answer and close the questions of running tools: a tool waits in its process, and closes them itself."""

from collections.abc import Mapping
from typing import Any, Literal

from lango.store.codec.json_text import dumps
from lango.store.codec.records import Turn
from lango.store.engine.database import Operation
from lango.store.sessions.open_calls import OPEN_WAIT
from lango.store.sessions.sessions import check_epoch
from lango.store.waits.waits import ANSWER, CLOSE

_CLOSE_EARLIER = """
UPDATE waits SET closed = 'cancelled', closed_at = (SELECT now FROM database_clock)
WHERE session_key = $1 AND closed IS NULL AND epoch < $2
"""


def ask(turn: Turn, id_: str, value: Mapping[str, Any], now: float, timeout_s: float) -> Operation[None]:
    """Open the wait of a running tool for an answer. Raise `FencedWrite` if the turn lost its lease.

    The tool waits in its process: the wait counts only while its turn has the same lease.
    """
    yield from check_epoch(turn.session_key, turn.epoch)
    yield _CLOSE_EARLIER, (turn.session_key, turn.epoch)
    data = dumps({"call_id": id_, "value": value})
    about = None, None, now, None, timeout_s
    yield OPEN_WAIT, (turn.session_key, id_, "tool_question", 0, "", *about, data, turn.epoch, None, None, None)


def answer_question(key: int, id_: str, content: str, answered_by: str) -> Operation[bool]:
    """Store the answer to a question; False: it is no longer open."""
    return bool((yield ANSWER, (answered_by, content, key, id_, 0)))


def close_question(key: int, id_: str, closed: Literal["answered", "expired", "cancelled"]) -> Operation[None]:
    """Close a question: the tool continues."""
    yield CLOSE, (closed, key, id_)
