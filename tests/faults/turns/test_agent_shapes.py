"""A process is killed right after any commit of a turn: the turn goes on in another one, for every shape of agent."""

from pathlib import Path

import pytest

from tests.support.agent_shapes import SHAPES
from tests.support.kill_points import check_resumed, go_on, left_behind, run_and_copy, run_until_killed
from tests.support.store_workers import Worker

MOST_COMMITS = 60


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_goes_on_after_kill_9_at_each_commit(tmp_path: Path, shape: str) -> None:
    whole, copies = await run_and_copy(SHAPES[shape], tmp_path)
    for commits in range(1, MOST_COMMITS):
        file = tmp_path / f"killed-{commits}.db"
        worker = Worker(run_until_killed, shape, str(file), commits)
        worker.process.join()
        if worker.drain():  # it ended before
            break
        before = await left_behind(file)
        resumed = await go_on(SHAPES[shape], file)
        check_resumed(f"{shape} {commits}", whole, before, resumed, in_order="parallel" not in shape)
    else:
        pytest.fail(f"the turn never ends: {len(copies)} commits in this process")
