"""Work out what a turn cost."""

from collections.abc import Mapping

from msgspec.structs import replace

from lango.config import PriceSettings
from lango.events import Usage
from lango.threads import run_in_thread

_prices_loaded = False


Prices = Mapping[str, PriceSettings]
"""The prices of the settings, by model."""


def cost_usd(usage_by_model: Mapping[str, Usage], prices: Prices) -> float | None:
    """Return the cost of the tokens per model in US dollars; None if a price is unknown."""
    if not any(_has_tokens(usage) for usage in usage_by_model.values()):
        return None
    own = {model: price for model in usage_by_model if (price := _own_price(model, prices)) is not None}
    total = sum(_cost(usage_by_model[model], price) for model, price in own.items())
    published = {model: usage for model, usage in usage_by_model.items() if model not in own}
    if not published:
        return total
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price  # slow to import, and only needed at the end of a turn

    global _prices_loaded
    _prices_loaded = True
    for model, usage in published.items():
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


def _own_price(model: str, prices: Prices) -> PriceSettings | None:
    """Return the price of the settings for a model; the provider may be left out on either side."""
    name = model.partition("/")[2]
    return (
        prices.get(model) or prices.get(name) or next((p for n, p in prices.items() if n.endswith(f"/{model}")), None)
    )


def _cost(usage: Usage, price: PriceSettings) -> float:
    cached = min(usage.cached_tokens, usage.input_tokens)
    cached_price = price.input if price.cached is None else price.cached
    dollars = (usage.input_tokens - cached) * price.input + cached * cached_price + usage.output_tokens * price.output
    return dollars / 1_000_000


async def turn_usage(usage_by_model: Mapping[str, Usage], model_calls: int, prices: Prices) -> Usage:
    """Sum up the tokens and the cost of a turn. The prices are loaded in a thread, once; a lookup takes 0.2 ms."""
    total = sum(usage_by_model.values(), Usage())
    is_fast = _prices_loaded or not _has_tokens(total)
    cost = cost_usd(usage_by_model, prices) if is_fast else await run_in_thread(cost_usd, usage_by_model, prices)
    return replace(total, model_calls=model_calls, cost_usd=cost)


def _has_tokens(usage: Usage) -> bool:
    return bool(usage.input_tokens or usage.output_tokens or usage.cached_tokens)
