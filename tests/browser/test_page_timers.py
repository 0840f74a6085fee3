"""Timers and waits for events on the page: a card that says when they end, and buttons that end them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from google.adk.workflow import START, Workflow
from playwright.async_api import Page, expect

from lango.adk import event_data, sleep, wait_for_event
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script


def nap(node_input: Any) -> Any:
    return sleep(10_800, reason="the dough rises")


def order(node_input: Any) -> Any:
    return wait_for_event("order", {"of": "bread"})


def bake(node_input: Any) -> str:
    return f"baked for {event_data(node_input)['to']}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    bakery = Workflow(name="bakery", edges=[(START, nap, order, bake)])
    async with serving_script(tmp_path_factory.mktemp("site"), root_agent=bakery) as site:
        yield site


async def test_a_timer_is_woken_and_an_event_given_on_the_page(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "bread")
    await wait_until_finished(page)
    timer = page.locator('.wait-card[data-kind="timer"]')
    await expect(timer).to_contain_text("The dough rises: continues")
    await expect(timer).to_contain_text("(in 3 hours)")
    await check_accessibility(page)
    await page.reload()
    await timer.get_by_role("button", name="Wake now").click()
    event = page.locator('.wait-card[data-kind="event"]')
    await expect(event).to_contain_text("Waits for the event order")
    await event.get_by_label("Data of order").fill('{"to": "Ann"}')
    await event.get_by_role("button", name="Give the event").click()
    await expect(answer(page)).to_contain_text("baked for Ann")
    await wait_until_finished(page)


async def test_a_timer_is_cancelled_in_the_inbox_of_the_page(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "bread")
    await wait_until_finished(page)
    timer = page.locator('.wait-card[data-kind="timer"]')
    await timer.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("button", name="Wake now")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_role("button", name="Wake now")).to_have_count(0)
