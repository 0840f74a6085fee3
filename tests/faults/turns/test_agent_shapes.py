"""A process is killed right after a commit of a turn: the turn goes on in another one, for every shape of agent.

Four kills a shape, from its first commit to its last; every commit, without a process, is in
`tests/integration/resume/test_kill_points.py`.
"""

from pathlib import Path

import pytest

from tests.support.agent_shapes import SHAPES
from tests.support.kill_points import check_resumed, go_on, left_behind, run_and_copy, run_until_killed
from tests.support.store_workers import Worker

KILLS = 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_goes_on_after_kill_9(tmp_path: Path, shape: str) -> None:
    whole, copies = await run_and_copy(SHAPES[shape], tmp_path)
    commits = sorted({1 + (len(copies) - 2) * kill // (KILLS - 1) for kill in range(KILLS)})
    files = [tmp_path / f"killed-{number}.db" for number in commits]
    workers = [Worker(run_until_killed, shape, str(file), number) for file, number in zip(files, commits, strict=True)]
    killed = 0
    for number, file, worker in zip(commits, files, workers, strict=True):
        worker.process.join()
        if worker.drain():  # it ended: the number of commits differs by what meets in one
            continue
        killed += 1
        before = left_behind(file)
        resumed = await go_on(SHAPES[shape], file)
        check_resumed(f"{shape} {number}", whole, before, resumed, in_order="parallel" not in shape)
    assert killed >= len(commits) - 1
