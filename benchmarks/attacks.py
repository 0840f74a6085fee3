"""How long hostile input delays the event loop of a server: every attack of `tests/faults/server/test_attacks_cpu*.py`.

The delay is how late a timer of the loop is, which includes threads that hold the interpreter lock. The raw figure is
reading the largest JSON body that a server accepts, measured before each attack: a busy machine slows both alike.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.table import bar, print_line, quick, table
from lango.json_values import MAX_VALUES, read_json
from tests.faults.server import test_attacks_cpu, test_attacks_cpu_sessions
from tests.support.loop_monitor import Attack, hostile_server
from tests.support.servers.server_process import Server

_BODY = json.dumps({f"key-{number}": number for number in range(MAX_VALUES - 1)})
_QUICK = 10
_WORST = 15

Delay = tuple[str, float, float, float]
"""An attack, the longest delay and the raw figure in milliseconds, and their ratio."""


def _read_largest_body_ms() -> float:
    began = time.perf_counter()
    read_json(_BODY)
    return (time.perf_counter() - began) * 1000


def _measure(attacks: Mapping[str, Attack], memory: str = "") -> list[Delay]:
    """Run attacks on a server of their own, each twice: the first run may import modules."""
    delays: list[Delay] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "delays.txt"
        log.touch()
        with hostile_server(Path(folder), {"LANGO_LOOP_DELAYS": str(log)}, memory) as server:
            for name, attack in [*attacks.items()][: _QUICK if quick() else None]:
                asyncio.run(_run(attack, server))
                raw_ms, seen = _read_largest_body_ms(), len(log.read_text())
                asyncio.run(_run(attack, server))
                late_ms = max((float(line) * 1000 for line in log.read_text()[seen:].split()), default=0.0)
                delays.append((name, late_ms, raw_ms, late_ms / raw_ms))
    return delays


async def _run(attack: Attack, server: Server) -> None:
    async with server.client() as client:
        await attack(client, server)
        await client.get("/healthz")


def main() -> None:
    """Measure every attack, and print those that delay the loop most."""
    delays = _measure(test_attacks_cpu.ATTACKS)
    delays += _measure(test_attacks_cpu_sessions.ATTACKS)
    delays += _measure(test_attacks_cpu_sessions.REMEMBERING, test_attacks_cpu_sessions.MEMORY)
    delays.sort(key=lambda one: -one[3])
    table(
        f"The longest delay of the event loop, the {_WORST} worst of {len(delays)} attacks",
        ("", "ms", "largest body, ms", "ratio"),
        delays[:_WORST],
        bar(
            "median of all attacks, in readings of the largest body", statistics.median(d[3] for d in delays), at_most=1
        ),
        bar("the worst attack, in readings of the largest body", delays[0][3], at_most=4),
    )
    print_line("  An attack that is not listed delays the loop less.")


if __name__ == "__main__":
    main()
