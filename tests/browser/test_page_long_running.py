"""Long-running tools on the page: what waits for a result, and a form that gives it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import AgentSettings
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

AGENT = Path(__file__).parents[1] / "support" / "servers" / "command_agent.py"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), agent=AgentSettings(module=str(AGENT))) as site:
        yield site


async def test_an_update_and_the_result_are_given_on_the_page(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "call order")
    await wait_until_finished(page)
    card = page.locator(".tool-card").first
    await expect(card).to_have_attribute("data-status", "awaiting_result")
    await expect(card).to_contain_text("waits for its result")
    await page.reload()
    await expect(card).to_have_attribute("data-status", "awaiting_result")
    await card.get_by_text("Give the result").click()
    await check_accessibility(page)
    await card.get_by_role("button", name="Update").click()
    await expect(card.get_by_role("alert")).to_have_text("A value is missing.")
    await card.get_by_label("Result of order").fill('{"at": "sea"}')
    await card.get_by_role("button", name="Update").click()
    await expect(answer(page)).to_contain_text("the tool said {'at': 'sea'}")
    await wait_until_finished(page)
    await expect(card).to_have_attribute("data-status", "awaiting_result")
    await card.get_by_text("Give the result").click()
    await card.get_by_label("Result of order").fill("at home")
    await card.get_by_role("button", name="Final result").click()
    await expect(answer(page)).to_contain_text("the tool said {'result': 'at home'}")
    await wait_until_finished(page)
    await expect(card).to_have_attribute("data-status", "done")
    await expect(card.get_by_text("Give the result")).to_have_count(0)


async def test_a_result_that_comes_from_elsewhere_closes_the_form(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "call ticket")
    await wait_until_finished(page)
    card = page.locator(".tool-card").first
    await expect(card).to_have_attribute("data-status", "awaiting_result")
    other = await page.context.new_page()
    await other.goto(page.url)
    there = other.locator(".tool-card").first
    await there.get_by_text("Give the result").click()
    await there.get_by_label("Result of ticket").fill("ready")
    await there.get_by_role("button", name="Final result").click()
    for tab in (other, page):
        await expect(answer(tab)).to_contain_text("the tool said {'result': 'ready'}")
        await wait_until_finished(tab)
        await expect(tab.get_by_text("Give the result")).to_have_count(0)
        await expect(tab.locator(".tool-card").first).to_have_attribute("data-status", "done")


async def test_what_was_typed_is_there_until_a_result_is_given(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "call order")
    await wait_until_finished(page)
    card = page.locator(".tool-card").first
    await card.get_by_text("Give the result").click()
    await card.get_by_label("Result of order").fill("on its way")
    await page.get_by_role("button", name="New conversation").first.click()
    await expect(card).to_have_count(0)
    await page.go_back()
    await expect(card.get_by_label("Result of order")).to_have_value("on its way")
    await card.get_by_role("button", name="Update").click()
    await expect(answer(page)).to_contain_text("the tool said {'result': 'on its way'}")
    await wait_until_finished(page)
    await card.get_by_text("Give the result").click()
    await expect(card.get_by_label("Result of order")).to_have_value("")
    await card.get_by_label("Result of order").fill("here")
    await card.get_by_role("button", name="Final result").click()
    await expect(card).to_have_attribute("data-status", "done")
