"""Agents that speak at once have a block each on the page, with their names."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent, SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.workflow import START, JoinNode, Workflow
from playwright.async_api import Page, expect

from lango.adk import ProviderLlm
from lango.config import AgentSettings
from lango.providers import Request
from lango.providers.protocol import CallDelta, Delta, Finish, TextDelta, ThoughtDelta
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

AGENT = Path(__file__).parents[1] / "support" / "servers" / "parallel_agent.py"
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated in favor of Workflow:DeprecationWarning")
SPOKEN = ["anna", "I am Anna and agree.", "ben", "I am Ben and do not.", "critic", "Both have a point."]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), agent=AgentSettings(module=str(AGENT))) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    agent = AgentSettings(module=str(AGENT.with_name("desk_agent.py")))
    async with serving_script(tmp_path_factory.mktemp("desk"), agent=agent, is_scripted=False) as site:
        yield site


async def test_the_agent_after_a_transfer_is_named_live_and_after_a_reload(page: Page, desk: Site) -> None:
    await page.goto(desk.url)
    await send(page, "the weather")
    await wait_until_finished(page)
    parts = answer(page).locator(".speaker, .tool-name, .text")
    await expect(parts).to_have_text(["weather", "forecast", "It will be sunny in Bern."])
    await page.reload()
    await expect(parts).to_have_text(["weather", "forecast", "It will be sunny in Bern."])


async def test_the_correction_of_a_transfer_is_a_note_of_the_system(page: Page, desk: Site) -> None:
    await page.goto(desk.url)
    await send(page, "ask nobody")
    note = answer(page).locator(".system-note")
    await expect(note).to_contain_text('System: Agent "nobody" does not exist')
    await page.reload()
    await expect(note).to_contain_text('System: Agent "nobody" does not exist')
    await expect(answer(page)).to_contain_text("There is no such agent.")
    await expect(page.get_by_role("article", name="You")).to_have_count(1)


async def test_each_agent_has_its_own_block_live_and_after_a_reload(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "What do you think?")
    await wait_until_finished(page)
    blocks = answer(page).locator(".speaker, .text")
    await expect(blocks).to_have_text(SPOKEN)
    await check_accessibility(page)
    await page.reload()
    await expect(blocks).to_have_text(SPOKEN)


class Advisor:
    """A model that thinks and speaks until the test lets it end, looks something up, and sums up."""

    name = "advisor"

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.may_begin, self.may_end = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if request.messages[-1].role == "tool":
            yield TextDelta(f"{self._agent} is sure.")
            yield Finish("stop")
            return
        await self.may_begin.wait()
        yield ThoughtDelta(f"{self._agent} ponders")
        yield TextDelta(f"{self._agent} thinks that ")
        await self.may_end.wait()
        yield TextDelta("it is **right**.")
        yield CallDelta(0, f"call-{self._agent}", "look_up", "{}")
        yield Finish("tool_calls")


def look_up() -> str:
    """Look something up."""
    return "found"


class Panel:
    """Two advisors that speak at once."""

    def __init__(self) -> None:
        self.models = {name: Advisor(name) for name in ("anna", "ben")}
        self.agents = [
            LlmAgent(name=name, model=ProviderLlm(provider=model, model="words"), tools=[look_up])
            for name, model in self.models.items()
        ]

    def in_sequence(self) -> BaseAgent:
        both = ParallelAgent(name="both", sub_agents=list[BaseAgent](self.agents))  # pyright: ignore[reportDeprecated]
        return SequentialAgent(name="panel", sub_agents=[both])  # pyright: ignore[reportDeprecated]

    def in_workflow(self) -> Any:
        return Workflow(name="panel", edges=[(START, tuple(self.agents), JoinNode(name="join"))])


@pytest.mark.parametrize("shape", ["in_sequence", "in_workflow"])
async def test_agents_that_speak_at_once_are_shown_at_once_live_and_after_a_reload(
    page: Page, tmp_path: Path, shape: str
) -> None:
    panel = Panel()
    async with serving_script(tmp_path, root_agent=getattr(panel, shape)()) as site:
        await page.goto(site.url)
        await send(page, "What do you think?")
        blocks = answer(page).locator(".speaker, .thought, .text, .tool-name")
        begun = ["anna", "Thoughtsanna ponders", "anna thinks that", "ben", "Thoughtsben ponders", "ben thinks that"]
        panel.models["anna"].may_begin.set()
        await expect(blocks).to_have_text(begun[:3])
        panel.models["ben"].may_begin.set()
        await expect(blocks).to_have_text(begun)
        await page.reload()
        await expect(blocks).to_have_text(begun)
        panel.models["anna"].may_end.set()
        of_anna = ["anna", "Thoughtsanna ponders", "anna thinks that it is right.", "look_up", "anna is sure."]
        of_ben = ["ben", "Thoughtsben ponders", "ben thinks that it is right.", "look_up", "ben is sure."]
        # what follows a text stands with it, while the other agent still speaks
        await expect(blocks).to_have_text([*of_anna, *of_ben[:2], "ben thinks that"])
        panel.models["ben"].may_end.set()
        await wait_until_finished(page)
        output = [] if shape == "in_sequence" else ["panel", re.compile("anna is sure")]  # what the nodes are joined to
        await expect(blocks).to_have_text([*of_anna, *of_ben, *output])
        await check_accessibility(page)
        await page.reload()
        await expect(blocks).to_have_text([*of_anna, *of_ben, *output])
        await page.goto("about:blank")  # before its server stops


@pytest.mark.parametrize("shape", ["in_sequence", "in_workflow"])
async def test_the_agent_that_began_first_stands_first_although_it_ends_last_live_and_after_a_reload(
    page: Page, tmp_path: Path, shape: str
) -> None:
    panel = Panel()
    async with serving_script(tmp_path, root_agent=getattr(panel, shape)()) as site:
        await page.goto(site.url)
        await send(page, "What do you think?")
        blocks = answer(page).locator(".speaker, .thought, .text, .tool-name")
        panel.models["ben"].may_begin.set()
        await expect(answer(page)).to_contain_text("ben thinks")
        panel.models["anna"].may_begin.set()
        await expect(answer(page)).to_contain_text("anna thinks")
        panel.models["anna"].may_end.set()
        of_anna, of_ben = (
            [name, f"Thoughts{name} ponders", f"{name} thinks that it is right.", "look_up", f"{name} is sure."]
            for name in ("anna", "ben")
        )
        await expect(blocks).to_have_text([*of_ben[:2], "ben thinks that", *of_anna])
        panel.models["ben"].may_end.set()
        await wait_until_finished(page)
        output = [] if shape == "in_sequence" else ["panel", re.compile("anna is sure")]
        await expect(blocks).to_have_text([*of_ben, *of_anna, *output])
        await page.reload()
        await expect(blocks).to_have_text([*of_ben, *of_anna, *output])
        await page.goto("about:blank")  # before its server stops
