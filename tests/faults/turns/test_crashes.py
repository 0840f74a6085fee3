"""kill -9 at every boundary of a turn, and at random moments: a new runtime finishes the turn without a client."""

import random
from pathlib import Path

import pytest

from lango.providers import Request
from lango.store import Store
from tests.agents.parts import collect, rows, text_of
from tests.support.runtimes import store_of
from tests.support.turn_worker import (
    BOUNDARIES,
    Kill,
    check,
    finish_without_a_client,
    kill_at,
    open_paying_runtime,
    retry_and_go_on,
)

RANDOM_KILLS = 12
KILLS_PER_SESSION = 6


@pytest.mark.parametrize("where", BOUNDARIES)
async def test_f1_to_f8_after_kill_9_at_a_boundary(store_url: str, tmp_path: Path, where: str) -> None:
    kill = kill_at(store_url, tmp_path, Kill("s", f"killed at {where}", "k", where))
    if where != "message stored":
        assert kill.received == ["accepted"], "the client knows that its message is stored"
    provider = await finish_without_a_client(store_url, tmp_path)
    requests = provider.requests
    effects = (tmp_path / "effects").read_text().split() if (tmp_path / "effects").exists() else []
    errors = str([result for request in requests[-1:] for result in _payments(request) if "error" in result])
    match where:
        case "effect begun" | "tool running":
            assert "outcome is unknown" in errors, "it had begun, and its outcome is not known"
            assert effects == []
        case "tool finished":
            assert "outcome is unknown" in errors
            assert len(effects) == 1
        case _:
            assert errors == "[]"
            assert len(effects) == 1
    later = await retry_and_go_on(store_url, tmp_path, kill)
    await check(store_url, tmp_path, [kill], requests + later.requests)


def _payments(request: Request) -> list[dict[str, object]]:
    results = [call for one in request.messages if one.role == "tool" for call in one.tool_calls]
    return [dict(call.output or {}) for call in results if call.name == "pay"]


async def test_an_answer_after_which_another_agent_speaks_is_no_end(store_url: str, tmp_path: Path) -> None:
    """Killed between the answers of two agents: the second one speaks, and the first one not again."""
    kill = kill_at(store_url, tmp_path, Kill("s", "both", "k", "answer stored", agents=2))
    provider = await finish_without_a_client(store_url, tmp_path, agents=2)
    assert len(provider.requests) == 2, "those of the second agent"
    async with open_paying_runtime(store_url, tmp_path, provider, agents=2) as runtime:
        events = await collect(runtime.stream("s", kill.text, idempotency_key=kill.key))
        assert text_of(events) == 2 * "I pay. it is done"
        assert events[-1].type == "done"
        assert await rows(store_of(runtime), "SELECT status FROM turns") == [("done",)]
    assert len((tmp_path / "effects").read_text().split()) == 2


async def test_f1_to_f8_after_kill_9_at_many_random_moments(store_url: str, tmp_path: Path) -> None:
    """Every third time the process that takes over is killed too."""
    dice = random.Random(store_url.partition(":")[0])
    kills: list[Kill] = []
    requests: list[Request] = []
    for number in range(RANDOM_KILLS):
        kill = Kill(f"s{number // KILLS_PER_SESSION}", f"message {number}", f"k{number}", "somewhere")
        kills.append(kill_at(store_url, tmp_path, kill, dice))
        if number % 3 == 0:
            kill_at(store_url, tmp_path, Kill("another", f"beside {number}", f"k{number}", "somewhere"), dice)
        requests += (await finish_without_a_client(store_url, tmp_path)).requests
        if kill.received:
            async with Store(store_url) as store:
                sql = f"SELECT status FROM turns WHERE idempotency_key = '{kill.key}'"
                assert ("done",) in await rows(store, sql)
        requests += (await retry_and_go_on(store_url, tmp_path, kill)).requests
        if len(kills) == KILLS_PER_SESSION:  # only now: nothing that is wrong becomes right again
            await check(store_url, tmp_path, kills, requests)
            kills, requests = [], []
