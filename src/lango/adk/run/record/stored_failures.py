"""Store what the user's own code raised in a turn, before readers hear of it."""

import logging

from lango.adk.turn.turn_run import TurnRun
from lango.errors import StoreError
from lango.store.turns.failures import add_failures

_log = logging.getLogger("lango.runtime")


async def store_failures(turn: TurnRun) -> None:
    """Store the failures since the last time; those that cannot be stored now are stored the next time."""
    if not (new := turn.failures.take()):
        return
    try:
        await turn.record.store.write(add_failures, turn.record.lease, new)
    except StoreError as error:
        turn.failures.add(*new)
        _log.warning("%s: %d failures could not be kept yet: %s", turn.place, len(new), error)
