"""The session list: titles, deletion, paging."""

import asyncio

from playwright.async_api import Page, expect

from tests.browser.page_actions import answer, ask, choose_action, session_id
from tests.browser.site import TIMEOUT_S, Site

EVIL = "<img src=x onerror=window.hacked=1>"


async def test_a_conversation_is_titled_by_its_first_message_until_it_is_renamed(page: Page, site: Site) -> None:
    site.script.add("Bern.")
    await page.goto(site.url)
    await ask(page, "What is the capital of Switzerland?", "Bern.")
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("What is the capital of Switzerland?")
    await expect(page).to_have_title("What is the capital of Switzerland? · Lango")
    await choose_action(page, "Rename")
    await expect(page.get_by_label("Title")).to_be_focused()
    await page.get_by_label("Title").fill(f"Capitals {EVIL}")
    await page.keyboard.press("Enter")
    await expect(heading).to_have_text(f"Capitals {EVIL}")
    now = page.get_by_role("navigation").get_by_role("link", name="Capitals")
    await expect(now).to_have_attribute("aria-current", "page")
    await page.reload()
    await expect(heading).to_have_text(f"Capitals {EVIL}")
    assert await page.evaluate("window.hacked") is None


async def test_deleting_a_conversation_asks_for_confirmation(page: Page, site: Site) -> None:
    site.script.add("Soon gone.")
    await page.goto(site.url)
    await ask(page, "delete me", "Soon gone.")
    deleted = session_id(page)
    await choose_action(page, "Delete")
    dialog = page.get_by_role("dialog", name="Delete the conversation?")
    await expect(dialog).to_contain_text("“delete me”")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await expect(page.get_by_role("navigation").get_by_role("link", name="delete me")).to_have_count(0)
    assert deleted not in [session.name.id for session in await site.runtime.sessions.list()]


async def test_long_lists_and_conversations_load_on_scrolling(page: Page, site: Site) -> None:
    for number in range(90):
        await site.runtime.sessions.create(f"one-of-many-{number}", title=f"One of many {number}")
    site.script.add(*(f"Answer {number}." for number in range(40)))
    for number in range(40):
        await site.runtime.run("long", f"Question {number}")
    await page.goto(f"{site.url}/#/s/long")
    await expect(answer(page)).to_contain_text("Answer 39.")
    assert await page.get_by_role("article").count() < 80
    first = page.get_by_role("article").first
    async with asyncio.timeout(TIMEOUT_S):
        while "Question 0" not in await first.inner_text():
            await page.locator("#main").evaluate("(main) => { main.scrollTop = 0; }")
            await asyncio.sleep(0.05)
    await expect(page.get_by_role("article")).to_have_count(80)
    links = page.get_by_role("navigation").get_by_role("link")
    before = await links.count()
    await page.locator("#list").evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
    await expect(links.nth(before)).to_be_attached()


async def test_an_unchanged_list_is_not_replaced_on_refresh(page: Page, site: Site) -> None:
    """Replacing the list would lose a click in progress."""
    await site.runtime.sessions.create("stays", title="Stays")
    await page.goto(site.url)
    link = page.get_by_role("link", name="Stays")
    await link.evaluate("(element) => { element.stays = true; }")
    await page.evaluate("import('/page/session-list.js').then(({ refresh }) => refresh())")
    assert await link.evaluate("(element) => element.stays")


async def test_another_tab_shows_the_same_list(page: Page, site: Site) -> None:
    site.script.add("Hello, tab.")
    await page.goto(site.url)
    await ask(page, "from the first tab", "Hello, tab.")
    other = await page.context.new_page()
    await other.goto(site.url)
    await other.get_by_role("link", name="from the first tab").click()
    await expect(answer(other)).to_contain_text("Hello, tab.")
