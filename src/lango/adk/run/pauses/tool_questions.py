"""Ask the user of a running turn on behalf of a tool, and wait for the answer within the call.

The question is stored, so that an answer may come through any process, and shown as an event and in the inbox. If the
process dies, the call is handled like any other that died: its outcome is unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.events import ToolProgress, WaitClosed, WaitOpened
from lango.sessions import as_datetime
from lango.store.codec.ids import address_safe_id
from lango.store.tool_calls import tool_questions
from lango.store.tool_calls.tool_questions import ToolAnswer, ToolQuestion
from lango.turns.time_limits import TimeLimits
from lango.waits import QuestionWait

Wait = Callable[[float], Awaitable[object]]

_POLL_S = 1.0
"""How often the answer is looked for, besides when the store reports a change."""
_MAX_MESSAGE_CHARACTERS = 500


async def ask_user(question: ToolQuestion, timeout_s: float) -> ToolAnswer:
    """Ask the user of the current turn. Without an answer in time it is cancelled."""
    turn = current_turn.get()
    if turn is None:  # in a user's own Runner
        return ToolAnswer("cancel")
    question_id = address_safe_id(f"{question.tool_call_id}.{turn.waits.next_question(question.tool_call_id)}")
    store, lease, key, now = turn.record.store, turn.record.lease, turn.record.lease.session_key, time.time()
    async with store.watch(key) as wait:
        await store.write(tool_questions.ask, lease, question_id, question, now, timeout_s)
        try:
            with _more_time(turn.limits.time, question.tool_call_id, timeout_s):
                shown = _shown(turn, question_id, question, now, timeout_s)
                turn.output.emit(WaitOpened(turn.output.next_id(), shown))
                answer = await _wait_for_answer(turn, question_id, timeout_s, wait)
                turn.output.emit(_closed(turn, shown, answer))
                return answer
        finally:
            closing = asyncio.ensure_future(store.write(tool_questions.close_question, key, question_id))
            await asyncio.shield(closing)


@contextmanager
def _more_time(limits: TimeLimits, call_id: str, timeout_s: float) -> Generator[None]:
    """Let a call and its turn take longer, by as much time as the body of the block takes."""
    began, limit_s = time.monotonic(), limits.of_calls_s.get(call_id)
    if limit_s is not None:
        limits.of_calls_s[call_id] = limit_s + timeout_s
    limits.extend(timeout_s)
    try:
        yield
    finally:
        limits.extend(time.monotonic() - began - timeout_s)
        if limit_s is not None:
            limits.of_calls_s[call_id] = limit_s


async def _wait_for_answer(turn: TurnRun, question_id: str, timeout_s: float, wait: Wait) -> ToolAnswer:
    key, deadline = turn.record.lease.session_key, time.monotonic() + timeout_s
    while (answer := await turn.record.store.read(tool_questions.read_tool_answer, key, question_id)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return ToolAnswer("cancel")
        await wait(min(_POLL_S, left_s))
    return answer


def _shown(turn: TurnRun, question_id: str, question: ToolQuestion, now: float, timeout_s: float) -> QuestionWait:
    return QuestionWait(
        id=question_id,
        session_id=turn.session.id,
        turn=turn.record.lease.turn,
        opened_at=as_datetime(now),
        expires_at=as_datetime(now + timeout_s),
        message=question.message,
        schema=question.schema,
        payload=question.payload,
        call_id=question.tool_call_id,
    )


def _closed(turn: TurnRun, wait: QuestionWait, answer: ToolAnswer) -> WaitClosed:
    if answer.action == "cancel":
        return WaitClosed(turn.output.next_id(), wait, "expired")
    outcome = "answered" if answer.action == "accept" else "refused"
    return WaitClosed(turn.output.next_id(), wait, outcome, turn.session.user_id)


def report_progress(call_id: str, name: str, progress: float, total: float | None, message: str) -> None:
    """Emit how far a call of the current turn is, at most once a second; the end always."""
    turn = current_turn.get()
    if turn is None or call_id not in turn.record.started_at:
        return
    if turn.output.may_report(call_id, is_last=total is not None and progress >= total):
        reported = float(progress), total, message[:_MAX_MESSAGE_CHARACTERS]
        turn.output.emit(ToolProgress(turn.output.next_id(), call_id, name, *reported))
