"""The browser tests' own tools: the page monitor and the accessibility check."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import SharedTab
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import TIMEOUT_S, Site, serving_script


async def test_the_page_loads_and_answers_without_errors(page: Page, tmp_path: Path) -> None:
    async with serving_script(tmp_path, ["Good morning to you."]) as site:
        await page.goto(site.url)
        await expect(page).to_have_title("Lango")
        await page.get_by_role("textbox", name="Message").fill("good morning")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("article", name="Answer").get_by_text("Good morning to you.")).to_be_visible()
        assert site.provider.requests[0].messages[-1].content == "good morning"
        await page.close()  # before the server stops: the page would request the list once more


async def test_a_test_leaves_nothing_in_the_shared_tab(
    page: Page, shared_tab: SharedTab, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("ERR_")  # of requests while it is offline
    await page.goto(site.url)
    await page.evaluate("localStorage.left = sessionStorage.left = document.cookie = 'left=1'")
    await page.set_viewport_size({"width": 300, "height": 300})
    await page.route("**/*", lambda route: route.abort())
    await page.context.new_page()
    await page.context.set_offline(True)
    await shared_tab.reset()
    assert page.context.pages == [page]
    assert page.url == "about:blank"
    await page.goto(site.url)
    await expect(page).to_have_title("Lango")
    assert await page.evaluate("[localStorage.left, sessionStorage.left, document.cookie]") == [None, None, ""]
    assert page.viewport_size == {"width": 1280, "height": 720}


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("console.error('broken')", "console error: broken"),
        ("setTimeout(() => { throw new Error('unexpected') })", "uncaught: unexpected"),
        ("fetch('http://192.0.2.1:9/x').catch(() => 0)", "request to another host: GET http://192.0.2.1:9/x"),
    ],
)
async def test_an_error_of_the_page_fails_the_check(page: Page, monitor: PageMonitor, script: str, error: str) -> None:
    await page.set_content("<title>x</title>")
    await page.evaluate(f"() => {{ {script} }}")
    async with asyncio.timeout(TIMEOUT_S):
        while not monitor.errors:
            await asyncio.sleep(0.01)
    with pytest.raises(AssertionError, match=error):
        monitor.check()
    monitor.expect(".*")


async def test_axe_finds_an_image_without_alternative_text(page: Page) -> None:
    await page.set_content("<html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main>")
    with pytest.raises(AssertionError, match="image-alt"):
        await check_accessibility(page)
