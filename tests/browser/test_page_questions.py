"""The questions and the progress of a real MCP server on the page, while its tool runs."""

import json
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import AgentSettings, McpSettings
from lango.messages import ToolCall
from lango.waits import Decline
from tests.browser.page_actions import answer, send, session_id, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script
from tests.support.servers import mcp_tools


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    media = McpSettings(command=sys.executable, args=[mcp_tools.__file__])
    async with serving_script(
        tmp_path_factory.mktemp("site"),
        mcp={"media": media},
        agent=AgentSettings(instruction="Help."),
        approval="auto",
    ) as site:
        yield site


async def test_a_running_tool_asks_and_reports_its_progress(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "paint", {}), "painted", ToolCall("c2", "sign_in", {}), "not signed in")
    site.script.add(ToolCall("c3", "order", {}), "closed")
    await page.goto(site.url)
    await send(page, "paint")
    form = page.get_by_role("group", name="Which paint?")
    await expect(form).to_be_visible()
    await expect(page.locator(".tool-card .tool-status")).to_have_text("1 of 2: mixing")
    await expect(page.locator(".wait-card")).to_contain_text("Asked by the MCP server media.")
    await check_accessibility(page)
    await page.reload()
    await expect(form).to_be_visible()
    await expect(page.locator(".tool-card .tool-status")).to_have_text("1 of 2: mixing")
    await form.get_by_label("Layers").fill("0")
    await form.get_by_role("button", name="Answer").click()
    await expect(form.locator(".wait-problem")).to_have_text("Colour: a value is missing")
    await form.get_by_label("Colour").select_option("blue")
    await form.get_by_role("button", name="Answer").click()
    await expect(form.locator(".wait-problem")).to_contain_text("Layers")
    await form.get_by_label("Layers").fill("3")
    await expect(form.get_by_label("Glossy").locator("option:checked")).to_have_text("No")
    await form.get_by_role("button", name="Answer").click()
    await expect(answer(page)).to_contain_text("painted")
    await wait_until_finished(page)
    [result] = [call for message in site.provider.requests[-1].messages for call in message.tool_calls if call.output]
    assert "accept: colour='blue' layers=3 glossy=False email=None" in json.dumps(result.output)

    await send(page, "sign in")
    question = page.locator(".wait-card").last
    await expect(question.get_by_role("link")).to_have_attribute("href", "https://example.org/sign-in?id=1")
    await expect(question.get_by_role("button", name="Done")).to_be_visible()
    await question.get_by_role("button", name="Decline").click()
    await expect(answer(page)).to_contain_text("not signed in")
    await wait_until_finished(page)

    await send(page, "order")
    await expect(page.get_by_role("group", name="What may it be?")).to_be_visible()
    [asked] = await site.runtime.waits(session_id(page))
    await site.runtime.answer(session_id(page), asked.id, Decline())
    await expect(page.locator(".wait-card").last).to_contain_text("The question is closed")
    await expect(answer(page)).to_contain_text("closed")
    await wait_until_finished(page)
