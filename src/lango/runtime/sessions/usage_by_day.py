"""Sum what turns used over all sessions of an app, by day and model."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.events import Usage
from lango.json_values import convert
from lango.runtime.prices import Prices, cost_usd
from lango.sessions import as_datetime
from lango.store import Store
from lango.store.engine.database import Row
from lango.store.turns.turn_result import TurnResult
from lango.store.turns.turn_usage import ModelCall, read_turns_since
from lango.threads import run_in_thread

MAX_TURNS = 50_000
"""How many of the newest turns are summed."""


class ModelUsage(Struct, frozen=True):
    """What the calls of a model on a day took. Days are those of UTC."""

    day: str
    agent: str
    """The app, as the server names it."""
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    duration_s: float = 0.0
    """The time of all calls together."""
    slowest_s: float = 0.0
    cost_usd: float | None = None
    """Null: the price is not known."""


class TurnCount(Struct, frozen=True):
    """How many turns began on a day, and how many of them failed or were interrupted."""

    day: str
    agent: str
    turns: int = 0
    failed: int = 0


class UsageByDay(Struct, frozen=True):
    """The usage of the turns since a time, by day."""

    models: Sequence[ModelUsage]
    turns: Sequence[TurnCount]
    complete: bool
    """False: there are more turns, and the oldest were left out."""


async def usage_by_day(store: Store, app: str, user_id: str | None, since: float, prices: Prices) -> UsageByDay:
    """Sum the turns of a user, or of all users, since a time."""
    rows = await store.read(read_turns_since, app, user_id, since, MAX_TURNS)
    return await run_in_thread(_sum, app, rows, prices)


def _sum(app: str, rows: Sequence[Row], prices: Prices) -> UsageByDay:
    models: dict[tuple[str, str], ModelUsage] = {}
    turns: dict[str, TurnCount] = {}
    for status, started_at, extra in rows:
        day = as_datetime(started_at).date().isoformat()
        count = turns.get(day, TurnCount(day, app))
        has_failed = status in ("failed", "interrupted")
        turns[day] = replace(count, turns=count.turns + 1, failed=count.failed + has_failed)
        for call in convert(TurnResult.decode(extra).calls, list[ModelCall]):
            known = models.get((day, call.model), ModelUsage(day, app, call.model))
            models[day, call.model] = _with_call(known, call)
    priced = [replace(one, cost_usd=_cost(one, prices)) for _, one in sorted(models.items())]
    return UsageByDay(priced, [turns[day] for day in sorted(turns)], len(rows) < MAX_TURNS)


def _with_call(known: ModelUsage, call: ModelCall) -> ModelUsage:
    return replace(
        known,
        calls=known.calls + 1,
        input_tokens=known.input_tokens + call.input_tokens,
        output_tokens=known.output_tokens + call.output_tokens,
        cached_tokens=known.cached_tokens + call.cached_tokens,
        duration_s=known.duration_s + call.duration_s,
        slowest_s=max(known.slowest_s, call.duration_s),
    )


def _cost(one: ModelUsage, prices: Prices) -> float | None:
    usage: Mapping[str, Usage] = {one.model: Usage(one.input_tokens, one.output_tokens, one.cached_tokens)}
    return cost_usd(usage, prices) if one.model else None
