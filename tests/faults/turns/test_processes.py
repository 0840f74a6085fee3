"""A7 across processes: several of them run one turn of a session at a time; a turn whose process dies goes on."""

from collections import Counter
from pathlib import Path

from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.window import read_session_events
from tests.agents.parts import rows
from tests.support.held_turns import run_a_held_turn
from tests.support.store_workers import Worker
from tests.support.turn_worker import check_calls, run_many_turns

TURNS = 4
NAME = SessionId("crash", "user", "s")


async def test_a7_processes_take_turns_on_one_session(store_url: str, tmp_path: Path) -> None:
    async with Store(store_url) as store:
        workers = [
            Worker(run_many_turns, store_url, str(tmp_path), "s", name, TURNS) for name in ("one", "two", "three")
        ]
        assert [worker.recv() for worker in workers] == ["ready"] * 3
        for worker in workers:
            worker.send("go")
        for worker in workers:
            said, broken = worker.recv()
            assert said == ["I pay. it is done"] * TURNS
            assert broken == []
            worker.join()
        found = await store.read(read_session_events, NAME)
        assert found
        messages = [one.message for one in found[1] if one.message]
        assert [one.role for one in messages] == ["user", "assistant", "tool", "assistant"] * (3 * TURNS)
        asked = Counter(one.content.split()[0] for one in messages if one.role == "user")
        assert asked == {"one": TURNS, "two": TURNS, "three": TURNS}
        for name in asked:
            own = [one.content for one in messages if one.role == "user" and one.content.startswith(name)]
            assert own == [f"{name} {number}" for number in range(TURNS)], "each in its own order"
        check_calls(messages, tmp_path)
        assert await rows(store, "SELECT status, COUNT(*) FROM turns GROUP BY status") == [("done", 3 * TURNS)]


async def test_a7_the_turn_of_one_that_is_killed_in_a_tool_is_finished_by_one_that_waits(
    store_url: str, tmp_path: Path
) -> None:
    async with Store(store_url) as store:
        first = Worker(run_a_held_turn, store_url, str(tmp_path), "s", "first", "k", "tool finished")
        while first.recv() != "here":
            pass
        second = Worker(run_many_turns, store_url, str(tmp_path), "s", "second", 1)
        assert second.recv() == "ready"
        second.send("go")
        while await rows(store, "SELECT status FROM turns ORDER BY turn") != [("running",), ("queued",)]:
            pass
        assert not second.pipe.poll(0.5), "it waits: the first one lives"
        first.kill()
        said, broken = second.recv()
        assert said == ["I pay. it is done"]
        assert broken == []
        second.join()
        statuses = await rows(store, "SELECT status FROM turns ORDER BY turn")
        assert statuses == [("done",), ("done",)]
        found = await store.read(read_session_events, NAME)
        assert found
        messages = [one.message for one in found[1] if one.message]
        assert [one.role for one in messages] == ["user", "assistant", "tool", "assistant"] * 2
        check_calls(messages, tmp_path)
