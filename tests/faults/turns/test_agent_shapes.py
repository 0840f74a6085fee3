"""A process is killed right after a commit of a turn: the turn goes on in another one, for one shape of each kind.

One kill a shape, each at another part of its turn: the store is then what a copy of it after this commit holds. Every
commit of every shape, from such copies, is in `tests/integration/resume/test_kill_points.py`.
"""

from pathlib import Path

import pytest

from tests.support.agent_shapes import SHAPES
from tests.support.kill_points import check_resumed, go_on, left_behind, run_and_copy, run_until_killed
from tests.support.store_workers import Worker

KILLED = (
    "workflow of function, agent, function",
    "workflow with fan-out and join",
    "three calls",
    "agent tool",
    "parallel",
)
PARTS = 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
@pytest.mark.parametrize("shape", KILLED)
async def test_a_turn_goes_on_after_kill_9(tmp_path: Path, shape: str) -> None:
    whole, copies = await run_and_copy(SHAPES[shape], tmp_path)
    part = KILLED.index(shape) % PARTS
    commit = 1 + (len(copies) - 3) * part // (PARTS - 1)
    file = tmp_path / f"killed-{commit}.db"
    while has_ended(shape, file, commit):  # what met in one commit now may have taken several before
        assert commit > 1, "it was killed before the end of its turn"
        commit -= 1
        file = tmp_path / f"killed-{commit}.db"
    before = left_behind(file)
    resumed = await go_on(SHAPES[shape], file)
    check_resumed(f"{shape} {commit}", whole, before, resumed, in_order="parallel" not in shape)


def has_ended(shape: str, file: Path, commit: int) -> bool:
    """Run a turn in a process that is killed right after a commit; return whether it ended before that."""
    worker = Worker(run_until_killed, shape, str(file), commit)
    worker.process.join()
    return worker.drain() != []
