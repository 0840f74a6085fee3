"""Ask the user of a running turn on behalf of a tool, and wait for the answer within the call.

The question is stored, so that an answer may come through any process, and shown as an event and in the inbox. If the
process dies, the call is handled like any other that died: its outcome is unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from lango.adk.run.turn_state import TurnState, current_state
from lango.events import ToolProgress
from lango.store.codec.ids import address_safe_id
from lango.store.tool_calls import tool_questions
from lango.store.tool_calls.input_requests import InputRequest, input_event
from lango.store.tool_calls.tool_questions import ToolAnswer, ToolQuestion

Wait = Callable[[float], Awaitable[object]]

_POLL_S = 1.0
"""How often the answer is looked for, besides when the store reports a change."""
_PROGRESS_INTERVAL_S = 1.0
_MAX_MESSAGE_CHARACTERS = 500


async def ask_user(question: ToolQuestion, timeout_s: float) -> ToolAnswer:
    """Ask the user of the current turn. Without an answer in time it is cancelled."""
    state = current_state()
    if state is None:  # in a user's own Runner
        return ToolAnswer("cancel")
    number = state.questions[question.tool_call_id] = state.questions[question.tool_call_id] + 1
    question_id = address_safe_id(f"{question.tool_call_id}.{number}")
    key, now = state.turn.session_key, time.time()
    async with state.store.watch(key) as wait:
        await state.store.write(tool_questions.ask, state.turn, question_id, question, now, timeout_s)
        try:
            with _more_time(state, question.tool_call_id, timeout_s):
                state.emit(input_event(_shown(question_id, question, now, timeout_s), state.next_id()))
                return await _wait_for_answer(state, question_id, timeout_s, wait)
        finally:
            closing = asyncio.ensure_future(state.store.write(tool_questions.close_question, key, question_id))
            await asyncio.shield(closing)


@contextmanager
def _more_time(state: TurnState, call_id: str, timeout_s: float) -> Generator[None]:
    """Let a call and its turn take longer, by as much time as the body of the block takes."""
    began, limit_s = time.monotonic(), state.time_limits_s.get(call_id)
    if limit_s is not None:
        state.time_limits_s[call_id] = limit_s + timeout_s
    state.extend_time(timeout_s)
    try:
        yield
    finally:
        state.extend_time(time.monotonic() - began - timeout_s)
        if limit_s is not None:
            state.time_limits_s[call_id] = limit_s


async def _wait_for_answer(state: TurnState, question_id: str, timeout_s: float, wait: Wait) -> ToolAnswer:
    key, deadline = state.turn.session_key, time.monotonic() + timeout_s
    while (answer := await state.store.read(tool_questions.read_tool_answer, key, question_id)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return ToolAnswer("cancel")
        await wait(min(_POLL_S, left_s))
    return answer


def _shown(question_id: str, question: ToolQuestion, now: float, timeout_s: float) -> InputRequest:
    return InputRequest(
        question_id,
        question.message,
        question.schema,
        question.payload,
        question.author,
        "",
        now,
        now + timeout_s,
        0,
        "",
        tool_call_id=question.tool_call_id,
    )


def report_progress(call_id: str, name: str, progress: float, total: float | None, message: str) -> None:
    """Emit how far a call of the current turn is, at most once a second; the end always."""
    state = current_state()
    if state is None or call_id not in state.started_at:
        return
    now = time.monotonic()
    is_last = total is not None and progress >= total
    if not is_last and now - state.progress_at.get(call_id, -_PROGRESS_INTERVAL_S) < _PROGRESS_INTERVAL_S:
        return
    state.progress_at[call_id] = now
    state.emit(ToolProgress(state.next_id(), call_id, name, float(progress), total, message[:_MAX_MESSAGE_CHARACTERS]))
