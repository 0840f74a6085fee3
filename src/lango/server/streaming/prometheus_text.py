"""Render the metrics of a server in Prometheus' text format.

The first scrape imports this: `prometheus_client` takes 50 ms of CPU and 0.9 MB, and many servers are never scraped.
"""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from lango.runtime import RunningTurn
from lango.server.streaming.metrics import Durations, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(
    metrics: Metrics,
    turns: Sequence[RunningTurn],
    waiting_for_admission: int,
    abandoned: int,
    stored: tuple[int, int] | None,
) -> bytes:
    """Return the metrics as text; `stored` counts the running and queued turns in the store, if it is available."""
    queued_behind_turn = sum(one.turn.epoch is None for one in turns)
    running = len(turns) - queued_behind_turn - waiting_for_admission
    gauges = {
        "lango_turns_running": ("Turns that run now.", running),
        "lango_turns_queued": ("Turns that wait until another turn of the process ends.", waiting_for_admission),
        "lango_turns_waiting": ("Turns that wait for an earlier turn of their session.", queued_behind_turn),
        "lango_streams": ("Clients that follow a turn.", metrics.streams),
    }
    families = [
        *_counters(metrics),
        CounterMetricFamily("lango_turns_abandoned", "Turns whose process died at each attempt.", abandoned),
        *(GaugeMetricFamily(name, description, value) for name, (description, value) in gauges.items()),
        *(_store_gauges(*stored, running + waiting_for_admission) if stored else ()),
        _histogram(
            "lango_take_over_seconds", "From finding a process gone to taking over its turn.", metrics.take_over_s
        ),
        _histogram("lango_turn_seconds", "From a message to the end of its turn.", metrics.turn_s),
        _histogram("lango_first_text_seconds", "From a message to the first text of its answer.", metrics.first_text_s),
    ]
    return generate_latest(_Families(families))


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Sequence[Metric]:
        return self._families


def _counters(metrics: Metrics) -> Iterator[Metric]:
    yield _by_label(CounterMetricFamily("lango_turns", "Ended turns by status.", labels=["status"]), metrics.turns)
    yield _by_label(
        CounterMetricFamily("lango_turns_resumed", "Resumed turns by reason.", labels=["reason"]), metrics.resumed
    )
    yield _by_label(
        CounterMetricFamily("lango_tokens", "Tokens that models read and wrote.", labels=["direction"]), metrics.tokens
    )
    yield CounterMetricFamily("lango_cost_usd", "Cost of turns whose price is known.", metrics.cost_usd)
    yield CounterMetricFamily("lango_model_calls", "Model calls of turns that completed.", metrics.model_calls)
    yield _by_label(CounterMetricFamily("lango_tools", "Tool calls by outcome.", labels=["status"]), metrics.tools)


def _store_gauges(held: int, queued: int, turns_here: int) -> Iterator[Metric]:
    here = min(turns_here, held)
    family = GaugeMetricFamily("lango_leases", "Sessions with a running turn, in the whole store.", labels=["held"])
    yield _by_label(family, {"here": here, "elsewhere": held - here})
    yield GaugeMetricFamily(
        "lango_queue", "Turns that wait for another turn of their session, in the whole store.", queued
    )


def _by_label(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family


def _histogram(name: str, description: str, durations: Durations) -> Metric:
    return HistogramMetricFamily(name, description, buckets=durations.buckets, sum_value=durations.sum_s)
