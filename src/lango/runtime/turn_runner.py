"""A turn that was claimed, driven through the engine to its honest end."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

from lango.adk.model.direct_text import model_progress
from lango.adk.run.engine import AdkEngine, TurnRun
from lango.config import AgentSettings
from lango.errors import AgentFailed, LangoError, StoreError, TurnCancelled, TurnTimeout
from lango.events import Queued, TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnDone, TurnEvent
from lango.runtime.admission import Admission
from lango.runtime.prices import usage_of
from lango.runtime.turn_recovery import until_stored
from lango.store import Store
from lango.store.engine.outages import long_wait
from lango.store.turns.turns import Outcome
from lango.telemetry.traces import in_span
from lango.turns.lease_holder import keep_alive, uninterrupted
from lango.turns.running_turn import RunningTurn, as_error
from lango.turns.turn_input import Asked

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

_TOOL_GRACE_S = 10.0
_SELDOM_S = 1.0  # pieces of text come often: their timer is set anew this seldom


class Driver:
    """Runs turns on an engine. Its tasks belong to whoever gave it `spawn`."""

    def __init__(
        self,
        agent: AgentSettings,
        store: Store,
        engine: AdkEngine,
        admission: Admission,
        spawn: Spawn,
        when_waiting: Callable[[], None],
    ) -> None:
        """`when_waiting` is told of a turn that ended with a question."""
        self._agent = agent
        self._store = store
        self._engine = engine
        self._admission = admission
        self._spawn = spawn
        self._when_waiting = when_waiting

    async def run(self, running: RunningTurn, asked: Asked) -> None:
        """Run a turn that was claimed; it is ended, and its end told, whatever happens."""
        run = self._engine.begin(running.turn, asked, running.next_id, running.tell)
        beat = self._spawn(keep_alive(running, self._store))
        outcome: Outcome = "failed"
        error: LangoError | None = None

        def emit_place(place: int) -> None:
            running.tell(Queued(running.next_id(), place))

        try:
            async with self._admission.admitted(emit_place):
                await self._tell_all(running, asked, run)
            outcome = "done"
        except asyncio.CancelledError as cancelled:
            outcome, error = "cancelled", running.stopped or TurnCancelled("the turn was stopped")
            if running.stopped is None and not _is_cancelled():
                outcome, error = "failed", AgentFailed("the agent was cancelled from inside")
                error.__cause__ = cancelled
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failed:  # noqa: BLE001 - it belongs to whoever follows the turn
            outcome, error = "cancelled" if isinstance(failed, TurnCancelled) else "failed", as_error(failed)
            if outcome == "failed" and run.corrected is not None:
                error.__cause__ = run.corrected
        finally:
            beat.cancel()
        await uninterrupted(self._end(running, run, outcome, error))

    async def _tell_all(self, running: RunningTurn, asked: Asked, run: TurnRun) -> None:
        if running.superseded:
            raise TurnCancelled("a newer message came")
        agent = self._agent
        try:
            async with (
                asyncio.timeout(agent.request_timeout_s),
                asyncio.timeout(agent.idle_timeout_s) as idle,
                aclosing(self._engine.run(running.session.name, asked, run)) as events,
            ):
                patience = Patience(idle, agent, run.state.limits_s)
                model_progress.set(patience.note_progress)

                def tell(event: TurnEvent) -> None:
                    running.tell(event)
                    patience.renew(event)

                run.state.tell = tell  # the plugin tells when a tool starts
                async for event in events:
                    tell(event)
        except TimeoutError as error:
            raise TurnTimeout(
                f"the turn took longer than allowed: {agent.idle_timeout_s:g} s without news, or "
                f"{agent.request_timeout_s:g} s in all (settings agent.idle_timeout_s, agent.request_timeout_s)"
            ) from error

    async def _end(self, running: RunningTurn, run: TurnRun, outcome: Outcome, error: LangoError | None) -> None:
        calls = [call.to_json() for call in run.state.log]
        status = "waiting_for_approval" if run.told.waiting else "waiting_for_client" if run.told.client else "done"
        usage = await usage_of(run)
        extra: dict[str, Any] = {
            "usage": {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cached": usage.cached_tokens,
                "model_calls": usage.model_calls,
                "cost_usd": usage.cost_usd,
            },
            "calls": calls,
            "invocations": run.told.invocations,
        }
        if error is None:
            extra["done"] = {"status": status, "finish_reason": run.told.finish_reason}
        else:
            extra["error"] = {"type": type(error).__name__, "message": str(error)}

        def write() -> Coroutine[Any, Any, bool]:
            return self._store.end_turn(running.session.name, running.turn, outcome, extra)

        try:
            with long_wait(error is None):  # only an answer is worth the wait
                await write()
        except StoreError as failed:
            error = error or failed
            self._spawn(until_stored(write, f"turn {running.turn.turn}"))
        if error is not None:
            running.fail(error)
        else:
            running.answer = run.told.text
            if run.told.waiting:
                self._when_waiting()
            running.tell(TurnDone(running.next_id(), running.turn.turn, status, usage, run.told.finish_reason))


def _is_cancelled() -> bool:
    """Whether this task itself is cancelled, and not something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def traced(running: RunningTurn, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Return the work of a turn, in a span of its own where somebody takes traces."""
    session_id = running.session.name.id
    about = {"lango.session.id": session_id, "gen_ai.conversation.id": session_id, "lango.turn": running.turn.turn}

    def ended() -> dict[str, str | int | float | bool]:
        if running.error is not None:
            return {"lango.turn.status": "failed", "error.type": type(running.error).__name__}
        last = running.events[-1]
        if not isinstance(last, TurnDone):
            return {}
        used = last.usage
        told = {"gen_ai.usage.input_tokens": used.input_tokens, "gen_ai.usage.output_tokens": used.output_tokens}
        cost = {} if used.cost_usd is None else {"lango.cost_usd": used.cost_usd}
        return {"lango.turn.status": last.status, "lango.model_calls": used.model_calls, **told, **cost}

    work, running.trace_id = in_span("turn", about, work, ended)
    return work


class Patience:
    """How long a turn may be silent: a model must give news, a tool has a limit of its own."""

    def __init__(self, idle: asyncio.Timeout, agent: AgentSettings, limits_s: Mapping[str, float | None]) -> None:
        """`limits_s`: of the calls under way; None is no limit but the turn's own."""
        self._idle = idle
        self._agent = agent
        self._limits_s = limits_s
        self._busy: set[str] = set()
        self._renewed_at = 0.0
        self._seldom_s = min(_SELDOM_S, agent.idle_timeout_s / 10)

    def renew(self, event: TurnEvent) -> None:
        """Start the limit anew, because an event was emitted."""
        match event:
            case TextDelta() | ThoughtDelta():
                self.note_progress()
                return
            case ToolStart():
                self._busy.add(event.call_id)
            case ToolEnd():
                self._busy.discard(event.call_id)
            case _:
                pass
        self._extend(asyncio.get_running_loop().time())

    def note_progress(self) -> None:
        """Start the limit anew, because a model made progress: it reads a long prompt, or writes a long call."""
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= self._seldom_s:
            self._extend(now)

    def _extend(self, now: float) -> None:
        self._renewed_at = now
        limits = [self._limits_s.get(call_id, self._agent.tool_timeout_s) for call_id in self._busy]
        longest = max([limit_s + _TOOL_GRACE_S for limit_s in limits if limit_s is not None], default=0.0)
        if not self._idle.expired():
            self._idle.reschedule(None if None in limits else now + (longest or self._agent.idle_timeout_s))
