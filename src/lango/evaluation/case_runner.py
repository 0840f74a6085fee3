"""Run test cases against the agent, each in a session of its own, and check them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lango.development.test_cases import Case, Exchange, Reply
from lango.errors import LangoError, UsageError
from lango.evaluation.checks import Metric, check_case
from lango.evaluation.criteria import Criteria, JudgeCriterion
from lango.evaluation.judge import ModelJudge
from lango.events import TurnDone, Usage
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.waits import Answer, ApprovalWait, Approve, Wait

if TYPE_CHECKING:
    from lango.runtime import RunningTurn

_ANY_USER = "user"
"""The user that `adk web` writes into each case, and that stands for no particular one."""


class CaseResult(Struct, frozen=True):
    """What became of a case."""

    case: Case
    session_id: str
    user_id: str
    metrics: Sequence[Metric] = ()
    exchanges: Sequence[Exchange] = ()
    error: str = ""
    """Why it could not be run to its end."""
    duration_s: float = 0.0
    tokens: int = 0
    cost_usd: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it ran to its end and each criterion is fulfilled."""
        return not self.error and all(metric.passed for metric in self.metrics)

    @property
    def why(self) -> str:
        """The reason of a failure: the error, or the first one of each failed criterion."""
        if self.error:
            return self.error
        reasons: list[str] = []
        for metric in self.metrics:
            if not metric.passed:
                at = next(at for at, score in enumerate(metric.scores) if score.why)
                place = f"message {at + 1}: " if len(metric.scores) > 1 else ""
                reasons.append(f"{place}{metric.scores[at].why}")
        return "; ".join(reasons)


class CaseRunner(Struct, frozen=True):
    """Runs cases on a runtime, some at a time."""

    runtime: Runtime
    judge: ModelJudge
    criteria: Callable[[Path], Criteria]
    """Returns the criteria of a file."""
    approved: Sequence[str] = ()
    """The tools that may run without the approval they need; `all`: each."""
    as_named_users: bool = True
    """Whether a case may run as the user that it names: not where real users have their sessions."""

    def check(self, cases: Sequence[Case]) -> None:
        """Raise an error before anything runs if a judge is needed and cannot be asked."""
        for case in cases:
            answers = case.checks.answers
            if any(check.match == "judge" for check in (answers if isinstance(answers, list) else [answers]) if check):
                self.judge.check(JudgeCriterion())
            elif answers is None and (criterion := self.criteria(case.file).judge):
                self.judge.check(criterion)

    async def run(
        self, cases: Sequence[Case], parallel: int, report: Callable[[CaseResult], None] = lambda result: None
    ) -> list[CaseResult]:
        """Run cases, at most `parallel` at a time, and report each result; they are in the order of the cases."""
        slots = asyncio.Semaphore(parallel)

        async def run_one(case: Case) -> CaseResult:
            async with slots:
                result = await self._run_case(case)
            report(result)
            return result

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run_one(case)) for case in cases]
        return [task.result() for task in running]

    async def _run_case(self, case: Case) -> CaseResult:
        began, tag = time.monotonic(), uuid.uuid4().hex[:8]
        named = self.as_named_users and case.user_id not in ("", _ANY_USER)
        user_id = case.user_id if named else f"eval-{tag}"
        name = SessionId(self.runtime.app_name, user_id, (self.as_named_users and case.session_id) or f"eval-{tag}")
        usage = Usage()
        metrics, error = list[Metric](), ""
        exchanges: Sequence[Exchange] = ()
        try:
            await self.runtime.sessions.create(name.id, user_id=user_id, state=case.state)
            for exchange, replies in zip_longest(case.exchanges, case.checks.replies[: len(case.exchanges)]):
                async for done in self._send(name, exchange, [*(replies or ())]):
                    usage += done.usage
            exchanges = await self.runtime.sessions.exchanges(name.id, user_id=user_id)
            if len(exchanges) != len(case.exchanges):
                raise UsageError(
                    f"the session has {len(exchanges)} messages of the user instead of {len(case.exchanges)}"
                )
            metrics = await check_case(
                case.exchanges, exchanges, case.checks, self.criteria(case.file), self.judge.grade
            )
        except LangoError as raised:
            error = str(raised)
        duration_s = time.monotonic() - began
        tokens = usage.input_tokens + usage.output_tokens
        return CaseResult(case, name.id, user_id, metrics, exchanges, error, duration_s, tokens, usage.cost_usd)

    async def _send(self, name: SessionId, exchange: Exchange, replies: list[Reply]) -> AsyncIterator[TurnDone]:
        """Send a message and yield the end of its turn; give the recorded replies and the allowed approvals."""
        turn = await self.runtime.submit(name.id, exchange.text, user_id=name.user_id, attachments=exchange.files)
        yield (done := await _follow(turn))
        while done.waits:
            wait, answer = self._answer(done.waits, replies)
            turn = await self.runtime.answer(name.id, wait.id, answer, user_id=name.user_id)
            yield (done := await _follow(turn))
        if done.status != "done":
            raise UsageError(f"the turn ended with the status {done.status!r}")

    def _answer(self, waits: Sequence[Wait], replies: list[Reply]) -> tuple[Wait, Answer]:
        """Return what can be answered, and its answer; a reply is given once. Raise `UsageError` for anything else."""
        for wait in waits:
            for reply in replies:
                if reply.fits(wait):
                    replies.remove(reply)
                    return wait, reply.answer
        approvals = [wait for wait in waits if isinstance(wait, ApprovalWait)]
        for wait in approvals:
            if wait.tool in self.approved or "all" in self.approved:
                return wait, Approve()
        if approvals:
            tool = approvals[0].tool
            raise UsageError(f"{tool} needs an approval: allow it with --approve {tool}, or record one in `replies`")
        kind = waits[0].kind.replace("_", " ")
        raise UsageError(f"the turn is waiting for a person's answer ({kind}): record it in the `replies` of the case")


async def _follow(turn: "RunningTurn") -> TurnDone:
    """Wait for the end of a turn and return it, or raise its error."""
    end: Any = None
    async for event in turn.follow():
        end = event
    if turn.error is not None:
        raise turn.error
    assert isinstance(end, TurnDone)
    return end
