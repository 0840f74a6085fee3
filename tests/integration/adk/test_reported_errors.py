"""Agents and models that report an error by an event with a message and without a code."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.workflow import START, Workflow
from typing_extensions import override

from lango import open_runtime
from lango.events import TextDelta
from tests.agents.parts import collect, last_error, settings_for, statuses, stored
from tests.support.servers.failing_agent import REPORTED, FailingAgent

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # of ADK


class FailingModel(BaseLlm):
    @override
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(error_message=REPORTED)


ROOTS: dict[str, Any] = {
    "agent": lambda: FailingAgent(name="failing"),
    "sequence": lambda: SequentialAgent(  # pyright: ignore[reportDeprecated]
        name="sequence", sub_agents=[FailingAgent(name="failing")]
    ),
    "workflow": lambda: Workflow(name="flow", edges=[(START, FailingAgent(name="failing"))]),
    "model": lambda: LlmAgent(name="clerk", model=FailingModel(model="own")),
}


@pytest.mark.parametrize("root", ROOTS)
async def test_a_reported_error_fails_the_turn(sqlite_url: str, root: str) -> None:
    async with open_runtime(settings_for(sqlite_url), root_agent=ROOTS[root]()) as runtime:
        error = last_error(await collect(runtime.stream("s", "go")))
        assert error.error == "AgentFailed"
        assert REPORTED in error.message
        assert await statuses(runtime) == ["failed"]
        [reported] = [event for event in await stored(runtime) if (event.extra or {}).get("error_message")]
        assert reported.extra
        assert reported.extra["error_message"] == REPORTED


async def test_an_agent_that_answers_after_the_error_has_recovered(sqlite_url: str) -> None:
    root = FailingAgent(name="failing", recovers=True)
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        events = await collect(runtime.stream("s", "go"))
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "recovered"
        assert await statuses(runtime) == ["done"]
