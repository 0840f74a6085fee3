"""The server's memory over 10,000 turns: read after each thousand, from one process that answers over HTTP."""

import asyncio
import json
import statistics
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import httpx

from benchmarks.server import AGENT, BIN, many_turns, rss_mb, started
from benchmarks.table import bar, print_line, quick, table

TURNS, STEPS = 10_000, 10


def turns_wanted() -> int:
    """Return the number of turns: `--turns N`, or fewer with `--quick`."""
    if "--turns" in sys.argv:
        return int(sys.argv[sys.argv.index("--turns") + 1])
    return 2_000 if quick() else TURNS


def soak(url: str, pid: int, turns: int) -> None:
    """Run turns in steps, and read the server's memory after each."""
    step = turns // STEPS
    rows: list[list[object]] = []
    sizes: list[float] = []
    for number in range(1, STEPS + 1):
        began = time.perf_counter()
        asyncio.run(many_turns(url, step, f"soak-{number}"))
        took = time.perf_counter() - began
        sizes.append(rss_mb(pid))
        rows.append([number * step, step / took, sizes[-1]])
        print_line(f"  {number * step} turns: {sizes[-1]:.1f} MB")
    # what a process needs to get going is there after the first third; from then on it should stand still
    first, last = statistics.median(sizes[2:5]), statistics.median(sizes[-3:])
    grown = (last - first) * 2**20 / (step * 5.5)
    counted = sum(line.count("lango_turns_total{") for line in httpx.get(f"{url}/metrics").text.splitlines())
    table(
        "memory of the server, 10 turns in each session, 20 at once",
        ["turns", "turns/s", "MB"],
        rows,
        bar("memory at the end / after the first third", last / first, at_most=1.1),
        f"        bytes more for each turn in between: {grown:,.0f}; series of turns in /metrics: {counted}",
    )


def main() -> None:
    """Start a server and run all turns."""
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as name:
        folder = Path(name)
        (folder / "ticking").mkdir()
        (folder / "ticking" / "__init__.py").write_text("from . import agent\n")
        (folder / "ticking" / "agent.py").write_text(textwrap.dedent(AGENT))
        config = folder / "lango.toml"
        # as a server with keys, which keeps no requests
        config.write_text(f"[trace]\nrequests = false\n[agent]\nmodule = {json.dumps(str(folder / 'ticking'))}\n")
        command = [str(BIN / "lango"), "serve", "--config", str(config)]
        with started(command, folder, "/readyz") as (url, pid, _):
            soak(url, pid, turns_wanted())


if __name__ == "__main__":
    main()
