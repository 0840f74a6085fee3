"""Chat on the page: streamed answers, tools, approvals, stopping, and broken connections."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from lango import Tool
from lango.config import AgentSettings
from lango.messages import ToolCall
from lango.providers import Finish, TextDelta, ThoughtDelta, UsageDelta
from tests.browser.conftest import OpenPage
from tests.browser.lossy_proxy import lossy_proxy
from tests.browser.page_actions import answer, ask, send, session_id, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import FAILURE, PAUSE, TIMEOUT_S, Site, serving_script

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def measure(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["path"] == "missing":
        raise FileNotFoundError("there is no such file")
    return {"length": 42, "of": arguments["path"]}


TOOLS = [
    Tool("measure", "Measure a file.", SCHEMA, measure),
    Tool("erase", "Erase a file.", SCHEMA, measure, level="dangerous"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    agent = AgentSettings(retry_delay_s=0.01)
    async with serving_script(tmp_path_factory.mktemp("site"), tools=TOOLS, agent=agent) as site:
        yield site


MARKDOWN = """## Rivers

| River | Length |
| --- | ---: |
| Volga | 3,530 km |

1. one
2. **two**

```python
print("hello")
```

See [this](https://example.org/a)."""


async def test_markdown_is_rendered(page: Page, site: Site) -> None:
    site.script.add(MARKDOWN)
    await page.goto(site.url)
    await ask(page, "rivers, please", "See this.")
    newest = answer(page)
    await expect(newest.get_by_role("heading", name="Rivers")).to_be_visible()
    await expect(newest.get_by_role("cell", name="3,530 km")).to_have_css("text-align", "right")
    await expect(newest.get_by_role("listitem").nth(1).locator("strong")).to_have_text("two")
    await expect(newest.locator("pre code")).to_have_text('print("hello")\n')
    link = newest.get_by_role("link", name="this")
    await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(link).to_have_attribute("target", "_blank")


ARABIC = """مرحبا `code` بالعالم

- واحد

```text
plain
```

Latin"""


async def test_arabic_runs_from_right_to_left_and_the_text_around_it_does_not(page: Page, site: Site) -> None:
    site.script.add(ARABIC)
    await page.goto(site.url)
    box = page.get_by_role("textbox", name="Message")
    await box.fill("مرحبا")
    await expect(box).to_have_css("direction", "rtl")
    await ask(page, "مرحبا", "Latin")
    newest = answer(page)
    await expect(newest.locator("p").first).to_have_css("direction", "rtl")
    await expect(newest.locator("li")).to_have_css("direction", "rtl")
    await expect(newest.locator("pre")).to_have_css("direction", "ltr")
    await expect(newest.locator("p").last).to_have_css("direction", "ltr")
    await expect(page.locator(".bubble").last).to_have_css("unicode-bidi", "plaintext")


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FORMULAS = rf"""Inline $a_1 * b_2 * c$ and \(x_{{1}} < y_{{2}}\) and $$e = m_0 c^2$$, but it costs $5 or $10 *now*.

\[
a_1
- b_2
\]

No TeX: $\frac{{1$, and a link: $\href{{javascript:alert(1)}}{{x}}$.

![a dot](data:image/png;base64,{DOT})

| {" | ".join(f"column{number}" for number in range(20))} |
|{"---|" * 20}
| {" | ".join(["some words"] * 20)} |

done"""


async def test_formulas_are_drawn_pictures_in_the_text_are_shown_and_wide_tables_scroll(page: Page, site: Site) -> None:
    site.script.add(FORMULAS)
    await page.goto(site.url)
    await ask(page, "formulas", "done")
    newest = answer(page)
    sources = newest.locator("math annotation")
    for _ in ("as it happens", "after a reload"):
        await expect(sources).to_have_text(
            ["a_1 * b_2 * c", "x_{1} < y_{2}", "e = m_0 c^2", "a_1 - b_2", "\\href{javascript:alert(1)}{x}"]
        )
        await expect(newest.locator("math msub")).to_have_count(7)
        await expect(newest.locator(".formula-block math")).to_have_attribute("display", "block")
        await expect(newest).to_contain_text("but it costs $5 or $10 now.")
        await expect(newest).to_contain_text("No TeX: $\\frac{1$, and")
        await expect(newest.get_by_role("link")).to_have_count(0)
        await page.reload()
    await check_accessibility(page)
    picture = newest.get_by_role("img", name="a dot")
    await expect(picture).to_be_visible()
    assert await picture.evaluate("(image) => image.naturalWidth") == 1
    table = newest.get_by_role("group", name="Table")
    assert await table.evaluate("(frame) => frame.scrollWidth > frame.clientWidth")
    height = await table.get_by_role("cell").first.evaluate("(cell) => cell.clientHeight")
    assert height < 50, "a cell with two words has one line"


async def test_a_key_lays_out_no_message_that_is_not_shown(page: Page, tmp_path: Path) -> None:
    async def objects_per_key(messages: int) -> int:
        """Return how many objects the browser visits for a key in a conversation of so many messages."""
        for _ in range(messages // 2):
            await site.runtime.run(f"m{messages}", "a question")
        await page.goto(f"{site.url}/#/s/m{messages}")
        await expect(page.get_by_role("article")).to_have_count(messages)
        await expect(page.locator(".turn.was-drawn")).to_have_count(messages)
        trace: Any = await page.context.new_cdp_session(page)
        events: list[dict[str, Any]] = []
        ended = asyncio.Event()

        def collect(data: dict[str, Any]) -> None:
            events.extend(data["value"])

        def end(_: dict[str, Any]) -> None:
            ended.set()

        trace.on("Tracing.dataCollected", collect)
        trace.on("Tracing.tracingComplete", end)
        categories = {"includedCategories": ["devtools.timeline"]}
        await trace.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
        await page.get_by_role("textbox", name="Message").press_sequentially("a few words")
        await trace.send("Tracing.end")
        await ended.wait()
        counts = [one["args"]["beginData"]["totalObjects"] for one in events if one["name"] == "Layout"]
        assert counts
        return max(counts)

    text = "\n\n".join(["A paragraph with `code` and *words*."] * 40)
    async with serving_script(tmp_path, [text] * 30) as site:
        few, many = await objects_per_key(10), await objects_per_key(50)
        assert many < 1.5 * few
        await page.goto("about:blank")  # before the server stops: the page would reconnect


async def test_code_and_answers_can_be_copied(page: Page, site: Site) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    site.script.add(MARKDOWN)
    await page.goto(site.url)
    await ask(page, "rivers", "See this.")
    await page.get_by_role("button", name="Copy the code").click()
    await page.wait_for_function("navigator.clipboard.readText().then((text) => text === 'print(\"hello\")\\n')")
    await page.get_by_role("button", name="Copy the answer").click()
    await page.wait_for_function("navigator.clipboard.readText().then((text) => text.startsWith('## Rivers'))")
    assert await page.evaluate("navigator.clipboard.readText()") == MARKDOWN


async def test_growing_text_keeps_the_elements_already_rendered(page: Page, site: Site) -> None:
    site.script.add([TextDelta(f"First part.\n\n- a\n- b{PAUSE} and more\n\nLast part."), Finish("stop")])
    await page.goto(site.url)
    await send(page, "grow")
    item = answer(page).get_by_role("listitem").last
    await expect(item).to_have_text("b")
    await page.evaluate("window.kept = [...document.querySelectorAll('.answer li, .answer p')].slice(0, 3)")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("Last part.")
    await wait_until_finished(page)
    assert await page.evaluate("window.kept.length === 3 && window.kept.every((element) => element.isConnected)")
    await expect(answer(page).get_by_role("listitem").last).to_have_text("b and more")


async def test_enter_sends_and_shift_enter_adds_a_line(page: Page, site: Site) -> None:
    site.script.add("two lines")
    await page.goto(site.url)
    box = page.get_by_role("textbox", name="Message")
    await box.press_sequentially("one")
    await box.press("Shift+Enter")
    await box.press_sequentially("two")
    await box.press("Enter")
    await expect(answer(page)).to_contain_text("two lines")
    assert site.provider.requests[-1].messages[-1].content == "one\ntwo"
    await expect(box).to_have_value("")
    await expect(box).to_be_focused()


async def test_withdrawn_text_disappears_and_the_turn_shows_that_it_was_resumed(page: Page, site: Site) -> None:
    site.script.add(
        [ThoughtDelta("too early"), TextDelta(f"**Half** of it{PAUSE}{FAILURE}"), Finish("stop")],
        [TextDelta("The whole answer."), UsageDelta(3, 2), Finish("stop")],
    )
    await page.goto(site.url)
    await send(page, "answer me")
    await expect(answer(page)).to_contain_text("Half of it")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("The whole answer.")
    await wait_until_finished(page)
    await expect(answer(page)).not_to_contain_text("Half of it")
    await expect(page.get_by_text("Thoughts")).to_have_count(0)
    notice = r"Resumed .+: the provider or the store failed\.$"
    await expect(answer(page).get_by_text(re.compile(f"^{notice}"))).to_be_visible()
    await page.reload()
    await expect(answer(page)).to_contain_text("The whole answer.")
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Usage").click()
    await expect(page.get_by_role("cell", name="done, resumed")).to_be_visible()
    await expect(page.get_by_text(re.compile(f"^Turn 1: {notice}"))).to_be_visible()


async def test_thoughts_are_collapsed(page: Page, site: Site) -> None:
    site.script.add([ThoughtDelta("they greet me"), TextDelta("Hello!"), UsageDelta(3, 2), Finish("stop")])
    await page.goto(site.url)
    await ask(page, "hi", "Hello!")
    for _ in ("streamed", "stored"):
        await expect(page.get_by_text("they greet me")).to_be_hidden()
        await page.get_by_text("Thoughts").click()
        await expect(page.get_by_text("they greet me")).to_be_visible()
        await page.reload()
    await expect(answer(page)).to_contain_text("3 tokens in, 2 out")


async def test_a_tool_call_opens_to_its_arguments_and_its_result(page: Page, site: Site) -> None:
    site.script.add(["I look.", ToolCall("c1", "measure", {"path": "a.txt"})], "It is 42 long.")
    await page.goto(site.url)
    await ask(page, "how long?", "It is 42 long.")
    card = answer(page).locator(".tool-card")
    await expect(card).to_have_attribute("data-status", "done")
    await expect(card.get_by_text('"length": 42')).to_be_hidden()
    await card.locator("summary").click()
    await expect(card.get_by_label("Arguments")).to_have_text('{\n  "path": "a.txt"\n}')
    await expect(card.get_by_label("Result")).to_contain_text('"length": 42')
    assert await answer(page).inner_text() != "", "text, tool and text in their order"
    order = [await part.get_attribute("class") for part in await answer(page).locator(".answer-body > *").all()]
    assert order == ["text", "tool-card", "text"]
    await page.reload()
    await expect(answer(page)).to_contain_text("It is 42 long.")
    again = [await part.get_attribute("class") for part in await answer(page).locator(".answer-body > *").all()]
    assert again == order, "stored and streamed answers look alike"


async def test_the_trace_lists_tool_calls_and_leads_to_them(open_page: OpenPage, site: Site) -> None:
    page = await open_page(viewport={"width": 1280, "height": 500})
    call = ToolCall("c2", "measure", {"path": "missing"})
    site.script.add(
        [ToolCall("c1", "measure", {"path": "b.txt"}), call], "One of them is not there." + "\n\nLine." * 40
    )
    await page.goto(site.url)
    await ask(page, "both", "One of them is not there.")
    await page.get_by_role("button", name="Details of this conversation").click()
    panel = page.get_by_role("complementary", name="Details of this conversation")
    await expect(panel.get_by_role("tab", name="Trace")).to_have_attribute("aria-selected", "true")
    failed = panel.get_by_role("listitem").filter(has_text="measure").filter(has_text="failed")
    await failed.get_by_role("button").click()
    card = answer(page).locator(".tool-card").nth(1)
    await expect(card).not_to_be_in_viewport()
    await failed.get_by_role("button", name="Show in the conversation").click()
    await expect(card.get_by_label("Error")).to_be_in_viewport()
    await page.keyboard.press("Alt+d")
    await expect(panel).to_be_hidden()
    await page.set_viewport_size({"width": 390, "height": 500})
    await page.get_by_role("button", name="Details of this conversation").click()
    await panel.get_by_role("button", name=re.compile("Agent")).click()
    await panel.get_by_role("button", name=re.compile("Model call")).last.click()
    await panel.get_by_role("button", name="Show in the conversation").last.click()
    await expect(panel).to_be_hidden()
    await expect(answer(page)).to_have_class(re.compile("found"))


async def test_an_approved_dangerous_tool_runs_with_exactly_the_shown_arguments(page: Page, site: Site) -> None:
    site.script.add(["I must ask.", ToolCall("c1", "erase", {"path": "<b>/etc"})], "Erased.")
    await page.goto(site.url)
    await send(page, "erase it")
    request = page.get_by_role("group", name="May erase run?")
    await expect(request.get_by_label("Arguments")).to_have_text('{\n  "path": "<b>/etc"\n}')
    await wait_until_finished(page)
    await page.reload()
    await request.get_by_role("button", name="Approve").click()
    await expect(answer(page)).to_contain_text("Erased.")
    await wait_until_finished(page)
    await expect(answer(page)).to_contain_text("I must ask.")
    card = answer(page).locator(".tool-card")
    await expect(card).to_have_count(1)
    await card.locator("summary").click()
    await expect(card.get_by_label("Result")).to_contain_text('"length": 42')
    await expect(card).to_contain_text("Approved by")


async def test_a_refused_tool_does_not_run(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "erase", {"path": "all"}), "Then I leave it.")
    await page.goto(site.url)
    await send(page, "erase all")
    await page.get_by_role("button", name="Refuse").click()
    await expect(answer(page)).to_contain_text("Then I leave it.")
    await wait_until_finished(page)
    await expect(answer(page).locator(".tool-card")).to_have_attribute("data-status", "refused")


async def test_escape_stops_the_answer_and_keeps_what_arrived(page: Page, site: Site) -> None:
    site.script.add([TextDelta(f"It begins{PAUSE} and never ends"), Finish("stop")])
    await page.goto(site.url)
    await send(page, "long one")
    await expect(answer(page)).to_contain_text("It begins")
    await page.keyboard.press("Escape")
    await expect(answer(page)).to_contain_text("Stopped.")
    await expect(answer(page)).to_contain_text("It begins")
    await wait_until_finished(page)


async def test_a_reload_during_an_answer_continues_it(page: Page, site: Site) -> None:
    site.script.add(
        ["Before the tool. ", ToolCall("c1", "measure", {"path": "c.txt"})],
        [TextDelta(f"This is the first half{PAUSE}, this the second."), UsageDelta(9, 4), Finish("stop")],
    )
    await page.goto(site.url)
    await send(page, "tell me")
    await expect(answer(page)).to_contain_text("the first half")
    await page.reload()
    await expect(answer(page)).to_contain_text("the first half")
    await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("the first half, this the second.")
    await wait_until_finished(page)
    await expect(page.get_by_role("article", name="You")).to_have_count(1)
    await expect(answer(page).locator(".answer-body > .text")).to_have_count(2)
    await expect(answer(page).locator(".tool-card")).to_have_count(1)
    await expect(answer(page)).to_contain_text("9 tokens in")


async def test_a_reload_continues_an_answer_that_never_pauses(page: Page, tmp_path: Path) -> None:
    pieces = [TextDelta(f"w{number} ") for number in range(500)]
    async with serving_script(tmp_path, [[*pieces, Finish("stop")]], chunk_delay_s=0.04) as site:
        await page.goto(site.url)
        await send(page, "go on and on")
        await expect(answer(page)).to_contain_text("w5 ")
        await page.reload()
        await expect(answer(page)).to_contain_text("w0 w1 ")
        await page.get_by_role("button", name="Stop the answer").click()
        await expect(answer(page)).to_contain_text("Stopped.")
        words = (await answer(page).locator(".text").inner_text()).split()
        assert words == [f"w{number}" for number in range(len(words))], "no piece is repeated or missing"
        await page.goto("about:blank")


async def test_an_answer_that_ends_while_the_page_loads_is_shown(page: Page, site: Site) -> None:
    site.script.add([TextDelta(f"It begins{PAUSE}, it ends."), Finish("stop")])
    await page.goto(site.url)
    await send(page, "tell me")
    await expect(answer(page)).to_contain_text("It begins")
    connecting, turn_ended = asyncio.Event(), asyncio.Event()

    async def delay(route: Route) -> None:
        connecting.set()  # the stored messages are read before
        await turn_ended.wait()
        await route.continue_()

    await page.route("**/v1/live?**", delay)
    await page.reload()
    await connecting.wait()
    site.provider.resume.set()
    async with httpx.AsyncClient(base_url=site.url, timeout=TIMEOUT_S) as client:
        assert "it ends" in (await client.get(f"/v1/sessions/{session_id(page)}/stream")).text
    turn_ended.set()
    await expect(answer(page)).to_contain_text("It begins, it ends.")
    await wait_until_finished(page)
    await expect(answer(page).locator(".text")).to_have_count(1)


async def test_a_lost_connection_is_shown_and_the_answer_continues(
    page: Page, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("net::ERR_")
    site.script.add([TextDelta(f"one{PAUSE} two{PAUSE} three."), Finish("stop")])
    async with lossy_proxy(site.url) as proxy:
        await page.goto(proxy.url)
        await send(page, "count")
        await expect(answer(page)).to_contain_text("one")
        proxy.disconnect()
        await proxy.refused.wait()
        await expect(page.get_by_text("Connection lost. Reconnecting")).to_be_visible()
        site.provider.resume.set()
        proxy.reconnect()
        await expect(answer(page)).to_contain_text("one two")
        await expect(page.get_by_text("Connection lost")).to_be_hidden()
        site.provider.resume.set()
        await expect(answer(page)).to_contain_text("one two three.")
        await wait_until_finished(page)
        await expect(answer(page).locator(".answer-body")).to_have_text("one two three.")
        await page.goto("about:blank")


async def test_a_message_written_offline_is_sent_once_when_the_connection_is_back(
    page: Page, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("net::ERR_")
    site.script.add("first", "It came.")
    async with lossy_proxy(site.url) as proxy:
        await page.goto(proxy.url)
        await ask(page, "are you there?", "first")
        proxy.disconnect()
        await send(page, "and now?")
        await proxy.refused.wait()
        proxy.reconnect()
        await expect(answer(page)).to_contain_text("It came.")
        await wait_until_finished(page)
        await page.goto("about:blank")
    messages = site.provider.requests[-1].messages
    assert [message.content for message in messages if message.role == "user"] == ["are you there?", "and now?"]


async def test_the_address_identifies_the_conversation(page: Page, site: Site) -> None:
    site.script.add("Kept.", "Another.")
    await page.goto(site.url)
    await ask(page, "keep this", "Kept.")
    first = session_id(page)
    await page.get_by_role("button", name="New conversation", exact=True).click()
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await ask(page, "a new one", "Another.")
    assert session_id(page) != first
    await page.go_back()
    await page.go_back()
    await expect(answer(page)).to_contain_text("Kept.")
    assert session_id(page) == first


async def test_drafts_survive_a_reload_and_another_conversation(page: Page, site: Site) -> None:
    site.script.add("Sent.")
    await page.goto(site.url)
    box = page.get_by_role("textbox", name="Message")
    await box.fill("half a thou")
    await page.reload()
    await expect(box).to_have_value("half a thou")
    await ask(page, "a whole thought", "Sent.")
    await page.get_by_role("button", name="New conversation", exact=True).click()
    await expect(box).to_have_value("")


async def test_a_missing_conversation_is_reported(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("404")
    await page.goto(f"{site.url}/#/s/nowhere")
    await expect(page.get_by_text("There is no session 'nowhere'")).to_be_visible()
    await expect(page.get_by_role("button", name="Try again")).to_be_visible()


async def test_a_full_server_shows_the_place_in_the_queue(page: Page, tmp_path: Path) -> None:
    async with serving_script(tmp_path, agent=AgentSettings(max_running_turns=1)) as site:
        site.script.add([TextDelta(f"It begins{PAUSE}, it ends."), Finish("stop")], "Hello.")
        other = await site.runtime.submit("other", "hold the server")
        await page.goto(site.url)
        await send(page, "hello")
        await expect(answer(page)).to_contain_text("number 1 in the queue")
        site.provider.resume.set()
        await expect(answer(page)).to_contain_text("Hello.")
        await wait_until_finished(page)
        await expect(answer(page)).not_to_contain_text("in the queue")
        await other.wait()
        await page.goto("about:blank")
