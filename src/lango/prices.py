"""What a turn cost, where the price of its model is known."""

from collections.abc import Mapping


def cost_usd(tokens_by_model: Mapping[str, tuple[int, int, int]]) -> float | None:
    """Return the cost of (input, output, cached) tokens per model in US dollars; None where a price is not known."""
    if not any(sum(spent) for spent in tokens_by_model.values()):
        return None
    from genai_prices import Usage, calc_price  # slow to import, and only needed at the end of a turn

    total = 0.0
    for model, (input_tokens, output_tokens, cached_tokens) in tokens_by_model.items():
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached_tokens)
        try:
            total += float(calc_price(usage, model_ref=model).total_price)
        except (LookupError, ValueError):
            return None
    return total
