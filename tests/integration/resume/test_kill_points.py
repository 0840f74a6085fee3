"""A turn that is killed after any of its commits goes on: for every shape of agent, and for agents nested at random.

A copy of the store stands for the kill. Processes are really killed in `tests/faults/turns/test_agent_shapes.py`.
"""

from pathlib import Path

import pytest

from tests.support.agent_shapes import MIXTURES, SHAPES
from tests.support.kill_points import check_resumed, go_on, left_behind, run_and_copy


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", SHAPES | MIXTURES)
async def test_a_turn_goes_on_after_a_kill_at_each_commit(tmp_path: Path, shape: str) -> None:
    make = (SHAPES | MIXTURES)[shape]
    in_order = shape in SHAPES and "parallel" not in shape
    whole, copies = await run_and_copy(make, tmp_path)
    assert whole.status == "done"
    assert len(copies) >= 3
    for copy in copies:
        before = left_behind(copy)
        resumed = await go_on(make, copy)
        check_resumed(copy.name, whole, before, resumed, in_order=in_order)
