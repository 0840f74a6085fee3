"""What Prometheus is told: numbers only, nothing of anybody's."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from lango.events import ToolEnd, TurnDone
from lango.server.streaming.recorder import Recorder
from lango.store.turns.lease import LeaseCounts
from lango.store.turns.turns import TurnRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """How long things took, by upper bounds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(_BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def lines(self, name: str) -> Iterator[str]:
        """Write it down."""
        total = 0
        for bound, count in zip((*_BUCKETS_S, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum_s:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Counts of one server."""

    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._cost_usd = 0.0
        self._turn_s = Histogram()
        self._first_text_s = Histogram()
        self._streams = 0
        self._model_calls = 0
        self._tools: Counter[str] = Counter()

    @contextmanager
    def count_reader(self) -> Generator[None]:
        """Count a reader while it reads."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def count_turn(self, recorder: Recorder, record: TurnRecord | None) -> None:
        """Count a turn that is over."""
        self._turns[record.status if record else "lost"] += 1
        self._turn_s.add(time.monotonic() - recorder.started_at)
        if recorder.first_text_at is not None:
            self._first_text_s.add(recorder.first_text_at - recorder.started_at)
        usage: dict[str, Any] = (record.extra.get("usage") if record else None) or {}
        self._tokens.update({"input": usage.get("input", 0), "output": usage.get("output", 0)})
        for event in recorder.running.events:
            if isinstance(event, TurnDone):
                self._cost_usd += event.usage.cost_usd or 0.0
                self._model_calls += event.usage.model_calls
            elif isinstance(event, ToolEnd):
                self._tools["ok" if event.ok else "error"] += 1

    def render(self, recorders: list[Recorder], waiting_for_admission: int, leases: LeaseCounts | None = None) -> str:
        """Return everything in Prometheus' text format; `queued` turns wait because the process is full."""
        queued_behind_turn = sum(recorder.running.turn.epoch is None for recorder in recorders)
        busy = len(recorders) - queued_behind_turn - waiting_for_admission
        lines = [
            *_labelled(
                "lango_turns_total", "counter", "Turns that are over, by how they ended.", "status", self._turns
            ),
            *_labelled("lango_tokens_total", "counter", "Tokens that models took and gave.", "direction", self._tokens),
            *_one("lango_cost_usd_total", "counter", "Cost of turns whose price is known.", f"{self._cost_usd:.6f}"),
            *_one("lango_model_calls_total", "counter", "Calls of models, in turns that were done.", self._model_calls),
            *_labelled("lango_tools_total", "counter", "Calls of tools, by how they ended.", "status", self._tools),
            *_one("lango_turns_running", "gauge", "Turns that run now.", busy),
            *_one(
                "lango_turns_queued",
                "gauge",
                "Turns that wait until another one of the process ends.",
                waiting_for_admission,
            ),
            *_one("lango_turns_waiting", "gauge", "Turns that wait for the one before them.", queued_behind_turn),
            *_one("lango_streams", "gauge", "Clients that follow a turn.", self._streams),
            *_lease_families(leases, busy + waiting_for_admission),
            *_head("lango_turn_seconds", "histogram", "From a message to the end of its turn."),
            *self._turn_s.lines("lango_turn_seconds"),
            *_head("lango_first_text_seconds", "histogram", "From a message to the first text of its answer."),
            *self._first_text_s.lines("lango_first_text_seconds"),
        ]
        return "\n".join(lines) + "\n"


def _lease_families(leases: LeaseCounts | None, context: int) -> list[str]:
    """What the store says; nothing while it cannot say it: a number that is not known is not 0."""
    if leases is None:
        return []
    held = sum(leases.running_by_owner.values())
    counts = Counter({"here": min(context, held), "elsewhere": held - min(context, held)})
    return [
        *_labelled("lango_leases", "gauge", "Sessions whose turn runs, in the whole store.", "held", counts),
        *_one(
            "lango_queue", "gauge", "Turns that wait for another of their session, in the whole store.", leases.queued
        ),
    ]


def _head(name: str, kind: str, help_: str) -> list[str]:
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]


def _one(name: str, kind: str, help_: str, value: object) -> list[str]:
    return [*_head(name, kind, help_), f"{name} {value}"]


def _labelled(name: str, kind: str, help_: str, label: str, counts: Counter[str]) -> list[str]:
    return [*_head(name, kind, help_), *(f'{name}{{{label}="{value}"}} {counts[value]}' for value in sorted(counts))]
