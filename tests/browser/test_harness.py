"""The browser of the tests: it shows the page, and it tells on pages that do what they should not."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.page_watch import Watch, check_accessibility
from tests.browser.site import PATIENCE_S, serving_script


async def test_the_page_loads_and_talks_without_a_complaint(page: Page, tmp_path: Path) -> None:
    async with serving_script(tmp_path, ["Good morning to you."]) as site:
        await page.goto(site.url)
        await expect(page).to_have_title("Lango")
        await page.get_by_role("textbox", name="Message").fill("good morning")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("article", name="Answer").get_by_text("Good morning to you.")).to_be_visible()
        assert site.provider.requests[0].messages[-1].content == "good morning"
        await page.close()  # before its server: it would ask once more for the list


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("console.error('it hurts')", "console error: it hurts"),
        ("setTimeout(() => { throw new Error('unheard of') })", "uncaught: unheard of"),
        ("fetch('http://192.0.2.1:9/x').catch(() => 0)", "request to another host: GET http://192.0.2.1:9/x"),
    ],
)
async def test_a_page_that_complains_is_told_on(page: Page, watch: Watch, does: str, said: str) -> None:
    await page.set_content("<title>x</title>")
    await page.evaluate(f"() => {{ {does} }}")
    async with asyncio.timeout(PATIENCE_S):
        while not watch.complaints:
            await asyncio.sleep(0.01)
    with pytest.raises(AssertionError, match=said):
        watch.check()
    watch.expect(".*")


async def test_axe_finds_a_picture_without_words(page: Page) -> None:
    await page.set_content("<html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main>")
    with pytest.raises(AssertionError, match="image-alt"):
        await check_accessibility(page)
