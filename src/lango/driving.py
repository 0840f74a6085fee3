"""A turn that was claimed, driven through the engine to its honest end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from lango.adk.engine import AdkEngine, Asked, TurnRun
from lango.adk.voice import model_progress
from lango.admission import Admission
from lango.config import AgentSettings
from lango.errors import AgentFailed, LangoError, StoreError, TurnCancelled, TurnTimeout
from lango.events import Queued, TurnDone, TurnEvent
from lango.prices import usage_of
from lango.running import Patience, RunningTurn, as_error, keep_alive, uninterrupted, until_stored
from lango.store import Store
from lango.store.outages import long_wait
from lango.store.turns import Outcome

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


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
                    self._admission.has_streamed = True
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
