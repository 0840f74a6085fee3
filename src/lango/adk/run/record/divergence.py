"""Hold back a step that the record does not have while recorded steps that come before it are still unused.

A turn that is run again uses up its record in the order in which it was made; see `lango.adk.events.recorded_run`. A
new step before that shows that the code is not the same, although the app has the same shape: an agent of the user's
own calls others than before. Nothing may run then: the turn continues from its stored history instead.
"""

import asyncio

from lango.adk.events.recorded_run import WHY
from lango.adk.turn.step import current_step
from lango.adk.turn.turn_run import TurnRun
from lango.errors import TurnDiverged

_PASSES = 20
"""How often the event loop runs the tasks that begin together with a step: they ask for their own recorded steps."""


async def require_used_up(turn: TurnRun, step: str, branch: str, *, is_tool: bool = False, node: str = "") -> None:
    """Raise `TurnDiverged` if the record has steps that come before a new one, and that this run has not used.

    `node` is the id of a new function node.
    """
    earlier, place = turn.record.earlier_run, (current_step().outer_calls, branch, node)
    passes, uses = 0, earlier.uses
    while unused := earlier.unused_before(*place, is_tool=is_tool):
        if passes == _PASSES:
            diverged = TurnDiverged(f"{step} was not run: the first run had {unused} before it: {WHY}")
            turn.output.fail(diverged)  # even if the user's code or ADK replaces the exception
            raise diverged
        await asyncio.sleep(0)
        passes, uses = (passes + 1 if earlier.uses == uses else 0), earlier.uses
