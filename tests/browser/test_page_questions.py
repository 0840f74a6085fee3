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


async def test_the_card_of_the_agent_lists_the_tools_of_a_server_and_calls_one(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await page.get_by_role("button", name="How this agent is built").click()
    card = page.get_by_role("region", name="Agent lango")
    await card.get_by_text("media", exact=True).click()
    await card.get_by_role("button", name="Ask for its tools").click()
    await card.get_by_text("structured", exact=True).click()
    tool = card.locator("details", has=page.get_by_text("Return a picture in the content")).last
    await expect(tool.get_by_text("Schema of its arguments")).to_be_visible()
    form = tool.get_by_role("form", name="Call structured by hand")
    await form.get_by_role("button", name="Call it").click()
    await expect(form.get_by_label("Result", exact=True)).to_contain_text("image/png")
    await check_accessibility(page)


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
