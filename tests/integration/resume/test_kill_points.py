"""A turn that is killed after any of its commits goes on, for agents that are nested at random.

The shapes one by one, with processes that are really killed, are in `tests/faults/turns/test_agent_shapes.py`.
"""

from pathlib import Path

import pytest

from tests.support.agent_shapes import MIXTURES
from tests.support.kill_points import check_resumed, go_on, left_behind, run_and_copy


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", MIXTURES)
async def test_a_turn_goes_on_after_a_kill_at_each_commit(tmp_path: Path, shape: str) -> None:
    whole, copies = await run_and_copy(MIXTURES[shape], tmp_path)
    assert whole.status == "done"
    assert len(copies) >= 3
    for copy in copies:
        before = await left_behind(copy)
        resumed = await go_on(MIXTURES[shape], copy)
        check_resumed(copy.name, whole, before, resumed, in_order=False)
