"""kill -9 at every boundary of a turn, and at random moments: F1 to F7 hold, and the next turn works."""

import random
from pathlib import Path

import pytest

from lango.events import TextDelta, TurnError
from lango.providers import Request
from lango.testing import ScriptedProvider
from tests.agents.parts import rows
from tests.support.turn_worker import BOUNDARIES, Kill, check, kill_at, open_paying_runtime, retry_and_go_on

RANDOM_KILLS = 50
CHECKED_EVERY = 10


@pytest.mark.parametrize("where", BOUNDARIES)
async def test_f1_to_f7_after_kill_9_at_a_boundary(store_url: str, tmp_path: Path, where: str) -> None:
    kill = kill_at(store_url, tmp_path, Kill("s", f"killed at {where}", "k", where))
    if where != "message stored":
        assert kill.received == ["accepted"], "the client knows that its message is stored"
    provider, outcome = await retry_and_go_on(store_url, tmp_path, kill)
    assert outcome == ("I pay. it is done" if where in ("answer stored", "turn ended") else "TurnFailed")
    await check(store_url, tmp_path, [kill], provider.requests)
    [told] = [str(result) for result in _payments(provider.requests[-1]) if "error" in result] or [""]
    effects = (tmp_path / "effects").read_text().split()
    match where:
        case "effect begun" | "tool running":
            assert "outcome is unknown" in told, "it had begun, and nobody knows"
            assert len(effects) == 1, "only the later turn's"
        case "tool finished":
            assert "outcome is unknown" in told
            assert len(effects) == 2
        case "call stored":
            assert len(effects) == 1
        case _:
            pass


def _payments(request: Request) -> list[dict[str, object]]:
    results = [call for one in request.messages if one.role == "tool" for call in one.tool_calls]
    return [dict(call.output or {}) for call in results if call.name == "pay"]


async def test_an_answer_after_which_another_agent_speaks_is_no_end(store_url: str, tmp_path: Path) -> None:
    """Killed between the answers of two agents: what is stored is told again, and that it is not all."""
    kill = kill_at(store_url, tmp_path, Kill("s", "both", "k", "answer stored", agents=2))
    provider = ScriptedProvider(["never asked"])
    async with open_paying_runtime(store_url, tmp_path, provider, agents=2) as runtime:
        events = [event async for event in runtime.stream("s", kill.text, idempotency_key=kill.key)]
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["I pay. ", "it is done"]
        assert isinstance(events[-1], TurnError)
        assert events[-1].error == "TurnFailed"
        assert await rows(runtime.store, "SELECT status, answer_stored FROM turns") == [("interrupted", 0)]
    assert provider.requests == []


async def test_f1_to_f7_after_kill_9_at_many_random_moments(store_url: str, tmp_path: Path) -> None:
    dice = random.Random(store_url.partition(":")[0])
    kills: list[Kill] = []
    requests: list[Request] = []
    for number in range(RANDOM_KILLS):
        kill = Kill("s", f"message {number}", f"k{number}", "somewhere")
        kills.append(kill_at(store_url, tmp_path, kill, dice))
        provider, _ = await retry_and_go_on(store_url, tmp_path, kill)
        requests += provider.requests
        if len(kills) % CHECKED_EVERY == 0:  # of all kills so far: nothing that is wrong becomes right again
            await check(store_url, tmp_path, kills, requests)
            requests.clear()
