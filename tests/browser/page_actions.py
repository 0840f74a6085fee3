"""What a person does on the page, for tests."""

import re

from playwright.async_api import Locator, Page, expect


async def say(page: Page, words: str) -> None:
    """Write a message and send it."""
    await page.get_by_role("textbox", name="Message").fill(words)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="You").last).to_contain_text(words)


def answer(page: Page) -> Locator:
    """The newest answer."""
    return page.get_by_role("article", name="Answer").last


async def finished(page: Page) -> None:
    """Wait until nothing runs."""
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await expect(answer(page)).not_to_have_attribute("aria-busy", "true")


async def ask(page: Page, words: str, reply: str | re.Pattern[str]) -> None:
    """Send a message and wait for its whole answer."""
    await say(page, words)
    await expect(answer(page)).to_contain_text(reply)
    await finished(page)


def session_of(page: Page) -> str:
    """The session that the page's address names."""
    found = re.search(r"#/s/([^/]+)", page.url)
    assert found, page.url
    return found[1]


async def choose(page: Page, act: str) -> None:
    """Do something with the conversation, from its menu."""
    await page.get_by_role("button", name="Actions for this conversation").click()
    await page.get_by_role("menuitem", name=act).click()
