"""An instruction that a request adds for its turn: after the agent's own, stored with the turn, never in another."""

import itertools
from pathlib import Path

from lango import Tool, open_runtime
from lango.messages import ToolCall
from lango.providers import Request
from lango.testing import Answer, ScriptedProvider
from lango.turns.turn_input import ModelOptions
from tests.agents.parts import collect, settings_for
from tests.support.kill_points import copy_after_each_commit, until_idle


def note(text: str) -> str:
    return text


NOTE = Tool("note", "Note a text.", {"type": "object", "properties": {"text": {"type": "string"}}}, note)


def answer(request: Request) -> Answer:
    return "done" if request.messages[-1].role == "tool" else ToolCall("c1", "note", {"text": "x"})


def model() -> ScriptedProvider:
    return ScriptedProvider(itertools.repeat(answer))


async def test_an_added_instruction_holds_for_its_turn_in_any_process(tmp_path: Path) -> None:
    provider = model()
    settings = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(settings, tools=[NOTE], provider=provider) as first:

        async def run() -> None:
            options = ModelOptions(instruction="Be brief.", client_request={"a": 1})
            await collect((await first.submit("s", "go", options=options)).follow())

        copies = await copy_after_each_commit(first, tmp_path, run)
        await collect((await first.submit("s", "and on")).follow())
    *of_turn, before_last, last = [request.system for request in provider.requests]
    assert len(of_turn) == 2
    assert all(system.endswith("Be brief.") for system in of_turn)
    assert before_last == last
    assert of_turn[0].removesuffix("Be brief.").rstrip() == last, "after the agent's own"
    left = set[int]()
    for copy in copies:
        provider = model()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), tools=[NOTE], provider=provider) as later:
            await until_idle(later)
        assert all(request.system.endswith("Be brief.") for request in provider.requests), copy.name
        left.add(len(provider.requests))
    assert {0, 1, 2} <= left, "killed before the first model call, between the two, and after both"
