"""Attached files: chosen, pasted, dropped, shown after a reload, and resent."""

import base64
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.page_actions import answer, ask, wait_until_finished
from tests.browser.site import Site

# one red pixel
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
EVIL = "<img src=x onerror=window.hacked=1>.txt"
_DISPATCH_FILE = """(options) => {
    const bytes = Uint8Array.from(atob(options.data), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], options.name, { type: options.type }));
    const flags = { bubbles: true, cancelable: true };
    const event = options.kind === "paste" ? new ClipboardEvent("paste", { ...flags, clipboardData: transfer })
        : new DragEvent(options.kind, { ...flags, dataTransfer: transfer });
    document.getElementById("text").dispatchEvent(event);
}"""


def sent_files(site: Site) -> list[tuple[str | None, str, bytes | None]]:
    """Return the files of the user's newest message in the last request to the model."""
    newest = [message for message in site.provider.requests[-1].messages if message.role == "user"][-1]
    return [(file.name, file.mime_type, file.data) for file in newest.media]


async def give_file(page: Page, kind: str, name: str, type_: str, data: bytes) -> None:
    """Paste or drop a file."""
    options = {"kind": kind, "name": name, "type": type_, "data": base64.b64encode(data).decode()}
    await page.evaluate(_DISPATCH_FILE, options)


async def test_a_chosen_image_is_sent_and_shown_after_a_reload(page: Page, site: Site, tmp_path: Path) -> None:
    image = tmp_path / "red.png"
    image.write_bytes(PNG)
    site.script.add("A red dot.")
    await page.goto(site.url)
    await page.get_by_label("Files to attach").set_input_files(image)
    chips = page.get_by_role("list", name="Attached files")
    await expect(chips.get_by_role("listitem")).to_contain_text("red.png")
    await ask(page, "what is this?", "A red dot.")
    await expect(page.locator("#attached")).to_be_hidden()
    assert sent_files(site) == [("red.png", "image/png", PNG)]
    shown = page.get_by_role("article", name="You").locator("img")
    await expect(shown).to_have_js_property("naturalWidth", 1)
    await page.reload()
    await expect(shown).to_have_js_property("naturalWidth", 1)
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Save red.png").click()
    saved = tmp_path / "again.png"
    await (await waiting.value).save_as(saved)
    assert saved.read_bytes() == PNG


async def test_files_can_be_pasted_dropped_and_removed(page: Page, site: Site) -> None:
    site.script.add("One file.")
    await page.goto(site.url)
    await give_file(page, "paste", "pasted.png", "image/png", PNG)
    await give_file(page, "dragover", "x", "text/plain", b"")
    await expect(page.locator("body")).to_have_class("dropping")
    await give_file(page, "drop", EVIL, "text/plain", b"some words")
    await expect(page.locator("body")).not_to_have_class("dropping")
    chips = page.get_by_role("list", name="Attached files").get_by_role("listitem")
    await expect(chips).to_have_count(2)
    await page.get_by_role("button", name="Remove pasted.png").click()
    await expect(chips).to_have_count(1)
    await ask(page, "read it", "One file.")
    assert [(name, data) for name, _, data in sent_files(site)] == [(EVIL, b"some words")]
    await page.reload()
    await expect(page.get_by_role("article", name="You").get_by_role("button", name=f"Save {EVIL}")).to_be_visible()
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("#log article img").count() == 0


async def test_files_are_resent_with_their_message(page: Page, site: Site) -> None:
    site.script.add("First.", "Second.", "Third.")
    await page.goto(site.url)
    await give_file(page, "paste", "notes.txt", "text/plain", b"notes")
    await ask(page, "with a file", "First.")
    await page.get_by_role("button", name="Try again").click()
    await expect(answer(page)).to_contain_text("Second.")
    await wait_until_finished(page)
    assert [data for _, _, data in sent_files(site)] == [b"notes"]
    await page.get_by_role("button", name="Edit and send again").click()
    await page.get_by_role("textbox", name="Change your message").fill("with the same file")
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_contain_text("Third.")
    await wait_until_finished(page)
    assert [data for _, _, data in sent_files(site)] == [b"notes"]


async def test_a_message_can_consist_of_files_only(page: Page, site: Site) -> None:
    site.script.add("Got it.")
    await page.goto(site.url)
    await give_file(page, "paste", "alone.txt", "text/plain", b"alone")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(answer(page)).to_contain_text("Got it.")
    await wait_until_finished(page)
    assert [data for _, _, data in sent_files(site)] == [b"alone"]


async def test_a_file_over_the_limit_is_refused_before_sending(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await expect(page.locator("#model")).not_to_be_empty()
    await page.evaluate(
        "() => { const transfer = new DataTransfer();"
        "transfer.items.add(new File([new Uint8Array(20_000_000)], 'huge.bin', { type: 'application/octet-stream' }));"
        "document.getElementById('text').dispatchEvent(new ClipboardEvent('paste', { clipboardData: transfer })); }"
    )
    await expect(page.locator(".toast.error")).to_contain_text("huge.bin is too large")
    await expect(page.locator("#attached")).to_be_hidden()
