"""Work out what a turn cost."""

from collections.abc import Mapping

from msgspec.structs import replace

from lango.events import Usage
from lango.threads import run_in_thread

_prices_loaded = False


def cost_usd(usage_by_model: Mapping[str, Usage]) -> float | None:
    """Return the cost of the tokens per model in US dollars; None if a price is unknown."""
    if not any(_has_tokens(usage) for usage in usage_by_model.values()):
        return None
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price  # slow to import, and only needed at the end of a turn

    global _prices_loaded
    _prices_loaded = True
    total = 0.0
    for model, usage in usage_by_model.items():
        priced = PricedUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        try:
            total += float(calc_price(priced, model_ref=model).total_price)
        except (LookupError, ValueError):
            return None
    return total


async def turn_usage(usage_by_model: Mapping[str, Usage], model_calls: int) -> Usage:
    """Sum up the tokens and the cost of a turn. The prices are loaded in a thread, once; a lookup takes 0.2 ms."""
    total = sum(usage_by_model.values(), Usage())
    is_fast = _prices_loaded or not _has_tokens(total)
    cost = cost_usd(usage_by_model) if is_fast else await run_in_thread(cost_usd, usage_by_model)
    return replace(total, model_calls=model_calls, cost_usd=cost)


def _has_tokens(usage: Usage) -> bool:
    return bool(usage.input_tokens or usage.output_tokens or usage.cached_tokens)
