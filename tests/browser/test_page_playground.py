"""The page runs a turn on from a step with something changed, as a fork, and shows runs as columns."""

import re
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext
from playwright.async_api import Page, expect

from lango.config import TraceSettings
from lango.messages import ToolCall
from tests.browser.page_actions import answer, choose_action, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import serving_script


def look(place: str, tool_context: ToolContext) -> dict[str, Any]:
    """Look at a place."""
    tool_context.state["place"] = place
    return {"seen": f"nothing in {place}"}


async def test_a_turn_runs_on_with_changes_and_runs_are_compared(
    page: Page, tmp_path: Path, monitor: PageMonitor
) -> None:
    call = ToolCall("c1", "look", {"place": "drawer"})
    again = [[call], "Nothing there.", [call], "Not a thing there."]
    script = [[call], "I saw nothing.", "I saw a key.", *again]
    root = LlmAgent(name="mine", model="openai/x", instruction="Look around.", tools=[look])
    async with serving_script(tmp_path, script, root_agent=root, trace=TraceSettings(requests=True)) as site:
        await page.goto(site.url)
        await send(page, "look")
        await wait_until_finished(page)
        await page.get_by_role("button", name="Trace of this answer").click()
        steps = page.get_by_role("list", name="Steps of turn 1")
        await steps.get_by_role("button", name=re.compile("Tool.*look")).click()
        await page.get_by_role("button", name="Change the result and run on").click()
        dialog = page.get_by_role("dialog", name="Run on from the result of look")
        await expect(dialog.get_by_label("System text of mine")).to_have_value(re.compile("Look around."))
        result = dialog.get_by_label("Result of look")
        await expect(result).to_have_value(re.compile("nothing in drawer"))
        await check_accessibility(page, "light", "dark")
        await result.fill('{"seen": ')
        await dialog.get_by_role("button", name="Run", exact=True).click()
        await expect(dialog).to_be_visible()  # it is not JSON
        await result.fill('{"seen": "a key"}')
        await dialog.get_by_label("State to change, as JSON").fill('{"user:mood": "curious"}')
        await dialog.get_by_role("button", name="Run", exact=True).click()
        monitor.expect("400")
        await expect(dialog.get_by_role("alert")).to_contain_text("shared with the original: user:mood")
        await check_accessibility(page, "light", "dark")
        await dialog.get_by_label("State to change, as JSON").fill('{"mood": "curious"}')
        await dialog.get_by_role("button", name="Run", exact=True).click()
        await expect(answer(page)).to_contain_text("I saw a key.")
        await wait_until_finished(page)
        assert site.provider.requests[-1].messages[-1].tool_calls[0].output == {"seen": "a key"}
        await expect(page.get_by_role("article", name="Answer")).to_have_count(1)

        await choose_action(page, "Compare with the original")
        rows = page.get_by_role("dialog", name="Compare runs").locator("tbody tr")
        await expect(rows.filter(has_text="Answer").locator("td")).to_have_text(["I saw nothing.", "I saw a key."])
        await expect(rows.filter(has_text="Answer").locator("ins")).to_have_text(["a key."])
        await expect(rows.filter(has_text="Tools").locator("td")).to_have_text(['look({"place":"drawer"})'] * 2)
        await expect(rows.filter(has_text="State").locator("td").last).to_contain_text('mood: "curious"')
        await page.keyboard.press("Escape")

        await page.get_by_role("link", name="look", exact=True).click()
        await expect(answer(page)).to_contain_text("I saw nothing.")
        await page.get_by_role("button", name="Run it again with changes").click()
        dialog = page.get_by_role("dialog", name="Run this turn again")
        await dialog.get_by_role("button", name="Another prompt or model beside it").click()
        await dialog.get_by_role("group", name="Run 2").get_by_label("System text of mine").fill("Be brief.")
        await dialog.get_by_role("button", name="Run", exact=True).click()
        runs = page.get_by_role("dialog", name="Compare runs")
        await expect(runs.locator("thead th")).to_have_count(4)
        answers = runs.locator("tbody tr").filter(has_text="Answer").locator("td")
        await expect(answers.first).to_have_text("I saw nothing.")
        await expect(answers.filter(has_text="thing there.")).to_have_count(2)
        await expect(runs.locator("tbody tr").filter(has_text="Prompt").locator("td").last).to_have_text("Be brief.")
        await expect(runs.locator("[data-running]")).to_have_count(0)
        await check_accessibility(page, "light", "dark")
        await page.set_viewport_size({"width": 390, "height": 800})
        await check_accessibility(page)
        await page.keyboard.press("Escape")
        await page.goto("about:blank")
