"""Files and pictures with a message: chosen, pasted, dropped, shown again, sent again."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.page_actions import answer, ask, finished
from tests.browser.site import Site, serving_script

# one red pixel
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
EVIL = "<img src=x onerror=window.hacked=1>.txt"
_MADE = """(how) => {
    const bytes = Uint8Array.from(atob(how.data), (letter) => letter.charCodeAt(0));
    const carried = new DataTransfer();
    carried.items.add(new File([bytes], how.name, { type: how.type }));
    const options = { bubbles: true, cancelable: true };
    const event = how.kind === "paste" ? new ClipboardEvent("paste", { ...options, clipboardData: carried })
        : new DragEvent(how.kind, { ...options, dataTransfer: carried });
    document.getElementById("text").dispatchEvent(event);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site")) as site:
        yield site


def sent(site: Site) -> list[tuple[str | None, str, bytes | None]]:
    """The files of the newest message of the user, as the model was sent them."""
    last = [one for one in site.provider.requests[-1].messages if one.role == "user"][-1]
    return [(one.name, one.mime_type, one.data) for one in last.media]


async def hand(page: Page, kind: str, name: str, type_: str, data: bytes) -> None:
    """Paste or drop a file."""
    how = {"kind": kind, "name": name, "type": type_, "data": base64.b64encode(data).decode()}
    await page.evaluate(_MADE, how)


async def test_a_chosen_picture_is_sent_and_shown_again(page: Page, site: Site, tmp_path: Path) -> None:
    picture = tmp_path / "red.png"
    picture.write_bytes(PNG)
    site.script.add("A red dot.")
    await page.goto(site.url)
    await page.get_by_label("Files to attach").set_input_files(picture)
    chips = page.get_by_role("list", name="Attached files")
    await expect(chips.get_by_role("listitem")).to_contain_text("red.png")
    await ask(page, "what is this?", "A red dot.")
    await expect(page.locator("#attached")).to_be_hidden()
    assert sent(site) == [("red.png", "image/png", PNG)]
    shown = page.get_by_role("article", name="You").locator("img")
    await expect(shown).to_have_js_property("naturalWidth", 1)
    await page.reload()
    await expect(shown).to_have_js_property("naturalWidth", 1)
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Save red.png").click()
    saved = tmp_path / "again.png"
    await (await waiting.value).save_as(saved)
    assert saved.read_bytes() == PNG


async def test_files_are_pasted_and_dropped_and_can_be_taken_away(page: Page, site: Site) -> None:
    site.script.add("One file.")
    await page.goto(site.url)
    await hand(page, "paste", "pasted.png", "image/png", PNG)
    await hand(page, "dragover", "x", "text/plain", b"")
    await expect(page.locator("body")).to_have_class("dropping")
    await hand(page, "drop", EVIL, "text/plain", b"some words")
    await expect(page.locator("body")).not_to_have_class("dropping")
    chips = page.get_by_role("list", name="Attached files").get_by_role("listitem")
    await expect(chips).to_have_count(2)
    await page.get_by_role("button", name="Remove pasted.png").click()
    await expect(chips).to_have_count(1)
    await ask(page, "read it", "One file.")
    assert [(name, data) for name, _, data in sent(site)] == [(EVIL, b"some words")]
    await page.reload()
    await expect(page.get_by_role("article", name="You").get_by_role("button", name=f"Save {EVIL}")).to_be_visible()
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("#log article img").count() == 0


async def test_a_file_goes_along_when_its_message_is_sent_again(page: Page, site: Site) -> None:
    site.script.add("First.", "Second.", "Third.")
    await page.goto(site.url)
    await hand(page, "paste", "notes.txt", "text/plain", b"notes")
    await ask(page, "with a file", "First.")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("Second.")
    await finished(page)
    assert [data for _, _, data in sent(site)] == [b"notes"]
    await page.get_by_role("button", name="Edit and send again").click()
    await page.get_by_role("textbox", name="Change your message").fill("with the same file")
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_contain_text("Third.")
    await finished(page)
    assert [data for _, _, data in sent(site)] == [b"notes"]


async def test_files_alone_are_a_message(page: Page, site: Site) -> None:
    site.script.add("Got it.")
    await page.goto(site.url)
    await hand(page, "paste", "alone.txt", "text/plain", b"alone")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(answer(page)).to_contain_text("Got it.")
    await finished(page)
    assert [data for _, _, data in sent(site)] == [b"alone"]


async def test_too_much_is_refused_before_it_is_sent(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await expect(page.locator("#model")).not_to_be_empty()
    await page.evaluate(
        "() => { const carried = new DataTransfer();"
        "carried.items.add(new File([new Uint8Array(20_000_000)], 'huge.bin', { type: 'application/octet-stream' }));"
        "document.getElementById('text').dispatchEvent(new ClipboardEvent('paste', { clipboardData: carried })); }"
    )
    await expect(page.locator(".toast.error")).to_contain_text("huge.bin is too large")
    await expect(page.locator("#attached")).to_be_hidden()
