"""Edit, retry, rewind and fork on the page."""

from playwright.async_api import Page, expect

from lango.errors import ProviderRejected
from tests.browser.page_actions import answer, ask, send, session_id, wait_until_finished
from tests.browser.site import Site

_COLLECT_TITLES = """() => {
    globalThis.titles = [];
    const title = document.getElementById("title");
    new MutationObserver(() => titles.push(title.textContent)).observe(title, { childList: true });
}"""


def user_messages(site: Site) -> list[str]:
    """Return the user's messages of the last request to the model."""
    return [message.content for message in site.provider.requests[-1].messages if message.role == "user"]


async def start_conversation(page: Page, site: Site) -> str:
    site.script.add("First answer.", "Second answer.")
    await page.goto(site.url)
    await ask(page, "first", "First answer.")
    await ask(page, "second", "Second answer.")
    return session_id(page)


async def test_an_edited_message_continues_in_a_fork_and_the_original_stays(page: Page, site: Site) -> None:
    old = await start_conversation(page, site)
    site.script.add("Another second answer.")
    await page.get_by_role("article", name="You").last.hover()
    await page.get_by_role("button", name="Edit and send again").last.click()
    box = page.get_by_role("textbox", name="Change your message")
    await expect(box).to_have_value("second")
    await box.fill("second, but other")
    await box.press("Enter")
    await expect(answer(page)).to_contain_text("Another second answer.")
    await wait_until_finished(page)
    assert user_messages(site) == ["first", "second, but other"]
    assert session_id(page) != old
    await expect(page.get_by_role("article")).to_have_count(4)
    await expect(page.get_by_role("article").nth(1)).to_contain_text("First answer.")
    await page.goto(f"{site.url}/#/s/{old}")
    await expect(answer(page)).to_contain_text("Second answer.")


async def test_the_first_message_can_be_edited_too(page: Page, site: Site) -> None:
    await start_conversation(page, site)
    site.script.add("A new beginning.")
    await page.get_by_role("button", name="Edit and send again").first.click()
    await page.get_by_role("textbox", name="Change your message").fill("new first")
    await page.locator(".editing").get_by_role("button", name="Send").click()
    await expect(answer(page)).to_contain_text("A new beginning.")
    assert user_messages(site) == ["new first"]
    await wait_until_finished(page)
    await expect(page.get_by_role("article")).to_have_count(2)


async def test_a_failed_turn_shows_its_error_and_can_be_retried(page: Page, site: Site) -> None:
    site.script.add(ProviderRejected("the model is too busy", provider="scripted", status=400), "Now it works.")
    await page.goto(site.url)
    await send(page, "try this")
    await expect(answer(page)).to_contain_text("The model is too busy")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("Now it works.")
    await wait_until_finished(page)
    await expect(page.get_by_role("article")).to_have_count(2)
    await page.reload()
    await expect(answer(page)).to_contain_text("Now it works.")
    await expect(page.get_by_role("article")).to_have_count(2)
    assert user_messages(site) == ["try this"]


async def test_a_retry_replaces_the_last_answer(page: Page, site: Site) -> None:
    old = await start_conversation(page, site)
    site.script.add("A better second answer.")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("A better second answer.")
    await wait_until_finished(page)
    assert session_id(page) == old
    assert user_messages(site) == ["first", "second"]
    await expect(page.get_by_role("article")).to_have_count(4)


async def test_a_rewind_asks_for_confirmation_and_restores_the_message_as_draft(page: Page, site: Site) -> None:
    await start_conversation(page, site)
    await page.get_by_role("button", name="Rewind to here").last.click()
    dialog = page.get_by_role("dialog", name="Rewind to here?")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("article")).to_have_count(4)
    await page.get_by_role("button", name="Rewind to here").last.click()
    await dialog.get_by_role("button", name="Rewind").click()
    await expect(page.get_by_role("article")).to_have_count(2)
    box = page.get_by_role("textbox", name="Message", exact=True)
    await expect(box).to_have_value("second")
    await page.reload()
    await expect(answer(page)).to_contain_text("First answer.")
    await expect(page.get_by_role("article")).to_have_count(2)
    await expect(page.get_by_text("Second answer.")).to_have_count(0)
    site.script.add("After the rewind.")
    await ask(page, "third", "After the rewind.")
    assert user_messages(site) == ["first", "third"]


async def test_a_fork_at_an_answer_keeps_earlier_messages(page: Page, site: Site) -> None:
    old = await start_conversation(page, site)
    await expect(page.locator("#title")).to_have_text("first")
    rows = await page.locator("#list a").count()
    await page.evaluate(_COLLECT_TITLES)
    await page.get_by_role("article", name="Answer").first.hover()
    await page.get_by_role("button", name="Fork from here").first.click()
    await expect(page.get_by_role("article")).to_have_count(2)
    assert session_id(page) != old
    await expect(answer(page)).to_contain_text("First answer.")
    await expect(page.locator("#list a")).to_have_count(rows + 1)
    titles = await page.evaluate("titles")
    assert set(titles) <= {"first", "first (fork)"}, "it has its title at once"
    assert titles[-1] == "first (fork)"
    site.script.add("The fork goes on.")
    await ask(page, "third", "The fork goes on.")
    assert user_messages(site) == ["first", "third"]
