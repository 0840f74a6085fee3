"""A turn is not continued wrongly: it ends with a typed error where the second run cannot follow the first one."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.adk import once
from lango.store import Store
from tests.agents.parts import rows, settings_for
from tests.support.agent_shapes import Narrator, agent, call, fetch, pay
from tests.support.kill_points import Journal, MakeAgent, left_behind, run_and_copy, until_idle


async def error_after_going_on(make: MakeAgent, copy: Path) -> tuple[str, Journal]:
    """Go on from a copy of the store; return the type of the error that the turn ended with, and what happened."""
    journal = Journal()
    async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=make(journal)) as runtime:
        await until_idle(runtime)
        [[status, extra]] = await rows(runtime.store, "SELECT status, extra FROM turns")
        return _error_type(status, extra), journal


def _error_type(status: str, extra: str) -> str:
    return json.loads(extra)["error"]["type"] if status == "failed" else ""


def two_agents(j: Journal) -> Any:
    first = agent(j, "a", call("fetch", x="1"), "A done", tools=[fetch(j)])
    second = agent(j, "b", call("pay", x="2"), "B done", tools=[pay(j)])
    return SequentialAgent(name="r", sub_agents=[first, second])  # pyright: ignore[reportDeprecated]


def without_the_first(j: Journal) -> Any:
    second = agent(j, "b", call("pay", x="2"), "B done", tools=[pay(j)])
    return SequentialAgent(name="r", sub_agents=[second])  # pyright: ignore[reportDeprecated]


def with_text_before_the_model(j: Journal) -> Any:
    return Narrator(name="r", sub_agents=[agent(j, "a", "A done")])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has this agent
async def test_a_turn_of_an_agent_that_is_gone_from_the_code_ends_as_diverged(tmp_path: Path) -> None:
    whole, copies = await run_and_copy(two_agents, tmp_path)
    judged = 0
    for copy in copies:
        before = left_behind(copy)
        if not before.responses["a"]:
            continue
        stored = before.event_ids
        error, journal = await error_after_going_on(without_the_first, copy)
        if before.responses["b"] < 2:
            assert error == "TurnDiverged", copy.name
            judged += 1
        assert journal.calls_by_agent["a"] == 0, copy.name
        async with Store(f"sqlite:///{copy}") as store:
            ids = [event_id for [event_id] in await rows(store, "SELECT event_id FROM messages ORDER BY seq")]
        assert ids[: len(stored)] == stored, "what was stored stays"
    assert judged > 3, whole


async def test_a_model_call_where_the_code_once_spoke_itself_ends_as_diverged(tmp_path: Path) -> None:
    def model_speaks(j: Journal) -> Any:
        return agent(j, "r", "I am the model")

    _, copies = await run_and_copy(with_text_before_the_model, tmp_path)
    [spoken, *_] = [copy for copy in copies if len((left_behind(copy)).event_ids) == 2]
    error, journal = await error_after_going_on(model_speaks, spoken)
    assert error == "TurnDiverged"
    assert journal.model_calls == [], "the model is not called in its place"


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
