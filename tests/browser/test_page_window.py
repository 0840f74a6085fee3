"""The page marks where the window of the next request begins, and names the limit that cuts it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import HistorySettings
from tests.browser.page_actions import ask
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

FIT = 8
"""How many messages a request holds."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("window"), history=HistorySettings(max_messages=FIT)) as site:
        yield site


async def test_h2_the_place_is_marked_where_the_window_begins(page: Page, site: Site) -> None:
    for number in range(4):
        site.script.add(f"answer {number}")
        await site.runtime.run("long", f"question {number}")
    await page.goto(f"{site.url}/#/s/long")
    await expect(page.get_by_text("answer 3")).to_be_visible()
    mark = page.get_by_role("note")
    site.script.add("answer 4")
    await ask(page, "question 4", "answer 4")
    await expect(mark).to_have_text(
        "The model no longer sees the messages above: a request holds at most 8 messages, which history.max_messages "
        "in lango.toml changes; with memory.enabled = true the model gets notes of older messages."
    )
    window = (await site.runtime.sessions.usage("long")).window
    assert window.first_seq
    first = f"{'question' if window.first_seq % 2 else 'answer'} {(window.first_seq - 1) // 2}"
    await expect(page.locator(".window-mark + .turn")).to_contain_text(first)
    await check_accessibility(page, "light", "dark")
    await page.reload()
    await expect(page.locator(".window-mark + .turn")).to_contain_text(first)


async def test_a_conversation_that_fits_has_no_mark(page: Page, site: Site) -> None:
    site.script.add("hello")
    await site.runtime.run("short", "hi")
    await page.goto(f"{site.url}/#/s/short")
    async with page.expect_response("**/usage?limit=1"):
        await page.reload()
    await expect(page.get_by_text("hello")).to_be_visible()
    await expect(page.get_by_role("note")).to_have_count(0)
