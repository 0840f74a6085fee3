"""Ask the user of a running turn on behalf of a tool, and wait for the answer within the call.

The question is stored, so that an answer may come through any process, and shown as an event and in the inbox. If the
process dies, the call is handled like any other that died: its outcome is unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.events import WaitClosed, WaitOpened
from lango.json_values import convert
from lango.sessions import as_datetime
from lango.store.codec.json_text import loads
from lango.store.codec.records import wait_id
from lango.store.waits import questions, waits
from lango.turns.time_limits import TimeLimits
from lango.waits import Decline, QuestionWait, Value

_POLL_S = 1.0
"""How often the answer is looked for, besides when the store reports a change."""


class Question(Struct, frozen=True):
    """What a running tool asks the user."""

    message: str
    schema: Mapping[str, Any] | None
    """The JSON schema of the answer, or None if the user only agrees or declines."""
    payload: Any
    """What is shown besides the message: the server, and an address to open."""
    call_id: str
    """The call that asks."""


Answer = Value | Decline | None
"""The answer of the user, or None if there was none in time."""
AskUser = Callable[[Question, float], Coroutine[Any, Any, Answer]]


async def ask_user(question: Question, timeout_s: float) -> Answer:
    """Ask the user of the current turn. Return None without an answer in time."""
    turn = current_turn.get()
    if turn is None:  # in a user's own Runner
        return None
    store, lease, sink, now = turn.record.store, turn.record.lease, turn.output.sink, time.time()
    wait = QuestionWait(
        id=wait_id(f"{question.call_id}.{turn.waits.next_question(question.call_id)}"),
        session_id=turn.session.id,
        turn=lease.turn,
        opened_at=as_datetime(now),
        expires_at=as_datetime(now + timeout_s),
        message=question.message,
        schema=question.schema,
        payload=question.payload,
        call_id=question.call_id,
    )
    outcome: Literal["answered", "refused", "expired", "cancelled"] = "cancelled"
    async with store.watch(lease.session_key) as changed:
        await store.write(questions.ask, lease, wait.id, asdict(question), now, timeout_s)
        try:
            with _more_time(turn.limits.time, question.call_id, timeout_s):
                sink.emit(WaitOpened(sink.next_id(), wait))
                answer = await _wait_for_answer(turn, wait.id, timeout_s, changed)
                outcome = "expired" if answer is None else "refused" if isinstance(answer, Decline) else "answered"
                answered_by = turn.session.user_id if answer is not None else ""
                sink.emit(WaitClosed(sink.next_id(), wait, outcome, answered_by))
                return answer
        finally:
            closed = "answered" if outcome == "refused" else outcome
            closing = asyncio.ensure_future(store.write(questions.close_question, lease.session_key, wait.id, closed))
            await asyncio.shield(closing)


@contextmanager
def _more_time(limits: TimeLimits, call_id: str, timeout_s: float) -> Generator[None]:
    """Let a call and its turn take longer, by as much time as the body of the block takes."""
    began, limit_s = time.monotonic(), limits.limit_of_call(call_id)
    if limit_s is not None:
        limits.limit_call(call_id, limit_s + timeout_s)
    limits.extend(timeout_s)
    try:
        yield
    finally:
        limits.extend(time.monotonic() - began - timeout_s)
        if limit_s is not None:
            limits.limit_call(call_id, limit_s)


async def _wait_for_answer(
    turn: TurnRun, wait_id: str, timeout_s: float, changed: Callable[[float], Awaitable[object]]
) -> Answer:
    key, deadline = turn.record.lease.session_key, time.monotonic() + timeout_s
    while (answer := await turn.record.store.read(waits.read_answer, key, wait_id)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        await changed(min(_POLL_S, left_s))
    return convert(loads(answer), Value | Decline)
