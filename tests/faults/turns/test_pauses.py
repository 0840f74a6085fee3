"""A process is killed between question and answer: the answer goes to another process, which may be killed as well."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lango.store import Store
from tests.agents.parts import rows
from tests.support.kill_points import story
from tests.support.paused_turns import CREDENTIALS, SHAPES, effects_in, take_step, write_environment
from tests.support.servers.oauth_server import OAuthServer, oauth_server
from tests.support.store_workers import Worker

PAUSED = ("waiting", "done")
OF_EACH_KIND = (
    "an input of a nested workflow after an agent",
    "an approval",
    "a long-running tool in a workflow that is an agent's tool",
    "an OAuth access in a task",
    "a key",
)
"""One shape of each kind of wait: the other shapes differ in what ADK does above the store."""
RUNS = [
    *(("sqlite", shape, True) for shape in SHAPES),
    *(("sqlite", shape, False) for shape in OF_EACH_KIND),  # the process that takes the answer ends the turn
    *(("postgres", shape, True) for shape in OF_EACH_KIND),
]


@pytest.fixture(scope="module")
def oauth() -> Iterator[OAuthServer]:
    with oauth_server(reusable_codes=True) as server:  # a kill between the exchange and the save asks again
        yield server


async def step(url: str, folder: Path, shape: str, name: str, *, dies: bool = False) -> object:
    """Take a step in a process of its own, and kill it; return what it reported."""
    worker = Worker(take_step, url, str(folder), shape, name, dies)
    try:
        if dies:
            await asyncio.to_thread(worker.process.join, 120)
            return None
        return await asyncio.to_thread(worker.recv)
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("database", "shape", "dies"),
    [pytest.param(*run, id="-".join((*run[:2], "killed with the answer" if run[2] else "answered"))) for run in RUNS],
)
async def test_the_answer_to_another_process_continues_a_turn(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, shape: str, dies: bool, oauth: OAuthServer
) -> None:
    store_url: str = request.getfixturevalue(f"{database}_url")
    write_environment(tmp_path, oauth)
    asked = await step(store_url, tmp_path, shape, "ask")
    assert isinstance(asked, tuple)
    assert asked[0] == ("done" if "first report" in shape else asked[0])
    assert asked[0] in PAUSED
    if "long-running" in shape:
        updated = await step(store_url, tmp_path, shape, "update", dies=dies)
        if dies:
            assert await step(store_url, tmp_path, shape, "wait") == "idle"
        else:
            assert isinstance(updated, tuple)
            assert updated[0] in ("done", "long_running_result")
    answered = await step(store_url, tmp_path, shape, "answer", dies=dies)
    if dies:
        assert await step(store_url, tmp_path, shape, "wait") == "idle"
    else:
        assert isinstance(answered, tuple)
        assert answered[0] == "done", answered
    async with Store(store_url) as store:
        assert {status for [status] in await rows(store, "SELECT status FROM turns")} == {"done"}
        lines = await story(store)
        assert await rows(store, "SELECT call_id FROM open_calls") == []
        assert (
            await rows(store, "SELECT id FROM waits WHERE secret IS NOT NULL OR kind = 'credential' AND answer > ''")
            == []
        )
        assert len(await rows(store, "SELECT secret FROM credentials")) == (shape in CREDENTIALS)
        assert await rows(store, "SELECT id FROM waits WHERE closed IS NULL") == []
    done = effects_in(tmp_path)
    assert done
    assert set(done.values()) == {1}, f"each effect happens once: {done}, {lines}"
    assert ("after" in done) is ("workflow" in shape), lines
