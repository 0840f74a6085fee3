"""Sum what turns used over all sessions of an app, by day and model."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lango.events import Usage
from lango.runtime.prices import Prices, cost_usd
from lango.sessions import as_datetime
from lango.store import Store
from lango.store.turns.turn_usage import DayOfModel, sum_by_day
from lango.threads import run_in_thread


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


async def usage_by_day(store: Store, app: str, user_id: str | None, since: float, prices: Prices) -> UsageByDay:
    """Sum the turns of a user, or of all users, since a time; the database sums them."""
    turns, models = await store.read(sum_by_day, store.dialect, app, user_id, since)

    def priced() -> list[ModelUsage]:
        rows: list[dict[str, Any]] = [one._asdict() | {"day": _day(one.day)} for one in models]
        return [
            ModelUsage(agent=app, cost_usd=_cost(one, prices), **row) for one, row in zip(models, rows, strict=True)
        ]

    counts = [TurnCount(_day(one.day), app, one.turns, one.failed) for one in turns]
    return UsageByDay(await run_in_thread(priced), counts)


def _day(number: int) -> str:
    return as_datetime(number * 86_400.0).date().isoformat()


def _cost(one: DayOfModel, prices: Prices) -> float | None:
    usage = {one.model: Usage(one.input_tokens, one.output_tokens, one.cached_tokens)}
    return cost_usd(usage, prices) if one.model else None
