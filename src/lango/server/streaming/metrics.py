"""Count turns, tokens, cost and tool calls of a server, and render the counts in Prometheus' text format."""

import math
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from lango.events import Resumed, ToolEnd, TurnDone
from lango.runtime import RunningTurn
from lango.runtime.turns import StoredTurn

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
disable_created_metrics()  # otherwise each series has a second one, with the time of its start


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._turns = Counter("lango_turns", "Ended turns by status.", ["status"], registry=registry)
        self._resumed = Counter("lango_turns_resumed", "Resumed turns by reason.", ["reason"], registry=registry)
        self._tokens = Counter("lango_tokens", "Tokens that models read and wrote.", ["direction"], registry=registry)
        self._cost_usd = Counter("lango_cost_usd", "Cost of turns whose price is known.", registry=registry)
        self._model_calls = Counter("lango_model_calls", "Model calls of turns that completed.", registry=registry)
        self._tools = Counter("lango_tools", "Tool calls by outcome.", ["status"], registry=registry)
        self._abandoned = Counter(
            "lango_turns_abandoned", "Turns whose process died at each attempt.", registry=registry
        )
        self._running = Gauge("lango_turns_running", "Turns that run now.", registry=registry)
        self._queued = Gauge(
            "lango_turns_queued", "Turns that wait until another turn of the process ends.", registry=registry
        )
        self._waiting = Gauge(
            "lango_turns_waiting", "Turns that wait for an earlier turn of their session.", registry=registry
        )
        self.streams = Gauge("lango_streams", "Clients that follow a turn.", registry=registry)
        self._leases = Gauge(
            "lango_leases", "Sessions with a running turn, in the whole store.", ["held"], registry=registry
        )
        self._queue = Gauge(
            "lango_queue", "Turns that wait for another turn of their session, in the whole store.", registry=registry
        )
        self._take_over_s = Histogram(
            "lango_take_over_seconds",
            "From finding a process gone to taking over its turn.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._turn_s = Histogram(
            "lango_turn_seconds", "From a message to the end of its turn.", buckets=_BUCKETS_S, registry=registry
        )
        self._first_text_s = Histogram(
            "lango_first_text_seconds",
            "From a message to the first text of its answer.",
            buckets=_BUCKETS_S,
            registry=registry,
        )

    def count_taken_over(self, running: RunningTurn) -> None:
        """Count a turn that this process took over from another one."""
        if running.is_resumed:
            last = [event for event in running.events if isinstance(event, Resumed)][-1]
            self._resumed.labels(last.reason).inc()
        self._take_over_s.observe(running.taken_over_s or 0.0)

    def count_turn(self, running: RunningTurn, record: StoredTurn | None) -> None:
        """Count a turn that ended, or that another process continues."""
        has_ended = record is None or record.status not in ("queued", "running")
        for event in running.events[running.log.restored_count :]:
            match event:
                case Resumed(reason="failure"):
                    self._resumed.labels(event.reason).inc()
                case ToolEnd():
                    self._tools.labels("ok" if event.ok else "error").inc()
                case TurnDone() if has_ended:
                    self._cost_usd.inc(event.usage.cost_usd or 0.0)
                    self._model_calls.inc(event.usage.model_calls)
                case _:
                    pass
        if not has_ended:
            return
        self._turns.labels(record.status if record else "lost").inc()
        self._turn_s.observe(time.monotonic() - running.accepted_at)
        if running.log.first_text_at is not None:
            self._first_text_s.observe(running.log.first_text_at - running.accepted_at)
        if record is not None:
            self._tokens.labels("input").inc(record.result.usage.input_tokens)
            self._tokens.labels("output").inc(record.result.usage.output_tokens)

    def render(
        self,
        turns: Sequence[RunningTurn],
        waiting_for_admission: int,
        abandoned: int,
        stored: tuple[int, int] | None,
    ) -> bytes:
        """Return the metrics as text.

        `stored` counts the running and queued turns in the store, or is None if the store is not available.
        """
        queued_behind_turn = sum(one.turn.epoch is None for one in turns)
        self._running.set(len(turns) - queued_behind_turn - waiting_for_admission)
        self._queued.set(waiting_for_admission)
        self._waiting.set(queued_behind_turn)
        self._abandoned.reset()
        self._abandoned.inc(abandoned)
        held, queued = stored or (math.nan, math.nan)
        here = min(len(turns) - queued_behind_turn, held)
        self._leases.labels("here").set(here)
        self._leases.labels("elsewhere").set(held - here)
        self._queue.set(queued)
        return generate_latest(self._registry)
