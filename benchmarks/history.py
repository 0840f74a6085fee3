"""How much of adversarial histories one turn sends to a model, and whether every provider accepts it, beside ADK alone.

The same seeded histories are stored through `SqlSessionService` and through ADK's store in memory, and ADK's Runner
runs one turn on each. A text or a result counts as sent if the request contains its marker word; a clipped result has
it at the beginning.
"""

import asyncio
import logging
import tempfile
import warnings
from pathlib import Path

from benchmarks.table import bar, print_line, quick, table
from lango.adk import SqlSessionService
from tests.support.histories import histories
from tests.support.sent_requests import Share, broken, sent_by_adk, sent_by_lango, words_of

BUDGET_TOKENS = 32_000
ALL, WINDOW, ADK = "lango, all events loaded", "lango, loaded by budget", "ADK alone"


async def measure(folder: Path, count: int) -> tuple[dict[str, Share], int]:
    """Send every history each way; return the parts sent, and how many requests a provider would refuse."""
    shares = {name: Share() for name in (ALL, WINDOW, ADK)}
    refused = 0
    async with SqlSessionService(f"sqlite:///{folder}/history.db") as service:
        services = {ALL: service, WINDOW: SqlSessionService("", store=service.store, budget_tokens=BUDGET_TOKENS)}
        for number, history in enumerate(histories(count)):
            for name, one in services.items():
                request = await sent_by_lango(one, history, f"{name} {number}", BUDGET_TOKENS)
                refused += bool(broken(request))
                shares[name].add(history, words_of(request.messages))
            shares[ADK].add(history, await sent_by_adk(history))
    return shares, refused


def main() -> None:
    """Print the table."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    count = 60 if quick() else 300
    print_line(f"{count} histories, budget {BUDGET_TOKENS:,} tokens{', quick' if quick() else ''}")
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
        shares, refused = asyncio.run(measure(Path(folder), count))
    table(
        "the part of a stored history that one turn sends",
        ["", "texts", "sent %", "results", "sent %"],
        [[name, one.texts, one.of_texts, one.results, one.of_results] for name, one in shares.items()],
        bar("texts sent by lango, %", min(shares[name].of_texts for name in (ALL, WINDOW)), at_least=99.5),
        bar("results sent by lango, %", min(shares[name].of_results for name in (ALL, WINDOW)), at_least=99),
        bar("requests of lango that a provider would refuse", float(refused), at_most=0),
    )


if __name__ == "__main__":
    main()
