"""Journal the code that an agent's code executor runs, so that code that has run never runs again after a crash.

ADK has no callback around a code executor, and calls it in a thread. Code that had started and did not finish may have
had an effect: like a tool, it is not run again, and the model reads that the outcome is unknown.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File

from lango.adk.agents.adk_internals import replace_code_execution
from lango.adk.run.record.replay import require_used_up
from lango.adk.turn.limits import call_fingerprint
from lango.adk.turn.step import current_step
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.errors import TurnDiverged
from lango.store.waits.recovery import UNKNOWN_RESULT

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
    """Run code, or return what it returned in an earlier run of this turn. ADK calls it in a thread."""
    turn = current_turn.get()
    if turn is None:
        return execute(context, code)
    place = current_step().inner_id(f"code:{getattr(context.agent, 'name', '')}@{context.branch or ''}")
    step_id, fingerprint = turn.record.next_step(place, "/"), call_fingerprint(_NAME, {"code": code.code})
    entry, loop = turn.record.earlier_run.entry(step_id), turn.record.loop
    if entry is not None and entry.arguments != fingerprint:
        raise TurnDiverged("the model's code was not run: it differs from the first run")
    if entry is not None and entry.status == "finished":
        return _from_json(entry.result)
    if entry is not None and entry.status == "started":
        result = CodeExecutionResult(stderr=UNKNOWN_RESULT)
    else:
        _wait_for(loop, _start(turn, step_id, fingerprint, context.branch or ""))
        try:
            result = execute(context, code)
        finally:
            loop.call_soon_threadsafe(turn.limits.step_gate.leave)
    _wait_for(loop, turn.record.finish(step_id, dataclasses.asdict(result)))
    return result


async def _start(turn: TurnRun, step_id: str, fingerprint: str, branch: str) -> None:
    await require_used_up(turn, "the model's code", branch)
    await turn.limits.step_gate.enter()
    await turn.record.intend(step_id, _NAME, "once", fingerprint)
    await turn.record.start(step_id)


def _wait_for(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop of the turn, and wait for it in this thread."""
    return asyncio.run_coroutine_threadsafe(work, loop).result(_STORE_TIMEOUT_S)


def _from_json(members: dict[str, Any]) -> CodeExecutionResult:
    files = [File(**file) for file in members.get("output_files", ())]
    return CodeExecutionResult(members["stdout"], members["stderr"], files, members.get("exit_code"))
