"""The page on a phone, and what it says after a reload: menus, notices, the banner, failed turns, titles."""

from playwright.async_api import Page, expect

from lango.errors import ProviderRejected
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, ask, choose_action, send, session_id
from tests.browser.page_monitor import PageMonitor
from tests.browser.site import Site

PHONE = {"width": 390, "height": 700}


async def is_inside(page: Page, selector: str) -> bool:
    box = await page.locator(selector).last.bounding_box()
    assert box
    return box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] and box["y"] + box["height"] <= PHONE["height"]


async def test_menus_fit_and_notices_cover_nothing(open_page: OpenPage, site: Site) -> None:
    page = await open_page(viewport=PHONE, has_touch=True)
    site.script.add("A short answer.")
    await page.goto(site.url)
    await ask(page, "hello", "A short answer.")
    await page.get_by_role("button", name="Actions for this conversation").click()
    assert await is_inside(page, ".menu")
    await page.get_by_role("menuitem", name="Share …").click()
    assert await is_inside(page, ".menu")
    await page.keyboard.press("Escape")
    await choose_action(page, "Fork")
    await expect(page.locator(".toast")).to_be_visible()
    await expect(answer(page)).to_contain_text("A short answer.")
    covered = await page.evaluate(
        """() => {
          const toast = document.querySelector(".toast").getBoundingClientRect();
          return [...document.querySelectorAll("article .text, article .user-text, #form")].some((element) => {
            const box = element.getBoundingClientRect();
            return box.top < toast.bottom && box.bottom > toast.top;
          });
        }"""
    )
    assert not covered


async def test_every_failed_turn_shows_its_error_after_a_reload(page: Page, site: Site) -> None:
    site.script.add(ProviderRejected("the first reason", provider="scripted", status=400), "An answer.")
    site.script.add(ProviderRejected("the last reason", provider="scripted", status=400))
    await page.goto(site.url)
    await send(page, "one")
    await expect(page.locator(".failed")).to_have_count(1)
    await ask(page, "two", "An answer.")
    await send(page, "three")
    for _ in ("as it happens", "after a reload"):
        await expect(page.locator(".failed")).to_have_count(2)
        await expect(page.locator(".failed").first).to_contain_text("The first reason")
        await expect(page.locator(".failed").last).to_contain_text("The last reason")
        articles = page.get_by_role("article")
        await expect(articles.nth(1)).to_contain_text("The first reason")
        await page.reload()


async def test_a_conversation_beyond_the_loaded_list_has_its_title(page: Page, site: Site) -> None:
    site.script.add("Old.")
    await site.runtime.run("old", "An old question")
    for number in range(60):
        await site.runtime.sessions.create(f"newer-{number}", title=f"Newer {number}")
    await page.goto(f"{site.url}/#/s/old")
    await expect(page.get_by_role("heading", level=1)).to_have_text("An old question")


async def test_the_banner_says_that_a_message_is_not_sent(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("ERR_INTERNET_DISCONNECTED")
    site.script.add("First.", "Second.")
    await page.goto(site.url)
    await ask(page, "one", "First.")
    assert session_id(page)
    await page.context.set_offline(True)
    await send(page, "two")
    await expect(page.locator("#connection")).to_contain_text("Your message is not sent yet")
    await page.context.set_offline(False)
    await expect(answer(page)).to_contain_text("Second.")
    await expect(page.locator("#connection")).to_be_hidden()
