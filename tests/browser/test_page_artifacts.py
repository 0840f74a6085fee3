"""The files view: artifacts with their versions are listed, saved, uploaded and deleted on the page."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import Site, serving_script

EVIL = "<img src=x onerror=window.hacked=1>.txt"
LARGE = bytes(range(256)) * 3_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(
        tmp_path_factory.mktemp("artifacts"), ["Saved.", "Nothing here.", "Ready.", "Ready."]
    ) as site:
        await site.runtime.run("s", "draw")
        await site.runtime.run("empty", "hello")
        artifacts = site.runtime.artifacts
        for data in (b"first", LARGE):
            await artifacts.save("s", "charts/2026/sales 1.png", data, mime_type="image/png")
        await artifacts.save("s", f"user:{EVIL}", "text")
        yield site


async def open_files(page: Page, site: Site, session: str = "s") -> None:
    await page.goto(f"{site.url}/#/s/{session}")
    await expect(page.get_by_role("article", name="Answer").last).to_be_visible()
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Artifacts").click()


async def saved(page: Page, name: str, folder: Path) -> tuple[str, bytes]:
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name=name).first.click()
    file = await waiting.value
    await file.save_as(folder / "saved")
    return file.suggested_filename, (folder / "saved").read_bytes()


async def test_artifacts_and_their_versions_are_listed_and_saved(page: Page, site: Site, tmp_path: Path) -> None:
    await open_files(page, site)
    items = page.get_by_role("list", name="Artifacts").locator("> li")
    await expect(items).to_have_count(2)
    await expect(items.first).to_contain_text("charts/2026/sales 1.png")
    await expect(items.first).to_contain_text("version 1 · image/png")
    await expect(items.last).to_contain_text("in all your conversations")
    await check_accessibility(page, "light", "dark")
    assert await saved(page, "Save version 1 of charts/2026/sales 1.png", tmp_path) == ("sales 1.png", LARGE)
    await items.first.get_by_role("button", name="All versions").click()
    versions = page.get_by_role("list", name="Versions of charts/2026/sales 1.png").get_by_role("listitem")
    await expect(versions).to_have_count(2)
    assert await saved(page, "Save version 0 of charts/2026/sales 1.png", tmp_path) == ("sales 1.png", b"first")
    assert (await saved(page, f"Save version 0 of user:{EVIL}", tmp_path))[1] == b"text"
    assert await page.evaluate("window.hacked") is None


async def test_a_conversation_without_artifacts_says_so(page: Page, site: Site) -> None:
    await site.runtime.artifacts.delete("s", f"user:{EVIL}")
    await open_files(page, site, "empty")
    await expect(page.get_by_text("No artifacts yet.")).to_be_visible()


async def test_files_are_uploaded_and_deleted(page: Page, site: Site, tmp_path: Path) -> None:
    await site.runtime.artifacts.delete("s", f"user:{EVIL}")
    await site.runtime.run("uploads", "hello")
    await open_files(page, site, "uploads")
    names = ["a <b> \u2603.txt", "chart 1.png"]
    for name in names:
        (tmp_path / name).write_bytes(LARGE)
    chooser = page.get_by_label("Files to upload")
    for version in range(2):
        await chooser.set_input_files([tmp_path / name for name in names])
        await expect(page.get_by_text(f"version {version} · image/png")).to_be_visible()
    await page.get_by_label("For all your conversations").check()
    await chooser.set_input_files([tmp_path / names[1]])
    items = page.get_by_role("list", name="Artifacts").locator("> li")
    await expect(items.last).to_contain_text("in all your conversations")
    artifacts = site.runtime.artifacts
    assert [one.name for one in await artifacts.list("uploads")] == [*names, f"user:{names[1]}"]
    assert await artifacts.load("uploads", names[0]) == LARGE
    assert (await artifacts.read("uploads", names[1])).mime_type == "image/png"
    await page.get_by_role("button", name=f"Delete {names[0]}", exact=True).click()
    await page.get_by_role("button", name="Cancel").click()
    await expect(items).to_have_count(3)
    for name in (*names, f"user:{names[1]}"):
        await page.get_by_role("button", name=f"Delete {name}", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("button", name=f"Delete {name}", exact=True)).to_have_count(0)
    await expect(page.get_by_text("No artifacts yet.")).to_be_visible()
    assert await artifacts.list("uploads") == []


async def test_a_refused_upload_says_why(page: Page, monitor: PageMonitor, site: Site, tmp_path: Path) -> None:
    monitor.expect("empty.bin")
    await site.runtime.run("refused", "hello")
    await open_files(page, site, "refused")
    (tmp_path / "empty.bin").write_bytes(b"")
    await page.get_by_label("Files to upload").set_input_files([tmp_path / "empty.bin"])
    await expect(page.locator(".toast.error")).to_contain_text("give the artifact another type")


async def test_a_new_conversation_shows_the_files_of_the_user(page: Page, site: Site, tmp_path: Path) -> None:
    await site.runtime.artifacts.save(None, "mine.txt", "of the user")
    await page.goto(site.url)
    await page.keyboard.press("Alt+KeyD")
    await page.get_by_role("tab", name="Artifacts").click()
    assert await saved(page, "Save version 0 of user:mine.txt", tmp_path) == ("mine.txt", b"of the user")
    await page.get_by_role("button", name="Delete user:mine.txt").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("No artifacts yet.")).to_be_visible()
