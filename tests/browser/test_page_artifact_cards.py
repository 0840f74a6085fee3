"""Artifacts where they were saved: what each kind of file shows, versions side by side, and nothing of them runs."""

from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import ToolContext
from google.genai import types
from playwright.async_api import Locator, Page, expect

from lango.messages import ToolCall
from tests.browser.page_actions import answer, ask, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import serving_script

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror=window.hacked=2>"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20" onload="window.hacked=3">{SCRIPT}</svg>'
CSV = "city;sum;note\r\n" + "".join(f'Bern {row};{row};"a; ""{SCRIPT}"""\r\n' for row in range(150))
FILES = {
    "chart.svg": ("image/svg+xml", SVG.replace("<img src=x onerror=window.hacked=2>", "")),
    "data.json": ("application/json", '{"a":[1,{"b":null}]}'),
    "notes.md": ("text/markdown", f"# Title\n\n*hi* {SCRIPT}\n"),
    "page.html": ("text/html", f"<h1>hi</h1>{SCRIPT}"),
    "report.pdf": ("application/pdf", "%PDF-1.4"),
    "user:sales.csv": ("text/csv", CSV),
}


def part(mime_type: str, text: str) -> types.Part:
    return types.Part(inline_data=types.Blob(data=text.encode(), mime_type=mime_type))


async def draw(tool_context: ToolContext, number: int) -> str:
    """Save files."""
    for name, (mime_type, text) in FILES.items() if number == 1 else ():
        await tool_context.save_artifact(name, part(mime_type, text))
    await tool_context.save_artifact("plain.txt", part("text/plain", f"one\nnumber {number}"))
    return "drawn"


async def sign(callback_context: CallbackContext) -> None:
    await callback_context.save_artifact("signed.txt", part("text/plain", "by the callback"))


ARTIST = LlmAgent(name="artist", model="openai/x", tools=[draw], after_agent_callback=sign)


def card(page: Page, name: str, version: int = 0) -> Locator:
    return answer(page).get_by_role("group", name=f"Artifact {name}, version {version}")


async def test_artifacts_are_shown_where_they_were_saved_and_nothing_of_them_runs(page: Page, tmp_path: Path) -> None:
    calls: list[Any] = [ToolCall(f"c{number}", "draw", {"number": number}) for number in (1, 2)]
    script = [calls[0], "First.", calls[1], "Second."]
    async with serving_script(tmp_path, script, root_agent=ARTIST, approval="auto") as site:
        await page.goto(site.url)
        await ask(page, "draw", "First.")
        for _ in ("as it happens", "after a reload"):
            await expect(answer(page).locator(".artifact")).to_have_count(len(FILES) + 2)
            picture = card(page, "chart.svg").get_by_role("img", name="chart.svg")
            await expect(picture).to_be_visible()
            assert (await picture.get_attribute("src") or "").startswith("data:")
            table = card(page, "user:sales.csv")
            await expect(table.get_by_role("row")).to_have_count(101)
            await expect(table.get_by_role("cell").nth(2)).to_have_text(f'a; "{SCRIPT}"')
            await expect(table).to_contain_text("The first 100 of 150 rows.")
            await expect(card(page, "data.json").locator("pre")).to_contain_text('{\n  "a": [\n    1,')
            await expect(card(page, "notes.md").get_by_role("heading", name="Title")).to_be_visible()
            await expect(card(page, "page.html").locator("pre")).to_have_text(f"<h1>hi</h1>{SCRIPT}")
            await expect(card(page, "signed.txt").locator("pre")).to_have_text("by the callback")
            await wait_until_finished(page)
            await check_accessibility(page, "light", "dark")
            await page.reload()
        await answer(page).hover()
        await answer(page).get_by_role("button", name="Fork from here").click()
        await expect(page.locator(".toast")).to_contain_text("A new conversation")
        await expect(card(page, "signed.txt")).to_have_count(0)  # it was saved after the message that was forked
        await expect(answer(page).locator(".artifact")).to_have_count(len(FILES) + 1)
        async with page.expect_download() as saved:
            await card(page, "report.pdf").get_by_role("link", name="Save the PDF").click()
        assert (await saved.value).suggested_filename == "report.pdf"

        await ask(page, "again", "Second.")
        text = card(page, "plain.txt", 1)
        await expect(text.locator("pre")).to_have_text(["one\nnumber 2"])
        await text.get_by_label("Compare version 1 of plain.txt with").select_option("with version 0")
        await expect(text.locator("pre")).to_have_text(["one\nnumber 1", "one\nnumber 2"])
        await page.get_by_role("button", name="Details of this conversation").click()
        await page.get_by_role("tab", name="Artifacts").click()
        await page.get_by_role("button", name="Show version 1 of plain.txt").click()
        view = page.get_by_role("list", name="Artifacts")
        await view.get_by_label("Compare version 1 of plain.txt with").select_option("with version 0")
        await expect(view.locator("pre")).to_have_text(["one\nnumber 1", "one\nnumber 2"])
        assert await page.evaluate("window.hacked") is None
        await page.goto("about:blank")  # before the server stops: the page would reconnect
