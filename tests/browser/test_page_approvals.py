"""Approval requests on the page: long texts, what changes in a file, and a refusal with a reason."""

from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext
from playwright.async_api import Page, expect

from lango.messages import ToolCall
from lango.tools.builtin.files import file_tools
from lango.tools.builtin.workspace import Workspace
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script


async def test_a_change_of_a_file_is_shown_and_refused_with_a_reason(page: Page, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "list.txt").write_text("milk\nbread\n")
    call = ToolCall("c1", "write_file", {"path": "list.txt", "content": "milk\n<b>butter</b>\n"})
    tools = file_tools(Workspace(tmp_path / "files"))
    async with serving_script(tmp_path, [call, "I leave it."], tools=tools) as site:
        await page.goto(site.url)
        await send(page, "write the list")
        request = page.get_by_role("group", name="May write_file run?")
        for _ in ("as it happens", "after a reload"):
            await expect(request.get_by_label("Arguments")).to_have_text('{\n  "path": "list.txt"\n}')
            await expect(request.get_by_label("Argument content")).to_have_text("milk\n<b>butter</b>\n")
            await expect(request.locator(".diff .removed").last).to_have_text("-bread\n")
            await expect(request.locator(".diff .added").last).to_have_text("+<b>butter</b>\n")
            await wait_until_finished(page)
            await page.reload()
        await check_accessibility(page)
        await request.get_by_role("button", name="No, because …").click()
        dialog = page.get_by_role("dialog", name="Why may write_file not run?")
        await dialog.get_by_role("textbox").fill("we need bread")
        await dialog.get_by_role("button", name="Refuse").click()
        await expect(answer(page)).to_contain_text("I leave it.")
        await wait_until_finished(page)
        for _ in ("as it happens", "after a reload"):
            await expect(answer(page).locator(".tool-card")).to_have_attribute("data-status", "refused")
            await expect(answer(page).locator(".tool-reason")).to_have_text("we need bread")
            await page.reload()
        assert results(site)[-1]["error"].endswith("refused this call. Their reason: we need bread")
        await page.goto("about:blank")  # before the server stops: the page would reconnect


async def test_the_payload_of_a_tool_is_edited_and_a_reason_reaches_the_model_from_a_tool_of_adk(
    page: Page, tmp_path: Path
) -> None:
    def pay(tool_context: ToolContext) -> dict[str, Any]:
        """Pay, when a person agreed."""
        if tool_context.tool_confirmation is None:
            payload = {"limit": 30, "note": "for <b>tea</b>"}
            tool_context.request_confirmation(hint="This costs <b>30</b> euros.", payload=payload)
            tool_context.actions.skip_summarization = True
            return {"status": "waiting"}
        return {"payload": tool_context.tool_confirmation.payload}

    def ship(city: str) -> str:
        """Ship it."""
        return f"shipped to {city}"

    root = LlmAgent(name="payer", model="openai/x", tools=[pay, FunctionTool(ship, require_confirmation=True)])
    script = [ToolCall("c1", "pay", {}), "Paid.", ToolCall("c2", "ship", {"city": "Bern"}), "I keep it."]
    async with serving_script(tmp_path, script, root_agent=root) as site:
        await page.goto(site.url)
        await send(page, "pay")
        request = page.get_by_role("group", name="May pay run?")
        for _ in ("as it happens", "after a reload"):
            await expect(request).to_contain_text("This costs <b>30</b> euros.")
            await expect(request.get_by_label("limit")).to_have_value("30")
            await expect(request.get_by_label("note")).to_have_value("for <b>tea</b>")
            await wait_until_finished(page)
            await page.reload()
        await request.get_by_label("limit").fill("20")
        await request.get_by_role("button", name="Approve").click()
        await expect(answer(page)).to_contain_text("Paid.")
        await wait_until_finished(page)
        assert results(site) == [{"payload": {"limit": 20, "note": "for <b>tea</b>"}}]

        await send(page, "ship")
        request = page.get_by_role("group", name="May ship run?")
        await request.get_by_role("button", name="No, because …").click()
        dialog = page.get_by_role("dialog", name="Why may ship not run?")
        await dialog.get_by_role("textbox").fill("wait for the invoice")
        await dialog.get_by_role("button", name="Refuse").click()
        await expect(answer(page)).to_contain_text("I keep it.")
        await wait_until_finished(page)
        assert results(site)[-1]["error"].endswith("Their reason: wait for the invoice")
        await expect(answer(page).locator(".tool-reason")).to_have_text("wait for the invoice")
        await page.reload()
        await expect(answer(page).locator(".tool-reason")).to_have_text("wait for the invoice")
        await page.goto("about:blank")  # before the server stops: the page would reconnect


def results(site: Site) -> list[dict[str, Any]]:
    """Return the results that the model was sent last."""
    calls = [call for message in site.provider.requests[-1].messages for call in message.tool_calls]
    return [dict(call.output) for call in calls if call.output]
