"""A turn that ends each process that runs it: the other turns of these processes finish, and the turn is given up."""

import asyncio
import json
from pathlib import Path

import pytest

from lango.runtime.execution.take_over import judge_crash
from lango.store import Store
from lango.store.turns.lease import CrashedTurn
from tests.agents.parts import rows
from tests.support.poison_turns import BYSTANDERS, POISON, run_beside_poison
from tests.support.store_workers import TIMEOUT_S, Worker

MAX_ATTEMPTS = 3
_ENDS = "SELECT s.id, t.status, t.attempts, t.extra FROM turns t JOIN sessions s ON s.session_key = t.session_key"


@pytest.mark.parametrize("in_tools", [False, True], ids=["in model calls", "in tools"])
async def test_a_turn_that_ends_its_process_takes_no_other_turn_along(
    store_url: str, tmp_path: Path, in_tools: bool
) -> None:
    async with Store(store_url) as store:
        first = Worker(run_beside_poison, store_url, str(tmp_path), True, in_tools)
        await asyncio.to_thread(first.process.join, TIMEOUT_S)
        replicas = [Worker(run_beside_poison, store_url, str(tmp_path), False, in_tools) for _ in range(3)]
        for replica in replicas:
            await asyncio.to_thread(replica.process.join, TIMEOUT_S)
        ends = {
            session_id: (status, attempts, extra) for session_id, status, attempts, extra in await rows(store, _ENDS)
        }
    assert {name: ends[name][:2] for name in BYSTANDERS} == dict.fromkeys(BYSTANDERS, ("done", 0))
    status, attempts, extra = ends[POISON]
    error = json.loads(extra)["error"]
    assert (status, attempts, error["type"]) == ("failed", MAX_ATTEMPTS, "TurnAbandoned")
    assert "while work ran" in error["message"]
    assert len([*tmp_path.glob("died-*")]) <= MAX_ATTEMPTS
    assert sorted(replica.process.exitcode or 0 for replica in replicas) == [0, 1, 1], "one replica is left"


def crashed(turn: int, suspicions: int = 0, *steps: str) -> CrashedTurn:
    return CrashedTurn(1, turn, suspicions, steps)


def test_a_turn_with_a_step_under_way_is_charged_and_the_others_are_not() -> None:
    crash = judge_crash([crashed(1), crashed(2, 0, "pay"), crashed(3)], 0.0, MAX_ATTEMPTS)
    assert crash.charged == {(1, 2)}
    assert [turn.turn for turn in crash.bystanders] == [1, 3]


def test_of_several_that_can_have_been_it_none_is_charged_until_one_was_suspected_more_often() -> None:
    assert judge_crash([crashed(1), crashed(2)], 0.0, MAX_ATTEMPTS).charged == frozenset()
    again = judge_crash([crashed(1, 1), crashed(2, 0, "pay"), crashed(3, 1)], 0.0, MAX_ATTEMPTS)
    assert again.charged == {(1, 2)}
    alone = judge_crash([crashed(1, 2, "pay"), crashed(2, 0, "pay")], 0.0, MAX_ATTEMPTS)
    assert alone.charged == {(1, 1)}


def test_turns_that_are_always_suspected_together_are_charged_in_the_end() -> None:
    turns = [crashed(1, 2 * MAX_ATTEMPTS - 1), crashed(2, 2 * MAX_ATTEMPTS - 1)]
    assert judge_crash(turns, 0.0, MAX_ATTEMPTS).charged == {(1, 1), (1, 2)}
