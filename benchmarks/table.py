"""Tables and measurements that every benchmark shares."""

import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


def quick() -> bool:
    """Whether a short run is asked for: `--quick`, or LANGO_BENCH_QUICK=1."""
    return "--quick" in sys.argv or os.environ.get("LANGO_BENCH_QUICK", "") not in ("", "0")


def say(text: str = "") -> None:
    """Print at once, so that a long run shows where it is."""
    print(text, flush=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *bars: str) -> None:
    """Print a table with its title, and below it what was to be reached."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    say(f"\n{title}")
    for number, row in enumerate(cells):
        padded = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  " + "  ".join(padded).rstrip())
        if number == 0:
            say("  " + "  ".join("-" * width for width in widths))
    for line in bars:
        say(f"  {line}")


def bar(what: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> str:
    """Say whether a bar was met in this run."""
    met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    limit = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
    return f"{'met   ' if met else 'MISSED'}  {what}: {_cell(value)} (bar: {limit})"


def _cell(value: object) -> str:
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass
class Times:
    """What one contestant took: wall times of single calls, and CPU time of all of them."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    round_p50_s: list[float] = field(default_factory=list)

    @property
    def p50_us(self) -> float:
        """The median, in microseconds."""
        return statistics.median(self.wall_s) * 1e6

    def over(self, other: "Times") -> tuple[float, float, float]:
        """How often this is as slow as the other: the median of the ratio in each round, and its quartiles.

        Round by round, since a disk that is busy for a while hits both there, and one of them elsewhere.
        """
        ratios = [mine / its for mine, its in zip(self.round_p50_s, other.round_p50_s, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return middle, low, high

    @property
    def p99_us(self) -> float:
        """The slow end, in microseconds."""
        return statistics.quantiles(self.wall_s, n=100)[98] * 1e6

    @property
    def cpu_us(self) -> float:
        """CPU time of a call, all threads together, in microseconds."""
        return self.cpu_s / len(self.wall_s) * 1e6


async def interleaved(
    contestants: Mapping[str, Callable[..., Awaitable[object]]],
    *,
    rounds: int,
    calls: int | Mapping[str, int],
    inputs: Mapping[str, Iterator[object]] | None = None,
) -> dict[str, Times]:
    """Let everyone take turns, a few calls at a time, so that a noisy machine hits all alike.

    With `inputs`, each call is given the next one, which is made just before and not measured.
    """
    times = {name: Times() for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            count = calls if isinstance(calls, int) else calls[name]
            for _ in range(count):
                given = () if inputs is None else (next(inputs[name]),)
                cpu, start = time.process_time(), time.perf_counter()
                await call(*given)
                times[name].wall_s.append(time.perf_counter() - start)
                times[name].cpu_s += time.process_time() - cpu
            times[name].round_p50_s.append(statistics.median(times[name].wall_s[-count:]))
    return times
