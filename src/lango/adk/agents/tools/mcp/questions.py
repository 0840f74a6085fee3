"""Pass the questions and the progress of an MCP server on to the user whose turn called the tool, and wait for answers.

The library calls back from the task that reads the connection, and not from the call. Over HTTP its context is that of
the call. Over stdio nothing says which call asks: there, a question is only passed on while all running calls belong to
one session, so that no user is asked for another one.

A question is stored, so that an answer may come through any process, and shown as an event and in the inbox. If the
process dies, the call is handled like any other that died: its outcome is unknown.
"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, cast

from google.adk.tools.tool_context import ToolContext
from msgspec import Struct
from msgspec.structs import asdict

from lango.adk.agents.tools.progress import emit_progress
from lango.adk.turn.step import current_step
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.events import WaitClosed, WaitOpened
from lango.json_values import convert
from lango.sessions import as_datetime
from lango.store.codec.json_text import loads
from lango.store.codec.records import wait_id
from lango.store.waits import waits
from lango.tools.execution import time_limit
from lango.turns.time_limits import TimeLimits
from lango.waits import Decline, QuestionWait, Value

_POLL_S = 1.0
"""How often the answer is looked for, in addition to each change that the store reports."""


class Question(Struct, frozen=True):
    """What a running tool asks the user."""

    message: str
    schema: Mapping[str, Any] | None
    """The JSON schema of the answer, or None if the user only agrees or declines."""
    payload: Any
    """What is shown in addition to the message: the server, and an address to open."""
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
        await store.write(waits.ask, lease, wait.id, asdict(question), now, timeout_s)
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
            closing = asyncio.ensure_future(store.write(waits.close_question, lease.session_key, wait.id, closed))
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


class _RunningCall(Struct, eq=False):
    tool_context: ToolContext
    context: contextvars.Context
    limit: asyncio.Timeout | None
    asking: set["asyncio.Task[Answer]"] = set()

    @property
    def session(self) -> tuple[str, str, str]:
        """App, user and id: two users may have sessions of the same id."""
        session = self.tool_context.session
        return session.app_name, session.user_id, session.id


class ServerCallbacks:
    """What one MCP server may ask and report while its tools run."""

    def __init__(self, server: str, timeout_s: float, *, over_http: bool, ask: AskUser = ask_user) -> None:
        """`timeout_s` is how long a user may take; with 0, the server may not ask."""
        self._server = server
        self._ask = ask
        self._timeout_s = timeout_s
        self._over_http = over_http
        self._running: set[_RunningCall] = set()

    @property
    def options(self) -> dict[str, Any]:
        """The callbacks as options of ADK's toolset. A server that may not ask gets no callback."""
        asks = {"elicitation_callback": self._on_question} if self._timeout_s else {}
        return {"progress_callback": self._progress_callback, **asks}

    @contextmanager
    def during_call(self, context: ToolContext) -> Generator[None]:
        """Note that a call runs; when it ends, its open questions are closed."""
        call = _RunningCall(context, contextvars.copy_context(), time_limit.get())
        self._running.add(call)
        try:
            yield
        finally:
            self._running.discard(call)
            for task in call.asking:
                task.cancel()

    def _progress_callback(self, tool_name: str, *, callback_context: ToolContext | None = None, **_: Any) -> Any:
        """Return the callback for the progress of one call."""
        if callback_context is None:
            return None
        turn = current_turn.get()
        call_id = callback_context.function_call_id or ""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            emit_progress(turn, call_id, tool_name, progress, total, message or "")

        return on_progress

    async def _on_question(self, context: Any, params: Any) -> Any:
        """Answer a request of the server for the user's input."""
        from mcp import types

        del context
        call = self._asking_call()
        if call is None:
            return types.ErrorData(
                code=types.INVALID_REQUEST,
                message="the user cannot be asked: several sessions use this server, and it does not say "
                "which one asks; try again later, or run this server over HTTP",
            )
        answer = await self._ask_user(call, self._to_question(params, call))
        if not isinstance(answer, Value):
            return types.ElicitResult(action="cancel" if answer is None else "decline")
        value: Any = answer.value
        content = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        return types.ElicitResult(action="accept", content=content)

    def _asking_call(self) -> _RunningCall | None:
        """Return the call that asks, or None if it is not known."""
        here = current_step().tool_context if self._over_http else None
        calls = [call for call in self._running if call.tool_context is here] or [*self._running]
        return calls[0] if len({call.session for call in calls}) == 1 else None

    def _to_question(self, params: Any, call: _RunningCall) -> Question:
        payload: dict[str, Any] = {"server": self._server}
        schema: Mapping[str, Any] | None = None
        if getattr(params, "mode", "form") == "url":
            payload["url"] = str(params.url)
        else:
            schema = dict(getattr(params, "requested_schema", None) or getattr(params, "requestedSchema", None) or {})
        return Question(params.message, schema or None, payload, call.tool_context.function_call_id or "")

    async def _ask_user(self, call: _RunningCall, question: Question) -> Answer:
        """Ask in the context of the call, whose time limit stops until the answer."""
        loop = asyncio.get_running_loop()
        when = call.limit.when() if call.limit else None
        left_s = None if when is None else when - loop.time()
        if call.limit is not None:
            call.limit.reschedule(None)
        task = loop.create_task(self._ask(question, self._timeout_s), context=call.context)
        call.asking.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if not task.cancelled():  # the connection is closed
                task.cancel()
                raise
            return None
        finally:
            call.asking.discard(task)
            if call.limit is not None and left_s is not None and call in self._running:
                call.limit.reschedule(loop.time() + left_s)
