"""A turn is not continued wrongly: it ends with a typed error where the second run cannot follow the first one."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.workflow import START, Workflow

from lango import Settings, open_runtime
from lango.adk import ProviderLlm, once
from lango.store import Store
from lango.testing import ScriptedProvider
from tests.agents.parts import messages, rows, settings_for
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


def speaker(name: str, text: str, *sub_agents: Any) -> Any:
    return LlmAgent(name=name, model=ProviderLlm(ScriptedProvider([text] * 3), "x"), sub_agents=[*sub_agents])


def one_with_a_helper(name: str) -> Any:
    return speaker(name, "all done", speaker("helper", "never"))


def two_in_a_row(name: str) -> Any:
    agents: list[Any] = [speaker(f"{name}_first", "begun"), speaker(f"{name}_last", "all done")]
    return SequentialAgent(name=name, sub_agents=agents)  # pyright: ignore[reportDeprecated]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has sequences
@pytest.mark.parametrize("make", [one_with_a_helper, two_in_a_row])
async def test_a_stored_answer_is_not_given_again_by_another_version(tmp_path: Path, make: Any) -> None:
    def settings_of(file: Path) -> Settings:
        return Settings.model_validate({"store": {"url": f"sqlite:///{file}"}, "agent": {"name": "app"}})

    first = settings_of(tmp_path / "first.db")
    whole, copies = await run_and_copy(lambda _: make("shop"), tmp_path, settings=first)
    assert whole.status == "done"
    answered = 0
    for copy in copies:
        settings = settings_of(copy)
        async with open_runtime(settings, root_agent=make("store")) as runtime:
            answered += bool(await rows(store_of(runtime), "SELECT 1 FROM turns WHERE answer_stored = 1"))
            await until_idle(runtime)
            assert await rows(store_of(runtime), "SELECT status FROM turns") == [("done",)], copy.name
            assert [one.content for one in await messages(runtime)].count("all done") == 1, copy.name
    assert answered
