"""Hold back a step that the record does not have, until the run has used up what the record has.

After a deploy, the second run of a turn may not be the same as the first: an agent was renamed, or a sequence made
parallel. Its steps then have other identities, so the record answers none of them, and each tool would run again. So a
new step runs only when no recorded one is left. Other branches may still be on their way through the record, so the new
step waits as long as the run makes progress there, and then ends the turn, before anything has an effect.
"""

import asyncio

from lango.adk.events.recorded_run import WHY
from lango.adk.turn.turn_run import TurnRun
from lango.errors import TurnDiverged

_TICK_S = 0.25
PATIENCE_TICKS = 120
"""How long the user's own code in another branch may take between two recorded steps: 30 s of a free event loop."""
_SEQUENTIAL_TICKS = 2
"""Where no other branch can be on its way, only events that ADK has in a queue are awaited."""


async def await_record(turn: TurnRun, step: str, branch: str, *, is_tool: bool = False) -> None:
    """Wait until the record of a resumed turn is used up; raise `TurnDiverged` if this run does not use it up."""
    recorded = turn.record.recorded
    if recorded is None:
        return
    ticks, uses = 0, recorded.uses
    while (unused := recorded.unused_step()) is not None:
        patience = _SEQUENTIAL_TICKS if recorded.must_be_used_before(branch, is_tool=is_tool) else PATIENCE_TICKS
        if ticks >= patience:
            diverged = TurnDiverged(
                f"{step} was not run: the first run had {unused}, which this run did not reach: {WHY}"
            )
            turn.output.fail(diverged)  # even if the user's code or ADK replaces the exception
            raise diverged
        await asyncio.sleep(_TICK_S if ticks else 0)
        is_busy = recorded.uses != uses or _runs_tool(turn) or turn.record.store.outages.is_away
        ticks, uses = (0 if is_busy else ticks + 1), recorded.uses


def _runs_tool(turn: TurnRun) -> bool:
    """Whether a tool runs again, which may take its time; one that runs agents may itself contain the new step."""
    return not turn.record.started_at.keys() <= turn.record.agent_calls
