"""A message that is sent into the running answer, or instead of it, from the page."""

from playwright.async_api import Page, expect

from lango.messages import ToolCall
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.site import PAUSE, Site


async def send_when(page: Page, when: str, text: str) -> None:
    """Send a message while an answer runs, and wait until the server has stored it."""
    await page.get_by_role("combobox", name="When to send it").select_option(label=when)
    await page.get_by_role("textbox", name="Message").fill(text)
    async with page.expect_response(lambda response: response.request.method == "POST"):
        await page.keyboard.press("Enter")


async def test_a_message_into_the_running_answer_is_shown_where_the_model_read_it(page: Page, site: Site) -> None:
    site.script.add([f"I look{PAUSE}.", ToolCall("c1", "look", {"path": "a"})], "Both done.")
    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("I look")
    await send_when(page, "Into this answer", "also this")
    await expect(page.get_by_role("region", name="Queued messages").get_by_role("listitem")).to_have_count(1)
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("Both done.")
    await wait_until_finished(page)
    for _ in range(2):
        await expect(page.locator("#log .bubble")).to_have_text(["first", "also this"])
        articles = page.locator("#log > article")
        await expect(articles).to_have_count(4)
        for number, text in enumerate(("first", "I look", "also this", "Both done.")):
            await expect(articles.nth(number)).to_contain_text(text)
        await page.reload()


async def test_a_message_instead_of_the_running_answer_replaces_it(page: Page, site: Site) -> None:
    site.script.add(f"It begins{PAUSE}, it ends.", "Instead.")
    await page.goto(site.url)
    await send(page, "wrong")
    await expect(answer(page)).to_contain_text("It begins")
    await send_when(page, "Instead of this answer", "right")
    await expect(page.locator("#log .bubble")).to_have_text(["right"])
    await expect(answer(page)).to_contain_text("Instead.")
    await wait_until_finished(page)
    await expect(page.locator("#log")).not_to_contain_text("It begins")
