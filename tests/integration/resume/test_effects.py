"""Tools of ADK that may run again after a crash inside of them: by a mark on their function, or by a setting."""

from pathlib import Path
from typing import Any

import pytest

from lango import open_runtime
from lango.adk import idempotent, once
from tests.agents.parts import settings_for, statuses
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, run_and_copy, story, until_idle
from tests.support.runtimes import store_of

UNKNOWN = "outcome is unknown"


def make(journal: Journal, mark: Any = None) -> Any:
    def pay(x: str) -> dict[str, str]:
        """Pay."""
        journal.effects.append("pay")
        return {"paid": x}

    return agent(journal, "a", call("pay", x="1"), "done", tools=[mark(pay) if mark else pay])


CASES: dict[str, tuple[Any, list[str], bool]] = {
    "without a mark": (None, [], False),
    "marked as once": (once, [], False),
    "marked as idempotent": (idempotent, [], True),
    "named in the settings": (None, ["pay"], True),
}


@pytest.mark.parametrize("case", CASES)
async def test_only_an_idempotent_tool_runs_again_after_a_crash_inside_of_it(tmp_path: Path, case: str) -> None:
    mark, named, runs_again = CASES[case]
    first = Journal()
    settings = settings_for(f"sqlite:///{tmp_path}/first.db", tools={"idempotent": named})
    whole, copies = await run_and_copy(lambda _: make(first, mark), tmp_path, settings=settings)
    unknown, again = 0, 0
    for copy in copies:
        journal = Journal()
        settings = settings_for(f"sqlite:///{copy}", tools={"idempotent": named})
        async with open_runtime(settings, root_agent=make(journal, mark)) as runtime:
            await until_idle(runtime)
            assert await statuses(runtime) == ["done"]
            lines = await story(store_of(runtime))
        unknown += any(UNKNOWN in line for line in lines)
        again += bool(journal.effects)
        assert any(UNKNOWN in line for line in lines) or lines == whole.story
    assert bool(unknown) is not runs_again
    assert again
