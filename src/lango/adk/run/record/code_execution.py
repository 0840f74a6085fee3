"""Journal the code that an agent's code executor runs, so that code that has run never runs again after a crash.

ADK has no callback around a code executor, and calls it in a thread. Code that had started and did not finish may have
had an effect: like a tool, it is not run again, and the model reads that the outcome is unknown.
"""

import asyncio
import dataclasses
import functools
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File

from lango.adk.agents.adk_internals import replace_code_execution
from lango.adk.run.record.divergence import await_record
from lango.adk.run.record.replay import nested_step_id
from lango.adk.run.turn_limits import call_fingerprint
from lango.adk.run.turn_state import TurnState, current_state
from lango.errors import TurnDiverged
from lango.store.tool_calls import tool_journal
from lango.store.turns.recovery import UNKNOWN_RESULT

_NAME = "code"
_STORE_TIMEOUT_S = 120.0
T = TypeVar("T")
Execute = Callable[[InvocationContext, CodeExecutionInput], CodeExecutionResult]


def journal_code(agents: Iterable[Any]) -> None:
    """Journal the code that these agents run from now on, in turns of a runtime only."""
    for agent in agents:
        if (executor := getattr(agent, "code_executor", None)) is not None:
            replace_code_execution(executor, lambda execute: functools.partial(_execute_journaled, execute))


def _execute_journaled(execute: Execute, context: InvocationContext, code: CodeExecutionInput) -> CodeExecutionResult:
    """Run code, or return what it gave in an earlier run of this turn. ADK calls it in a thread."""
    state = current_state()
    if state is None or state.loop is None:
        return execute(context, code)
    place = nested_step_id(f"code:{getattr(context.agent, 'name', '')}@{context.branch or ''}")
    state.nested_calls[place] += 1
    step_id, fingerprint = f"{place}/{state.nested_calls[place]}", call_fingerprint(_NAME, {"code": code.code})
    entry = state.recorded.entry(step_id) if state.recorded is not None else None
    if entry is not None and entry.arguments != fingerprint:
        raise TurnDiverged("the model's code is not the same as in the first run: it is not run")
    if entry is not None and entry.status == "finished":
        return _from_json(entry.result)
    if entry is not None and entry.status == "started":
        result = CodeExecutionResult(stderr=UNKNOWN_RESULT)
    else:
        _wait_for(state.loop, _start(state, step_id, fingerprint, context.branch or ""))
        try:
            result = execute(context, code)
        finally:
            state.loop.call_soon_threadsafe(state.step_gate.leave)
    record = tool_journal.record_result
    _wait_for(state.loop, state.store.write(record, state.turn, step_id, dataclasses.asdict(result), time.time()))
    return result


async def _start(state: TurnState, step_id: str, fingerprint: str, branch: str) -> None:
    await await_record(state, "the model's code", branch)
    await state.step_gate.enter()
    await state.store.write(tool_journal.record_intent, state.turn, step_id, _NAME, "once", fingerprint, time.time())
    await state.store.write(tool_journal.record_start, state.turn, step_id, time.time())


def _wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop of the turn, and wait for it in this thread."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(_STORE_TIMEOUT_S)


def _from_json(members: dict[str, Any]) -> CodeExecutionResult:
    files = [File(**file) for file in members.get("output_files", ())]
    return CodeExecutionResult(members["stdout"], members["stderr"], files, members.get("exit_code"))
