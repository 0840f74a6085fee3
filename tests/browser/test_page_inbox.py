"""The inbox on the page: a live badge, answers without opening the conversation, and grants."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from lango import tool
from lango.messages import ToolCall
from lango.store.engine.database import Operation
from tests.browser.page_actions import answer, send, session_id, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import TIMEOUT_S, Site, serving_script
from tests.support.runtimes import store_of


@tool(level="dangerous")
def erase(path: str, times: int = 1) -> str:
    """Erase a file."""
    return f"erased {path}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), tools=[erase]) as site:
        yield site


def badge(page: Page) -> Locator:
    return page.locator("#inbox-count")


def inbox(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Inbox")


async def ask_elsewhere(site: Site, session: str, path: str, call_id: str) -> None:
    """Let a tool ask in a conversation that no page shows."""
    site.script.add(ToolCall(call_id, "erase", {"path": path}))
    async with httpx.AsyncClient(base_url=site.url, timeout=TIMEOUT_S) as client:
        await client.post(f"/v1/sessions/{session}/messages", json={"text": f"erase {path}"})


def expire_requests() -> Operation[None]:
    yield "UPDATE waits SET expires_at = (SELECT now FROM database_clock)", ()


async def test_the_badge_is_live_and_a_request_is_answered_in_the_inbox(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await expect(badge(page)).to_be_hidden()
    await ask_elsewhere(site, "first", "a.txt", "c1")
    await expect(badge(page)).to_have_text("1")
    await ask_elsewhere(site, "second", "b.txt", "c2")
    await expect(badge(page)).to_have_text("2")
    await page.get_by_role("button", name="Inbox: 2 waiting").click()
    await check_accessibility(page)
    items = inbox(page).get_by_role("listitem")
    await expect(items).to_have_count(2)
    await expect(items.first).to_contain_text("erase b.txt")
    site.script.add("it is gone")
    await items.first.get_by_role("button", name="Approve").click()
    await expect(items).to_have_count(1)
    await expect(badge(page)).to_have_text("1")
    site.script.add("then not")
    await items.first.get_by_role("button", name="Refuse").click()
    await expect(inbox(page)).to_contain_text("Nothing is waiting for you.")
    await expect(badge(page)).to_be_hidden()
    await inbox(page).get_by_role("button", name="Close").click()
    await page.goto(f"{site.url}/#/s/first")
    await expect(answer(page)).to_contain_text("then not")


async def test_the_inbox_leads_to_the_conversation(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await ask_elsewhere(site, "third", "c.txt", "c3")
    await page.get_by_role("button", name="Inbox: 1 waiting").click()
    await inbox(page).get_by_role("link", name="erase c.txt").click()
    await expect(inbox(page)).to_have_count(0)
    group = page.get_by_role("group", name="May erase run?")
    await expect(group).to_be_visible()
    site.script.add("then not")
    await group.get_by_role("button", name="Refuse").click()
    await expect(answer(page)).to_contain_text("then not")
    await expect(badge(page)).to_be_hidden()


async def test_a_request_that_expires_is_closed_in_the_conversation(page: Page, site: Site) -> None:
    await page.goto(site.url)
    site.script.add(ToolCall("c4", "erase", {"path": "d.txt"}))
    await send(page, "erase d.txt")
    group = page.get_by_role("group", name="May erase run?")
    await expect(group).to_be_visible()
    await wait_until_finished(page)
    await expect(badge(page)).to_have_text("1")
    await store_of(site.runtime).write(expire_requests)
    await site.runtime.waits(session_id(page))  # it expires what is due, or as soon as the turn has ended
    await expect(badge(page)).to_be_hidden()
    await expect(group).to_have_count(0)
    await expect(answer(page)).to_contain_text("not run")


async def test_failed_turns_are_listed_and_run_again(page: Page, site: Site) -> None:
    site.script.add(ValueError("boom"), ValueError("bang"), "and then it works")
    async with httpx.AsyncClient(base_url=site.url, timeout=TIMEOUT_S) as client:
        await client.post("/v1/sessions/broken/messages", json={"text": "first of all"})
        await client.post("/v1/sessions/broken/messages", json={"text": "do it"})
    await page.goto(site.url)
    await page.get_by_role("button", name="Inbox").click()
    failed = inbox(page).get_by_role("region", name="Failed turns").get_by_role("listitem")
    await expect(failed).to_have_count(2)
    await expect(failed.first).to_contain_text("do it")
    await expect(failed.first).to_contain_text("bang")
    await expect(failed.last.get_by_role("button")).to_have_count(0)
    await check_accessibility(page)
    await failed.first.get_by_role("button", name="Run again").click()
    await expect(failed).to_have_count(1)
    await inbox(page).get_by_role("link", name="first of all").click()
    await expect(answer(page)).to_contain_text("and then it works")


async def test_always_runs_later_calls_until_the_grant_is_revoked(page: Page, site: Site) -> None:
    await page.goto(site.url)
    site.script.add(ToolCall("g1", "erase", {"path": "tmp/a.txt"}), "erased one")
    await send(page, "erase one")
    group = page.get_by_role("group", name="May erase run?")
    await group.get_by_role("button", name="Always").click()
    await page.get_by_role("menuitem", name="Always with arguments like these …").click()
    dialog = page.get_by_role("dialog", name="Always for erase")
    await dialog.get_by_label("path").fill("tmp/*")
    await check_accessibility(page)
    await dialog.get_by_role("button", name="Approve").click()
    await expect(answer(page)).to_contain_text("erased one")
    await wait_until_finished(page)
    site.script.add(ToolCall("g2", "erase", {"path": "tmp/b.txt"}), "erased two")
    await send(page, "erase two")
    await expect(answer(page)).to_contain_text("erased two")
    await wait_until_finished(page)
    async with httpx.AsyncClient(base_url=site.url) as client:
        [grant] = (await client.get(f"/v1/sessions/{session_id(page)}/grants")).json()["grants"]
    assert json.dumps(grant["arguments"]) == '{"path": {"glob": "tmp/*"}}'
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Grants").click()
    listed = page.get_by_role("list", name="Grants").get_by_role("listitem")
    await expect(listed).to_contain_text("erase path: tmp/*")
    await check_accessibility(page)
    await page.get_by_role("button", name="Revoke grant 1 for erase").click()
    await expect(listed).to_contain_text("revoked")
    site.script.add(ToolCall("g3", "erase", {"path": "tmp/c.txt"}))
    await send(page, "erase three")
    await expect(group).to_be_visible()
    site.script.add("kept")
    await group.get_by_role("button", name="Refuse").click()
    await expect(answer(page)).to_contain_text("kept")


async def test_always_for_a_tool_in_this_conversation(page: Page, site: Site) -> None:
    await page.goto(site.url)
    site.script.add(ToolCall("h1", "erase", {"path": "x"}), "first")
    await send(page, "erase x")
    await page.get_by_role("group", name="May erase run?").get_by_role("button", name="Always").click()
    site.script.add(ToolCall("h2", "erase", {"path": "y"}), "second")
    await page.get_by_role("menuitem", name="Always for erase in this conversation").click()
    await expect(answer(page)).to_contain_text("first")
    await wait_until_finished(page)
    await send(page, "erase y")
    await expect(answer(page)).to_contain_text("second")
    await wait_until_finished(page)
    await answer(page).locator("summary").click()
    await expect(answer(page)).to_contain_text("(grant 1)")
