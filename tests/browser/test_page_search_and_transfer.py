"""Search, export and import on the page."""

import json
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.page_actions import answer, ask, choose_action, session_id
from tests.browser.page_monitor import PageMonitor
from tests.browser.site import Site

EVIL = "<img src=x onerror=window.hacked=1>"


async def export(page: Page, folder: Path) -> Path:
    """Export the open conversation to a file."""
    async with page.expect_download() as download:
        await choose_action(page, "Export")
    saved = folder / "saved.jsonl"
    await (await download.value).save_as(saved)
    return saved


async def test_search_finds_messages(page: Page, site: Site) -> None:
    site.script.add(f"The 🐘 elephant {EVIL} is grey.", "Something else.")
    await page.goto(site.url)
    await ask(page, "animals", "is grey")
    animals = session_id(page)
    await page.get_by_role("button", name="New conversation", exact=True).click()
    await ask(page, "other things", "Something else.")
    await page.get_by_role("searchbox").fill("elephant")
    hit = page.get_by_role("list", name="Found").get_by_role("link")
    await expect(hit).to_have_count(1)
    await expect(hit.locator("mark")).to_have_text("elephant")
    await expect(hit).to_contain_text("animals")
    await hit.click()
    await expect(answer(page)).to_contain_text("is grey")
    assert session_id(page) == animals
    await page.get_by_role("searchbox").fill("nothing of the kind")
    await expect(page.get_by_text("Nothing found for “nothing of the kind”.")).to_be_visible()
    await page.get_by_role("searchbox").press("Escape")
    await expect(page.get_by_role("navigation").get_by_role("link", name="animals")).to_be_visible()
    assert await page.evaluate("window.hacked") is None


async def test_an_export_can_be_imported(page: Page, site: Site, tmp_path: Path) -> None:
    site.script.add(f"An answer to keep. {EVIL}")
    await page.goto(site.url)
    await ask(page, "keep this forever", "An answer to keep.")
    first = session_id(page)
    saved = await export(page, tmp_path)
    assert all(json.loads(line) for line in saved.read_text().splitlines())
    assert "An answer to keep." in saved.read_text()
    async with page.expect_download() as download:
        await choose_action(page, "Save as test case")
        await page.get_by_role("button", name="Download the file instead").click()
    await (await download.value).save_as(tmp_path / "one.evalset.json")
    [case] = json.loads((tmp_path / "one.evalset.json").read_text())["eval_cases"]
    assert case["conversation"][0]["final_response"]["parts"] == [{"text": f"An answer to keep. {EVIL}"}]
    async with page.expect_download() as download:
        await choose_action(page, "Share …")
        await page.get_by_role("menuitem", name="Web page (HTML)").click()
    shared = tmp_path / "shared.html"
    await (await download.value).save_as(shared)
    assert "&lt;img src=x onerror=window.hacked=1&gt;" in shared.read_text()
    reader = await page.context.new_page()
    await reader.set_content(shared.read_text())
    await expect(reader.locator("section.agent")).to_contain_text(EVIL)
    assert await reader.evaluate("window.hacked") is None
    await reader.close()
    await choose_action(page, "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await page.get_by_label("A file to import").set_input_files(saved)
    await expect(answer(page)).to_contain_text("An answer to keep.")
    assert session_id(page) == first
    site.script.add("It continues.")
    await ask(page, "continue", "It continues.")


async def test_an_existing_conversation_is_imported_as_a_copy(
    page: Page, site: Site, tmp_path: Path, monitor: PageMonitor
) -> None:
    monitor.expect("409")
    site.script.add("The original.")
    await page.goto(site.url)
    await ask(page, "copy me", "The original.")
    first = session_id(page)
    saved = await export(page, tmp_path)
    await page.get_by_label("A file to import").set_input_files(saved)
    await expect(page.get_by_text("this is a copy of it").first).to_be_visible()
    await page.wait_for_url(lambda url: "#/s/" in url and first not in url)
    await expect(answer(page)).to_contain_text("The original.")


async def test_a_file_that_is_not_an_export_is_refused_with_a_message(
    page: Page, site: Site, tmp_path: Path, monitor: PageMonitor
) -> None:
    monitor.expect("400")
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("this is not it\n")
    await page.goto(site.url)
    await page.get_by_label("A file to import").set_input_files(wrong)
    await expect(page.locator(".toast.error")).to_be_visible()
