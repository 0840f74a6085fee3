"""Taking another way on the page: edit and send again, try again, rewind, fork."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.errors import ProviderRejected
from tests.browser.page_actions import answer, ask, finished, say, session_of
from tests.browser.site import Site, serving_script


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site")) as site:
        yield site


def asked(site: Site) -> list[str]:
    """What the user said, as the model was sent it the last time."""
    return [one.content for one in site.provider.requests[-1].messages if one.role == "user"]


async def talked(page: Page, site: Site) -> str:
    site.script.add("First answer.", "Second answer.")
    await page.goto(site.url)
    await ask(page, "first", "First answer.")
    await ask(page, "second", "Second answer.")
    return session_of(page)


async def test_a_changed_message_goes_on_in_a_fork_and_the_old_conversation_stays(page: Page, site: Site) -> None:
    old = await talked(page, site)
    site.script.add("Another second answer.")
    await page.get_by_role("article", name="You").last.hover()
    await page.get_by_role("button", name="Edit and send again").last.click()
    box = page.get_by_role("textbox", name="Change your message")
    await expect(box).to_have_value("second")
    await box.fill("second, but other")
    await box.press("Enter")
    await expect(answer(page)).to_contain_text("Another second answer.")
    await finished(page)
    assert asked(site) == ["first", "second, but other"]
    assert session_of(page) != old
    await expect(page.get_by_role("article")).to_have_count(4)
    await expect(page.get_by_role("article").nth(1)).to_contain_text("First answer.")
    await page.goto(f"{site.url}/#/s/{old}")
    await expect(answer(page)).to_contain_text("Second answer.")


async def test_the_first_message_can_be_changed_too(page: Page, site: Site) -> None:
    await talked(page, site)
    site.script.add("A new beginning.")
    await page.get_by_role("button", name="Edit and send again").first.click()
    await page.get_by_role("textbox", name="Change your message").fill("new first")
    await page.locator(".editing").get_by_role("button", name="Send").click()
    await expect(answer(page)).to_contain_text("A new beginning.")
    assert asked(site) == ["new first"]
    await finished(page)
    await expect(page.get_by_role("article")).to_have_count(2)


async def test_a_turn_that_failed_says_why_and_can_be_tried_again(page: Page, site: Site) -> None:
    site.script.add(ProviderRejected("the model is too busy", provider="scripted", status=400), "Now it works.")
    await page.goto(site.url)
    await say(page, "try this")
    await expect(answer(page)).to_contain_text("The model is too busy")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("Now it works.")
    await finished(page)
    await expect(page.get_by_role("article")).to_have_count(2)
    await page.reload()
    await expect(answer(page)).to_contain_text("Now it works.")
    await expect(page.get_by_role("article")).to_have_count(2)
    assert asked(site) == ["try this"]


async def test_another_answer_takes_the_place_of_the_last_one(page: Page, site: Site) -> None:
    old = await talked(page, site)
    site.script.add("A better second answer.")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("A better second answer.")
    await finished(page)
    assert session_of(page) == old
    assert asked(site) == ["first", "second"]
    await expect(page.get_by_role("article")).to_have_count(4)


async def test_a_rewind_is_confirmed_and_gives_the_message_back(page: Page, site: Site) -> None:
    await talked(page, site)
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
    assert asked(site) == ["first", "third"]


async def test_a_fork_at_an_answer_keeps_what_came_before(page: Page, site: Site) -> None:
    old = await talked(page, site)
    await page.get_by_role("article", name="Answer").first.hover()
    await page.get_by_role("button", name="Fork from here").first.click()
    await expect(page.get_by_role("article")).to_have_count(2)
    assert session_of(page) != old
    await expect(answer(page)).to_contain_text("First answer.")
    site.script.add("The fork goes on.")
    await ask(page, "third", "The fork goes on.")
    assert asked(site) == ["first", "third"]
