"""Schedules on the page: added with a form, changed, run now, paused, and deleted."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import Site, serving_script


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site")) as site:
        yield site


def schedules(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Schedules")


async def test_a_schedule_is_added_changed_run_paused_and_deleted(page: Page, monitor: PageMonitor, site: Site) -> None:
    monitor.expect("422")  # a message with an unknown field
    await page.goto(site.url)
    await page.get_by_role("button", name="Schedules").click()
    dialog = schedules(page)
    await expect(dialog).to_contain_text("No schedules yet.")
    await dialog.get_by_role("button", name="Add a schedule").click()
    await check_accessibility(page)
    await dialog.get_by_label("Name").fill("news")
    await dialog.get_by_label("Message").fill("The news of {planet}")
    await dialog.get_by_label("Times", exact=True).fill("30 7 * * 1-5")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("there is no field {planet}")
    await dialog.get_by_label("Message").fill("The news of {date}")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("listitem")).to_contain_text("30 7 * * 1-5 · Europe/Berlin · next")
    await dialog.get_by_role("button", name="Change news").click()
    await dialog.get_by_label("Runs at").select_option("every_s")
    await dialog.get_by_label("Times", exact=True).fill("86400")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("listitem")).to_contain_text("every 86,400 s")
    site.script.add("All is well.")
    await dialog.get_by_role("button", name="Run news now").click()
    await expect(dialog.get_by_role("table")).to_contain_text("done")
    await check_accessibility(page)
    await dialog.get_by_role("button", name="Pause news").click()
    await expect(dialog.get_by_role("listitem")).to_contain_text("paused")
    await dialog.get_by_role("link", name="conversation").click()
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text("All is well.")
    await page.get_by_role("button", name="Schedules").click()
    await dialog.get_by_role("button", name="Delete news").click()
    await page.get_by_role("dialog", name="Delete the schedule?").get_by_role("button", name="Delete").click()
    await expect(dialog).to_contain_text("No schedules yet.")
