"""State is set before the first message, edited in place and deleted; the page shows how long a model thinks."""

from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, ask, send, session_id, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import PAUSE, Site


async def test_state_is_set_before_the_first_message_edited_and_deleted(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="State").click()
    panel = page.get_by_role("tabpanel", name="State")
    for name, value in (("city", "Bern"), ("tags", '["a"]')):
        await panel.get_by_label("Name").fill(name)
        await panel.get_by_label("Value, as JSON or text").fill(value)
        await panel.get_by_role("button", name="Set", exact=True).click()
        await expect(panel.get_by_label(name, exact=True)).to_be_visible()
    site.script.add("hello")
    await ask(page, "hi", "hello")
    id_ = session_id(page)
    assert (await site.runtime.sessions.state(id_)).session == {"city": "Bern", "tags": ["a"]}
    await panel.get_by_role("button", name="Edit tags").click()
    box = panel.get_by_role("textbox", name="New value of tags, as JSON or text")
    await expect(box).to_have_value('[\n  "a"\n]')
    await check_accessibility(page, "light", "dark")
    await box.fill('["a", "b"]')
    await page.keyboard.press("Control+Enter")
    await expect(panel.get_by_label("tags", exact=True)).to_contain_text('"b"')
    await panel.get_by_role("button", name="Delete city").click()
    await expect(panel.get_by_label("city", exact=True)).to_have_count(0)
    await expect(panel.get_by_role("listitem").first).to_contain_text('city "Bern" → deleted')
    await page.get_by_role("button", name="Actions for this conversation").click()
    box = await page.get_by_role("menu").bounding_box()
    assert box
    assert box["width"] < 300, "as wide as its longest item"
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="New conversation").click()
    await page.get_by_role("button", name="Details of this conversation").click()
    await expect(panel.get_by_text("No values.")).to_have_count(1)  # before, there were those of the other scopes


async def test_the_page_says_how_long_the_model_has_been_thinking(open_page: OpenPage, site: Site) -> None:
    page = await open_page()
    await page.clock.install()
    await page.goto(site.url)
    site.script.add(f"one{PAUSE} two")
    await send(page, "hi")
    await expect(answer(page)).to_contain_text("one")
    await page.clock.run_for(75_000)
    await expect(answer(page).locator(".elapsed")).to_have_text("1 min 15 s")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("one two")
    await wait_until_finished(page)
    await expect(answer(page).locator(".elapsed")).to_be_hidden()
