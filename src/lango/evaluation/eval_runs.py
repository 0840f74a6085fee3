"""Run test cases beside the users of a server, one run at a time, with progress."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from lango.config import Settings
from lango.development.test_cases import Case
from lango.errors import UsageError
from lango.evaluation.case_runner import CaseResult, CaseRunner
from lango.evaluation.criteria import Criteria, criteria_beside
from lango.evaluation.judge import ModelJudge
from lango.evaluation.run_history import add_to_history
from lango.runtime.runtime import Runtime
from lango.threads import run_in_thread

_PARALLEL = 4
_log = logging.getLogger("lango.evaluation")


class EvalRun(Struct):
    """A run under way, or the last one."""

    total: int
    results: list[CaseResult] = field(default_factory=list[CaseResult])
    """Those of the cases that are done."""
    running: bool = True
    error: str = ""


class EvalRuns:
    """The newest run of an agent's cases."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None
        self.newest: EvalRun | None = None

    def start(self, cases: Sequence[Case], criteria: Callable[[Path], Criteria] = criteria_beside) -> EvalRun:
        """Start a run; `criteria` returns those of a file. Raise `UsageError` if one is under way or none can run."""
        if self.newest is not None and self.newest.running:
            raise UsageError("a run is under way: wait until it ends, or stop it")
        if not cases:
            raise UsageError("there is no case to run")
        judge = ModelJudge(self._settings, "")
        runner = CaseRunner(self._runtime, judge, criteria, as_named_users=False)
        runner.check(cases)
        self.newest = run = EvalRun(len(cases))
        self._task = asyncio.create_task(self._run(runner, judge, run, cases), name="lango-eval")
        return run

    async def wait(self) -> None:
        """Wait until the newest run has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop the run; the results so far are kept on the page, and not in the history."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, runner: CaseRunner, judge: ModelJudge, run: EvalRun, cases: Sequence[Case]) -> None:
        try:
            results = await runner.run(cases, _PARALLEL, run.results.append)
            await run_in_thread(lambda: add_to_history(results, self._runtime.model_name, with_sessions=True))
            for result in results:
                if result.passed:  # those of failed cases are kept for their traces
                    await self._runtime.sessions.delete(result.session_id, user_id=result.user_id)
        except OSError as error:
            run.error = f"the results cannot be kept: {error.strerror}"
        except asyncio.CancelledError:
            run.error = "stopped"
            raise
        except ExceptionGroup as error:
            run.error = f"the run failed: {error.exceptions[0]}"
            _log.exception("a run of test cases failed")
        finally:
            run.running = False
            await judge.close()
