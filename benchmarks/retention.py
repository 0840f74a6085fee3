"""Retention alone: is a planted fact in the request when it is asked for, in conversations that nothing was tuned on?

The conversations are those of `benchmarks.memory` with other seeds, and other budgets; only our memory is run. For each
fact that is missing, the table names the step that dropped it.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.memory import CONVERSATIONS, OURS, Measured, measure, quiet
from benchmarks.table import print_line, quick, table

CHECKPOINTS = (100, 500) if quick() else (100, 1_000)
SEEDS = (101, 202)
BUDGETS = (4_000, 16_000)


def main() -> None:
    """Run the benchmark."""
    run(CHECKPOINTS)


def run(checkpoints: Sequence[int]) -> None:
    """Run the benchmark up to the last of some turns."""
    quiet()
    rows: list[list[Any]] = []
    for seed, budget in zip(SEEDS, BUDGETS, strict=True):
        for title, kind, _ in CONVERSATIONS:
            measured = asyncio.run(measure(OURS, kind, seed, checkpoints, budget=budget))
            rows += [[f"{title}, seed {seed}", budget, *_cells(row)] for row in measured]
    print_line("Budget: the most tokens of messages, notes and what is recalled in a request.")
    columns = ["conversation", "budget", "turns", "facts in the request", "only an old value", "old beside new"]
    columns += ["tokens in the request", "calls for memory", "named statements", "lost by"]
    table("Facts in the request when they are asked for", columns, rows)


def _cells(row: Measured) -> list[Any]:
    lost = ", ".join(f"{step}: {count}" for step, count in Counter(row.lost).items()) or "-"
    found = f"{row.found} of {row.asked}"
    named = f"{row.named[0]} of {row.named[1]}"
    tokens = row.question_tokens // max(1, row.asked)
    return [row.turns, found, row.only_old, row.beside_old, tokens, row.memory_calls, named, lost]


if __name__ == "__main__":  # `python -m benchmarks.retention 100 1000`
    run([int(turns) for turns in sys.argv[1:] if turns.isdigit()] or CHECKPOINTS)
