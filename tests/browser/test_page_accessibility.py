"""Accessibility of the page: axe in light and dark, keyboard, screen readers, a phone, and the key dialog."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango import Tool
from lango.config import ServerSettings
from lango.errors import ProviderRejected
from lango.messages import ToolCall
from lango.providers import Finish, TextDelta, ThoughtDelta
from tests.agents.parts import add_api_key
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, ask, send, session_id, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import PAUSE, Site, serving_script
from tests.support.runtimes import store_of

SENT_SCRIPTS = """performance.getEntriesByType("resource")
    .filter((entry) => entry.name.endsWith(".js") && entry.transferSize > 0).map((entry) => entry.name)"""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
RICH = """# Title

Some **words**, a [link](https://example.org), `code` and a list:

- one
- two

> quoted

| a | b |
| --- | --- |
| 1 | 2 |

```python
print("hello")
```
"""


async def finish(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"done": arguments["path"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    tools = [Tool("look", "Look.", SCHEMA, finish), Tool("wipe", "Wipe.", SCHEMA, finish, level="dangerous")]
    async with serving_script(tmp_path_factory.mktemp("site"), tools=tools) as site:
        yield site


@pytest.mark.parametrize(("width", "schemes"), [(1280, ("light", "dark")), (390, ("light",))], ids=["desktop", "phone"])
async def test_axe_finds_no_violations(
    open_page: OpenPage, site: Site, width: int, schemes: tuple[Literal["light", "dark"], ...]
) -> None:
    page = await open_page(viewport={"width": width, "height": 800})
    site.script.add([ThoughtDelta("hm"), TextDelta(RICH), Finish("stop")])
    site.script.add(ToolCall("c1", "look", {"path": "a"}), ToolCall("c2", "wipe", {"path": "b"}))
    site.script.add(ProviderRejected("it does not want to", provider="scripted", status=400))
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await check_accessibility(page, *schemes)
    await ask(page, "show me", "quoted")
    await send(page, "now the tools")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await wait_until_finished(page)
    await answer(page).locator("summary").first.click()
    await check_accessibility(page, *schemes)
    await check_inbox(page, *schemes)
    await page.get_by_role("button", name="Always").click()
    await page.get_by_role("menuitem", name="Always for wipe in this conversation").click()
    await expect(answer(page)).to_contain_text("It does not want to")
    for text in ("one", "two"):
        await site.runtime.artifacts.save(session_id(page), "notes/today.txt", text)
    await page.get_by_role("button", name="Details of this conversation").click()
    for tab in ("Trace", "Usage", "Memory"):
        await page.get_by_role("tab", name=tab).click()
        await check_accessibility(page, *schemes)
    await page.get_by_role("tab", name="Grants").click()
    await expect(page.get_by_role("list", name="Grants")).to_contain_text("whatever the arguments")
    await check_accessibility(page, *schemes)
    await page.get_by_role("tab", name="Artifacts").click()
    await page.get_by_role("button", name="All versions").click()
    await expect(page.get_by_role("list", name="Versions of notes/today.txt").get_by_role("listitem")).to_have_count(2)
    await check_accessibility(page, *schemes)
    await page.get_by_role("button", name="Close the details").click()
    await page.get_by_role("button", name="Actions for this conversation").click()
    await expect(page.get_by_role("menu")).to_be_visible()
    await check_accessibility(page, *schemes)
    await page.get_by_role("menuitem", name="Delete").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await check_accessibility(page, *schemes)
    await page.get_by_role("button", name="Cancel").click()


async def check_inbox(page: Page, *schemes: Literal["light", "dark"]) -> None:
    """Check the inbox with a request in it."""
    if await page.get_by_role("button", name="Open the list").is_visible():
        await page.get_by_role("button", name="Open the list").click()
    await page.locator("#inbox").click()
    inbox = page.get_by_role("dialog", name="Inbox")
    await expect(inbox.get_by_role("group", name="May wipe run?").first).to_be_visible()
    await check_accessibility(page, *schemes)
    await inbox.get_by_role("button", name="Close").click()
    await expect(page.locator("#inbox")).to_be_focused()
    await page.keyboard.press("Escape")


async def test_every_control_is_reachable_by_keyboard(page: Page, site: Site) -> None:
    site.script.add("Hello.")
    await page.goto(site.url)
    await page.keyboard.press("Alt+k")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.press("Alt+n")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await ask(page, "hi", "Hello.")
    await page.get_by_role("button", name="Actions for this conversation").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete the conversation?")
    await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await expect(answer(page)).to_be_visible()
    await page.get_by_role("main").focus()
    await page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Help")
    await expect(help_.get_by_role("row", name="Shift + Enter")).to_contain_text("New line")
    await page.keyboard.press("Escape")
    await expect(help_).to_be_hidden()


async def test_arrow_up_in_an_empty_box_edits_the_last_message(page: Page, site: Site) -> None:
    site.script.add("Hello.")
    await page.goto(site.url)
    await ask(page, "hallo", "Hello.")
    await page.keyboard.press("ArrowUp")
    box = page.get_by_role("textbox", name="Change your message")
    await expect(box).to_be_focused()
    await expect(box).to_have_value("hallo")
    await page.keyboard.press("Escape")
    await expect(box).to_be_hidden()


async def test_screen_readers_are_given_whole_blocks(page: Page, site: Site) -> None:
    text = "\n\n".join(f"Paragraph {number} has a few words." for number in range(4))
    pieces = [TextDelta(text[at : at + 5]) for at in range(0, len(text), 5)]
    site.script.add([*pieces, TextDelta(f"{PAUSE}\n\nThe end."), Finish("stop")])
    await page.goto(site.url)
    await page.evaluate(
        "window.announced = []; const region = document.getElementById('announcements');"
        "new MutationObserver((records) => records.forEach((record) => record.addedNodes.forEach("
        "(node) => window.announced.push(node.textContent)))).observe(region, {childList: true})"
    )
    await send(page, "speak")
    await expect(answer(page)).to_contain_text("Paragraph 3")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("The end.")
    await wait_until_finished(page)
    announced = await page.evaluate("window.announced")
    assert " ".join(" ".join(announced).split()) == " ".join(f"{text} The end.".split())
    assert len(announced) <= 6, "one announcement per block"


async def test_approval_requests_and_errors_are_announced_at_once(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "wipe", {"path": "b"}))
    site.script.add(ProviderRejected("it does not want to", provider="scripted", status=400))
    await page.goto(site.url)
    await send(page, "wipe")
    await expect(page.get_by_role("alert")).to_have_text("The tool wipe waits for your approval.")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("alert")).to_have_text("it does not want to")


async def test_on_a_phone_the_list_is_a_drawer_and_nothing_overflows(open_page: OpenPage, site: Site) -> None:
    page = await open_page(viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    site.script.add(f"{RICH}\n\n{'long' * 60}\n\n| {' | '.join('wide' * 4 for _ in range(9))} |\n|{'---|' * 9}\n")
    await page.goto(site.url)
    await ask(page, "x" * 150, "quoted")
    assert await page.evaluate("document.scrollingElement.scrollWidth") <= 360
    assert await page.evaluate("document.getElementById('main').scrollWidth") <= 360
    side = page.get_by_role("navigation", name="Conversations")
    await expect(side).to_be_hidden()
    await page.get_by_role("button", name="Open the list").click()
    await expect(side).to_be_visible()
    await expect(page.get_by_role("button", name="Close the list")).to_be_focused()
    await check_accessibility(page)
    await page.keyboard.press("Escape")
    await expect(side).to_be_hidden()
    await page.get_by_role("button", name="Open the list").click()
    await side.get_by_role("button", name="New conversation").click()
    await expect(side).to_be_hidden()


async def test_the_theme_follows_the_system_until_the_user_chooses_one(open_page: OpenPage, site: Site) -> None:
    page = await open_page(color_scheme="dark")
    await page.goto(site.url)
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    await page.get_by_role("button", name="Theme: auto").click()
    light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    await page.reload()
    await expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert await page.evaluate(SENT_SCRIPTS) == [], "the browser has kept the modules"
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    await page.get_by_role("button", name="Theme: light").click()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


async def test_the_page_asks_for_an_api_key_and_keeps_it_in_this_tab_only(
    open_page: OpenPage, tmp_path: Path, monitor: PageMonitor
) -> None:
    monitor.expect("401")
    keyed = ServerSettings(port=0, drain_s=0.1, auth="keys")
    async with serving_script(tmp_path, ["Welcome, Alice."], server=keyed) as site:
        _, secret = await add_api_key(store_of(site.runtime), "alice")
        page = await open_page()
        await page.goto(site.url)
        dialog = page.get_by_role("dialog", name="API key")
        await dialog.get_by_label("Key").fill("not a key")
        await page.keyboard.press("Enter")
        await expect(dialog).to_contain_text("rejected this key")
        await check_accessibility(page)
        await dialog.get_by_label("Key").fill(secret)
        await page.keyboard.press("Enter")
        await expect(dialog).to_be_hidden()
        await ask(page, "hello", "Welcome, Alice.")
        session = session_id(page)
        await page.reload()
        await expect(answer(page)).to_contain_text("Welcome, Alice.")
        assert await page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
        other = await page.context.new_page()
        await other.goto(f"{site.url}/#/s/{session}")
        await expect(other.get_by_role("dialog", name="API key")).to_be_visible()
        for tab in (page, other):
            await tab.goto("about:blank")  # before the server stops: the pages would reconnect
