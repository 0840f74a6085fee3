"""Work out what a turn cost."""

import asyncio
from collections.abc import Mapping

from lango.events import Usage
from lango.turns.turn_progress import TurnProgress

_prices_loaded = False


def cost_usd(tokens_by_model: Mapping[str, tuple[int, int, int]]) -> float | None:
    """Return the cost of (input, output, cached) tokens per model in US dollars; None if a price is unknown."""
    if not any(sum(counts) for counts in tokens_by_model.values()):
        return None
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price  # slow to import, and only needed at the end of a turn

    global _prices_loaded
    _prices_loaded = True
    total = 0.0
    for model, (input_tokens, output_tokens, cached_tokens) in tokens_by_model.items():
        usage = PricedUsage(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached_tokens)
        try:
            total += float(calc_price(usage, model_ref=model).total_price)
        except (LookupError, ValueError):
            return None
    return total


async def turn_usage(progress: TurnProgress, model_calls: int) -> Usage:
    """Sum up the tokens and the cost of a turn. The prices are loaded in a thread, once; a lookup takes 0.2 ms."""
    tokens = {model: (counts[0], counts[1], counts[2]) for model, counts in progress.tokens_by_model.items()}
    is_fast = _prices_loaded or not progress.input_tokens + progress.output_tokens
    return Usage(
        input_tokens=progress.input_tokens,
        output_tokens=progress.output_tokens,
        cached_tokens=progress.cached_tokens,
        thought_tokens=progress.thought_tokens,
        model_calls=model_calls,
        cost_usd=cost_usd(tokens) if is_fast else await asyncio.to_thread(cost_usd, tokens),
    )
