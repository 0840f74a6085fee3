"""Tables and measurements for all benchmarks."""

import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


def quick() -> bool:
    """Return whether a short run is requested: `--quick`, or LANGO_BENCH_QUICK=1."""
    return "--quick" in sys.argv or os.environ.get("LANGO_BENCH_QUICK", "") not in ("", "0")


def print_line(text: str = "") -> None:
    """Print a line and flush it, so that a long run shows its progress."""
    print(text, flush=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *bars: str) -> None:
    """Print a table with its title, and the bars below it."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    print_line(f"\n{title}")
    for number, row in enumerate(cells):
        padded = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print_line("  " + "  ".join(padded).rstrip())
        if number == 0:
            print_line("  " + "  ".join("-" * width for width in widths))
    for line in bars:
        print_line(f"  {line}")


def bar(what: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> str:
    """Return a line about whether this run met a bar."""
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
    """The wall times of a contestant's single calls, and the CPU time of all of them."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    round_p50_s: list[float] = field(default_factory=list)

    @property
    def p50_us(self) -> float:
        """The median, in microseconds."""
        return statistics.median(self.wall_s) * 1e6

    def over(self, other: "Times") -> tuple[float, float, float]:
        """Return how many times slower this is than the other: the median ratio of all rounds, and its quartiles.

        The ratio is taken in each round, because a disk that is busy for a while slows both in that round.
        """
        ratios = [mine / its for mine, its in zip(self.round_p50_s, other.round_p50_s, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        return middle, low, high

    @property
    def p99_us(self) -> float:
        """The 99th percentile, in microseconds."""
        return statistics.quantiles(self.wall_s, n=100)[98] * 1e6

    @property
    def cpu_us(self) -> float:
        """The CPU time of a call, over all threads, in microseconds."""
        return self.cpu_s / len(self.wall_s) * 1e6


async def interleaved(
    contestants: Mapping[str, Callable[..., Awaitable[object]]],
    *,
    rounds: int,
    calls: int | Mapping[str, int],
    inputs: Mapping[str, Iterator[object]] | None = None,
) -> dict[str, Times]:
    """Alternate between the contestants, a few calls at a time, so that a busy machine slows all alike.

    With `inputs`, each call gets the next input, which is created before the measurement.
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
