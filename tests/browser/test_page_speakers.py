"""Agents that speak at once have a block each on the page, with their names."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import AgentSettings
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
