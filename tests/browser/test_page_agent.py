"""The picture of the agent: what runs, the cards of agents, and calls of tools by hand."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import AgentSettings
from tests.browser.page_actions import wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import Site, serving_script

AGENT = Path(__file__).parents[1] / "support" / "servers" / "desk_agent.py"
WORKFLOW = AGENT.with_name("workflow_agent.py")
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated in favor of Workflow:DeprecationWarning")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    agent = AgentSettings(module=str(AGENT), suggestions=["please review"])
    async with serving_script(tmp_path_factory.mktemp("site"), agent=agent, is_scripted=False) as site:
        yield site


async def expect_status(page: Page, name: str, status: str) -> None:
    await expect(page.locator(f'.agent-picture g[data-name="{name}"]')).to_have_attribute("data-status", status)


async def test_the_picture_shows_live_what_runs_and_leads_to_the_trace(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await expect(page.get_by_text("Finds the right colleague for you.")).to_be_visible()
    await page.get_by_role("button", name="How this agent is built").click()
    picture = page.get_by_role("group", name="Picture of desk")
    for name, status in (("desk, agent", ""), ("review, in sequence", ""), ("both, in parallel", "")):
        await expect(picture.get_by_role("button", name=name + status)).to_be_visible()
    await page.get_by_role("button", name="please review").click()
    await page.keyboard.press("Enter")
    await expect_status(page, "ben", "running")
    await expect_status(page, "anna", "done")
    await expect_status(page, "both", "running")
    await expect_status(page, "critic", "")
    sys.modules["desk_agent"].held["ben"].set()
    await wait_until_finished(page)
    for name in ("desk", "anna", "ben", "critic", "review"):
        await expect_status(page, name, "done")
    await check_accessibility(page)
    await picture.get_by_role("button", name="Show critic in the trace").press("Enter")
    step = page.get_by_role("list", name="Steps of turn 1").locator("li.found > button")
    await expect(step).to_be_focused()
    await expect(step).to_contain_text("critic")


async def test_a_tool_is_called_by_hand_with_a_form(page: Page, site: Site, monitor: PageMonitor) -> None:
    await page.goto(site.url)
    await page.get_by_role("button", name="How this agent is built").click()
    await page.get_by_role("button", name="weather, agent").click()
    card = page.get_by_role("region", name="Agent weather")
    await expect(card).to_contain_text("Knows the weather.")
    await card.get_by_text("forecast", exact=True).click()
    form = card.get_by_role("form", name="Call forecast by hand")
    await form.get_by_label("City").fill("Bern")
    await form.get_by_label("Days").fill("1.5")
    await form.get_by_role("button", name="Call it").click()
    await expect(form.get_by_role("alert")).to_contain_text("Days")
    await form.get_by_label("Days").fill("2")
    await form.get_by_role("button", name="Call it").click()
    await expect(form.get_by_label("Result", exact=True)).to_contain_text('"weather": "sunny"')
    await form.get_by_label("City").fill("Atlantis")
    await form.get_by_role("button", name="Call it").click()
    await expect(form.get_by_label("Traceback", exact=True)).to_contain_text("is under water")
    await check_accessibility(page)
    await card.get_by_text("book", exact=True).click()
    booking = card.get_by_role("form", name="Call book by hand")
    await booking.get_by_label("City").fill("Bern")
    await booking.get_by_role("button", name="Approve and call").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert sys.modules["desk_agent"].booked == []
    await booking.get_by_role("button", name="Approve and call").click()
    await page.get_by_role("dialog").get_by_role("button", name="Approve and call").click()
    await expect(booking.get_by_label("Result", exact=True)).to_contain_text("booked Bern")
    assert sys.modules["desk_agent"].booked == ["Bern"]
