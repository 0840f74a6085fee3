"""Count turns, tokens, cost and tool calls of a server, for `lango.server.streaming.prometheus_text`."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from itertools import accumulate

from lango.events import Resumed, ToolEnd, TurnDone
from lango.runtime import RunningTurn
from lango.runtime.turns import StoredTurn

_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Durations:
    """A histogram of seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(_BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each upper bound, with the count of durations up to it."""
        return list(zip((*map(str, _BUCKETS_S), "+Inf"), accumulate(self._counts), strict=True))


class Metrics:
    """Counts of one server."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        """Ended turns by status."""
        self.tokens: Counter[str] = Counter()
        self.cost_usd = 0.0
        self.model_calls = 0
        self.tools: Counter[str] = Counter()
        """Tool calls by outcome."""
        self.streams = 0
        self.resumed: Counter[str] = Counter()
        """Resumed turns by reason."""
        self.take_over_s = Durations()
        self.turn_s = Durations()
        self.first_text_s = Durations()

    @contextmanager
    def count_reader(self) -> Generator[None]:
        """Count a reader while it reads."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def count_taken_over(self, running: RunningTurn) -> None:
        """Count a turn that this process took over from another one."""
        if running.is_resumed:
            last = [event for event in running.events if isinstance(event, Resumed)][-1]
            self.resumed[last.reason] += 1
        self.take_over_s.add(running.taken_over_s or 0.0)

    def count_turn(self, running: RunningTurn, record: StoredTurn | None) -> None:
        """Count a turn that ended, or that another process continues."""
        own_events = running.events[running.log.restored_count :]
        self.resumed.update(
            event.reason for event in own_events if isinstance(event, Resumed) and event.reason == "failure"
        )
        self.tools.update("ok" if event.ok else "error" for event in own_events if isinstance(event, ToolEnd))
        if record and record.status in ("queued", "running"):
            return
        self.turns[record.status if record else "lost"] += 1
        self.turn_s.add(time.monotonic() - running.accepted_at)
        if running.log.first_text_at is not None:
            self.first_text_s.add(running.log.first_text_at - running.accepted_at)
        if record is not None:
            used = record.result.usage
            self.tokens.update({"input": used.input_tokens, "output": used.output_tokens})
        for event in own_events:
            if isinstance(event, TurnDone):
                self.cost_usd += event.usage.cost_usd or 0.0
                self.model_calls += event.usage.model_calls
