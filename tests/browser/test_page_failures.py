"""The page shows where a tool, a node or a callback raised an error: to operators only."""

from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.workflow import START, Workflow
from playwright.async_api import Page, expect

from lango.adk import ProviderLlm
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import serving_script

HERE = Path(__file__).name


def open_drawer(name: str) -> str:
    """Open a drawer."""
    raise LookupError(f"there is no drawer {name}")


def sort_drawers(node_input: Any) -> str:
    """Sort the drawers."""
    raise LookupError("there are no drawers")


def refuse(*_: Any, **__: Any) -> None:
    raise LookupError("the callback refuses")


async def test_a_failed_tool_shows_its_traceback_on_its_card_and_in_the_trace(page: Page, tmp_path: Path) -> None:
    provider = ScriptedProvider([ToolCall("c1", "open_drawer", {"name": "7"}), "a pity"])
    root = LlmAgent(name="mine", model=ProviderLlm(provider, "m"), tools=[open_drawer])
    async with serving_script(tmp_path, root_agent=root) as site:
        await page.goto(site.url)
        await send(page, "open drawer 7")
        await wait_until_finished(page)
        card = answer(page).locator(".tool")
        for _ in range(2):  # live, and as it is stored
            await expect(card).to_contain_text(f"{HERE}:")
            await card.locator("summary").first.click()
            shown = card.get_by_label("Traceback", exact=True)
            await expect(shown).to_contain_text('raise LookupError(f"there is no drawer {name}")')
            await expect(shown).to_contain_text("of libraries]")
            await expect(shown).not_to_contain_text("site-packages")
            await page.reload()
        await card.locator("summary").first.click()
        await card.get_by_text("With the frames of libraries").click()
        await expect(card.get_by_label("Whole traceback")).to_contain_text("site-packages")
        await check_accessibility(page, "light", "dark")
        await page.get_by_role("button", name="Trace of this answer").click()
        panel = page.get_by_role("tabpanel", name="Trace")
        await panel.get_by_role("button", name="open_drawer").click()
        await expect(panel.get_by_label("Traceback", exact=True)).to_contain_text("raise LookupError(f")
        await page.goto("about:blank")


async def test_a_failed_node_shows_its_traceback_and_its_input(page: Page, tmp_path: Path) -> None:
    flow = Workflow(name="flow", edges=[(START, sort_drawers)])
    async with serving_script(tmp_path, root_agent=flow) as site:
        await page.goto(site.url)
        await send(page, "sort")
        node = answer(page).get_by_role("listitem").filter(has_text="sort_drawers")
        for _ in range(2):
            await expect(node).to_have_attribute("data-status", "failed")
            await expect(node.get_by_label("Traceback", exact=True)).to_contain_text('raise LookupError("there are')
            await node.get_by_role("button", name="sort_drawers").click()
            await expect(node.get_by_label("Input")).to_have_text("sort")
            await expect(node.get_by_label("Error")).to_have_text("LookupError: there are no drawers")
            await page.reload()
        await page.get_by_role("button", name="Trace of this answer").click()
        steps = page.get_by_role("list", name="Steps of turn 1")
        await expect(steps.get_by_role("listitem")).to_have_attribute("data-status", "failed")
        await steps.get_by_role("button", name="sort_drawers").click()
        await expect(steps.get_by_label("Input")).to_have_text("sort")
        await expect(steps.get_by_label("Error")).to_have_text("LookupError: there are no drawers")
        await check_accessibility(page, "light", "dark")
        await page.goto("about:blank")  # before the server is gone


async def test_a_failed_callback_shows_its_traceback_with_the_failed_turn(page: Page, tmp_path: Path) -> None:
    root = LlmAgent(name="mine", model=ProviderLlm(ScriptedProvider([]), "m"), before_model_callback=refuse)
    async with serving_script(tmp_path, root_agent=root) as site:
        await page.goto(site.url)
        await send(page, "go")
        failed = answer(page).locator(".failed")
        await expect(failed).to_contain_text("the callback refuses")
        await expect(failed.get_by_label("Traceback", exact=True)).to_contain_text("in refuse")
        await page.goto("about:blank")
