"""A turn is not continued wrongly: it ends with a typed error where the second run cannot follow the first one."""

import json
from pathlib import Path
from typing import Any

from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.adk import once
from lango.store import Store
from tests.agents.parts import rows, settings_for
from tests.support.agent_shapes import agent
from tests.support.kill_points import Journal, MakeAgent, left_behind, run_and_copy, until_idle
from tests.support.runtimes import store_of


async def error_after_going_on(make: MakeAgent, copy: Path) -> tuple[str, Journal]:
    """Go on from a copy of the store; return the type of the error that the turn ended with, and what happened."""
    journal = Journal()
    async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=make(journal)) as runtime:
        await until_idle(runtime)
        [[status, extra]] = await rows(store_of(runtime), "SELECT status, extra FROM turns")
        return _error_type(status, extra), journal


def _error_type(status: str, extra: str) -> str:
    return json.loads(extra)["error"]["type"] if status == "failed" else ""


async def test_a_node_that_must_not_run_twice_stops_the_turn_if_it_had_begun(tmp_path: Path) -> None:
    def with_node(j: Journal) -> Any:
        @once
        def charge(node_input: Any) -> str:
            j.effects.append("charge")
            return "charged"

        return Workflow(name="r", edges=[(START, charge, agent(j, "e", "end"))])

    whole, copies = await run_and_copy(with_node, tmp_path)
    assert whole.status == "done"
    errors: list[str] = []
    for copy in copies:
        before = left_behind(copy)
        async with Store(f"sqlite:///{copy}") as store:
            begun = await rows(store, "SELECT 1 FROM tool_journal WHERE name = 'charge' AND status = 'started'")
        error, journal = await error_after_going_on(with_node, copy)
        assert error == ("NodeOutcomeUnknown" if begun else ""), copy.name
        assert len(journal.effects) == (0 if begun or before.finished["charge"] else 1), copy.name
        errors.append(error)
    assert "NodeOutcomeUnknown" in errors
