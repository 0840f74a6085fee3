"""Kills around grants: between question and answer, during the answer, and in a turn that a grant lets run."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from typing_extensions import override

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.runtime.runtime import Runtime
from lango.waits import NewGrant
from tests.agents.answers import submit_approval
from tests.agents.parts import approvals, collect, rows, settings_for
from tests.support.kill_points import Journal, PlannedModel, copy_after_each_commit, left_behind, until_idle
from tests.support.runtimes import store_of


class Sender(PlannedModel):
    """Sends to bob, then to eve, then answers, by the results that it is shown: a call that waited has two."""

    @override
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        shown = str([part.function_response for content in llm_request.contents for part in content.parts or []])
        number = sum(name in shown for name in ("'bob'", "'eve'"))
        self.journal.model_calls.append(f"{self.agent} {number}")
        to = types.FunctionCall(name="send", args={"to": ("bob", "eve", "")[number]})
        part = types.Part(text="both sent") if number == 2 else types.Part(function_call=to)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=False, turn_complete=True)


def sender(journal: Journal) -> Any:
    """Make an agent that sends twice, each time with approval."""

    @tool(level="dangerous")
    def send(to: str) -> dict[str, str]:
        """Send something."""
        journal.effects.append(f"send {to}")
        return {"sent": to}

    model = Sender(model="planned", agent="a", journal=journal)
    return LlmAgent(name="a", model=model, tools=[AdkTool(send)])


async def ask(runtime: Runtime) -> str:
    events = await collect((await runtime.submit("s", "go")).follow())
    [request] = approvals(events)
    return request.call_id


async def answer(runtime: Runtime) -> None:
    """Approve what waits, and grant the tool."""
    for item in await runtime.inbox.list():
        turn = await submit_approval(runtime, "s", item.wait.id, approved=True, grant=NewGrant())
        await collect(turn.follow())


async def test_an_answer_with_a_grant_to_another_process_lets_the_rest_of_the_turn_run(store_url: str) -> None:
    first, second = Journal(), Journal()
    async with open_runtime(settings_for(store_url), root_agent=sender(first)) as runtime:
        await ask(runtime)
    async with open_runtime(settings_for(store_url), root_agent=sender(second)) as runtime:
        await answer(runtime)
        assert second.effects == ["send bob", "send eve"]
        assert await runtime.inbox.list() == []


@pytest.mark.parametrize("revoked", [False, True], ids=["kept", "revoked"])
async def test_a_turn_under_a_grant_goes_on_after_a_kill_at_each_commit(tmp_path: Path, revoked: bool) -> None:
    """A grant that is revoked while nothing runs asks again, unless the tool had begun."""
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=sender(journal)) as runtime:
        await runtime.sessions.create("s")
        await ask(runtime)
        copies = await copy_after_each_commit(runtime, tmp_path, lambda: answer(runtime))
        assert journal.effects == ["send bob", "send eve"]
    assert len(copies) >= 8
    asked_again = 0
    for copy in copies:
        before, again = left_behind(copy), Journal()
        settings = settings_for(f"sqlite:///{copy}")
        if revoked:
            await _revoke(f"sqlite:///{copy}")
        async with open_runtime(settings, root_agent=sender(again)) as runtime:
            await until_idle(runtime)
            waiting = await runtime.inbox.list()
            asked_again += len(waiting)
            assert not waiting or revoked, copy.name
            await answer(runtime)
            done = again.effects_by_name["send"] + before.finished["send"]
            unknown = await rows(store_of(runtime), "SELECT 1 FROM messages WHERE content LIKE '%outcome is unknown%'")
            assert done == 2 or unknown, copy.name  # the model may send again what it knows nothing of
            assert len(set(again.effects)) == len(again.effects), f"{copy.name}: nothing runs twice"
            assert await rows(store_of(runtime), "SELECT DISTINCT status FROM turns") == [("done",)], copy.name
            by_grant = await rows(store_of(runtime), "SELECT grant_id FROM tool_journal WHERE grant_id IS NOT NULL")
            assert len(by_grant) <= 1 or unknown, copy.name
    assert bool(asked_again) == revoked


async def _revoke(url: str) -> None:
    """Revoke every grant while no process runs the session."""
    from lango.store import Store
    from lango.store.engine.database import Operation

    def operation() -> Operation[None]:
        yield "UPDATE approval_grants SET revoked_at = (SELECT now FROM database_clock), revoked_by = 'user'", ()

    async with Store(url) as store:
        await store.write(operation)


async def test_a_request_that_is_stored_is_not_overtaken_by_its_own_answer(tmp_path: Path) -> None:
    """The answer with a grant may come while the process that asked is dead: its turn is run again as it was."""
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=sender(journal)) as runtime:
        await runtime.sessions.create("s")

        async def run() -> None:
            await ask(runtime)

        copies = await copy_after_each_commit(runtime, tmp_path, run)
    waited = 0
    for copy in copies:
        again = Journal()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=sender(again)) as runtime:
            for item in await runtime.inbox.list():  # the turn that asked may not have ended
                waited += 1
                turn = await submit_approval(runtime, "s", item.wait.id, approved=True, grant=NewGrant())
                await collect(turn.follow())
            await until_idle(runtime)
            await answer(runtime)
            assert again.effects == ["send bob", "send eve"], copy.name
            assert await rows(store_of(runtime), "SELECT DISTINCT status FROM turns") == [("done",)], copy.name
    assert waited >= 2, "the request is in the inbox as soon as it is stored"
