"""Actions of a user on the page."""

import re

from playwright.async_api import Locator, Page, expect


async def send(page: Page, text: str) -> None:
    """Write a message and send it."""
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="You").last).to_contain_text(text)


def answer(page: Page) -> Locator:
    """Locate the newest answer."""
    return page.get_by_role("article", name="Answer").last


async def wait_until_finished(page: Page) -> None:
    """Wait until no turn is running."""
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(answer(page)).not_to_have_attribute("aria-busy", "true")


async def ask(page: Page, text: str, reply: str | re.Pattern[str]) -> None:
    """Send a message and wait for its whole answer."""
    await send(page, text)
    await expect(answer(page)).to_contain_text(reply)
    await wait_until_finished(page)


def session_id(page: Page) -> str:
    """Return the id of the session in the page's address."""
    match = re.search(r"#/s/([^/]+)", page.url)
    assert match, page.url
    return match[1]


async def choose_action(page: Page, name: str) -> None:
    """Choose an action in the conversation's menu."""
    await page.get_by_role("button", name="Actions for this conversation").click()
    await page.get_by_role("menuitem", name=name).click()
