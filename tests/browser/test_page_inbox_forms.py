"""The forms of the inbox on the page: a person's input and the result of a long-running tool are given there."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from lango.config import AgentSettings
from tests.browser.page_actions import answer, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

AGENTS = Path(__file__).parents[1] / "support" / "servers"
QUESTION = "How large, and which color?"


@asynccontextmanager
async def waiting_site(page: Page, folder: Path, agent: str, message: str) -> AsyncGenerator[Site]:
    """Serve an agent that a message makes wait, show its conversation, and open the inbox once its badge shows it."""
    async with serving_script(folder, agent=AgentSettings(module=str(AGENTS / agent))) as site:
        await page.goto(site.url)
        await expect(page.get_by_role("button", name="Inbox", exact=True)).to_be_visible()
        await site.runtime.run("s", message)
        await expect(badge(page)).to_have_text("1")
        await page.goto(f"{site.url}/#/s/s")
        await expect(page.get_by_role("article", name="Answer")).to_be_visible()
        await page.get_by_role("button", name="Inbox: 1 waiting").click()
        yield site
        await page.goto("about:blank")  # before the server stops: the page would reconnect


def badge(page: Page) -> Locator:
    return page.locator("#inbox-count")


def inbox(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Inbox")


async def close_and_reopen(page: Page) -> None:
    await inbox(page).get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Inbox: 1 waiting").click()


async def nothing_waits(page: Page) -> None:
    """Check that the inbox is empty, and close it."""
    await expect(inbox(page)).to_contain_text("Nothing is waiting for you.")
    await expect(badge(page)).to_be_hidden()
    await inbox(page).get_by_role("button", name="Close").click()


async def test_an_input_is_given_in_the_inbox(page: Page, tmp_path: Path) -> None:
    async with waiting_site(page, tmp_path, "workflow_agent.py", "go"):
        await check_accessibility(page)
        form = inbox(page).get_by_role("group", name=QUESTION)
        await form.get_by_role("button", name="Answer").click()
        await expect(form.locator(".wait-problem")).to_have_text("size: a value is missing")
        await form.get_by_label("size").fill("5")
        await form.get_by_label("color").select_option("red")
        await close_and_reopen(page)
        await expect(form.get_by_label("size")).to_have_value("5")
        await form.get_by_role("button", name="Answer").click()
        await nothing_waits(page)
        await expect(answer(page)).to_contain_text('{"ordered":{"size":5,"color":"red"}}')
        await wait_until_finished(page)
        await expect(page.get_by_role("group", name=QUESTION)).to_have_count(0)
        await expect(page.locator(".wait-answer")).to_have_text('{"size":5,"color":"red"}')


async def test_a_value_that_does_not_fit_is_refused_in_the_inbox(page: Page, tmp_path: Path) -> None:
    async with waiting_site(page, tmp_path, "workflow_agent.py", "go"):
        form = inbox(page).get_by_role("group", name=QUESTION)
        await form.get_by_label("size").fill("0")
        await form.get_by_role("button", name="Answer").click()
        await expect(form.locator(".wait-problem")).to_contain_text("greater than or equal to 1")
        await expect(badge(page)).to_have_text("1")


async def test_an_input_that_is_skipped_in_the_inbox_is_closed_in_the_conversation(page: Page, tmp_path: Path) -> None:
    async with waiting_site(page, tmp_path, "workflow_agent.py", "go"):
        await inbox(page).get_by_role("button", name="Skip").click()
        await nothing_waits(page)
        await expect(page.get_by_role("group", name=QUESTION)).to_have_count(0)
        await expect(answer(page)).to_contain_text("the user stopped the turn")


async def test_an_update_and_the_result_are_given_in_the_inbox(page: Page, tmp_path: Path) -> None:
    async with waiting_site(page, tmp_path, "command_agent.py", "call order"):
        await check_accessibility(page)
        form = inbox(page).get_by_role("group", name="order waits for its result")
        value = form.get_by_role("textbox")
        await form.get_by_role("button", name="Final result").click()
        await expect(form.get_by_role("alert")).to_have_text("A value is missing.")
        await value.fill('{"at": "sea"}')
        await close_and_reopen(page)
        await expect(value).to_have_value('{"at": "sea"}')
        await form.get_by_role("button", name="Update").click()
        await expect(answer(page)).to_contain_text("the tool said {'at': 'sea'}")
        await expect(value).to_have_value("")
        await expect(badge(page)).to_have_text("1")
        await value.fill('{"at": "home"}')
        await form.get_by_role("button", name="Final result").click()
        await nothing_waits(page)
        await expect(answer(page)).to_contain_text("the tool said {'at': 'home'}")
        await wait_until_finished(page)
        card = page.locator(".tool-card").first
        await expect(card).to_have_attribute("data-status", "done")
        await expect(card.get_by_text("Give the result")).to_have_count(0)
