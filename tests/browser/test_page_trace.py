"""The trace and state views, and the comparison of a fork with its original."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango import Tool
from lango.config import TraceSettings
from lango.messages import ToolCall
from lango.providers import Finish, TextDelta, UsageDelta
from lango.runtime.sessions.session_state import change_state
from lango.sessions import SessionId
from tests.browser.conftest import OpenPage
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import PAUSE, Site, serving_script
from tests.support.runtimes import store_of

_MARKUP = "<img src=x onerror=alert(1)>"
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
MODEL = "gpt-4o-mini"  # a model with a known price


async def read(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["path"] == "nothing":
        raise FileNotFoundError(f"there is no such file {_MARKUP}")
    return {"content": "x" * 50_000 if arguments["path"] == "long" else _MARKUP}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A session with tools, state and a fork, whose requests are kept."""
    tools = [Tool("read_file", "Read a file.", _SCHEMA, read)]
    trace = TraceSettings(requests=True)
    async with serving_script(tmp_path_factory.mktemp("trace"), tools=tools, trace=trace) as site:
        calls = [ToolCall("c1", "read_file", {"path": "long"}), ToolCall("c2", "read_file", {"path": "nothing"})]
        site.script.add(
            [*calls, UsageDelta(1200, 30, 800), Finish("tool_calls", model=MODEL)],
            [TextDelta(f"It is long. {_MARKUP}"), UsageDelta(2300, 20), Finish("stop", model=MODEL)],
            [TextDelta("You are welcome."), UsageDelta(2400, 5), Finish("stop", model=MODEL)],
        )
        await site.runtime.run("s", "What is in the files?")
        await site.runtime.run("s", f"Thank you {_MARKUP}")
        name = SessionId(site.runtime.app_name, "user", "s")
        await change_state(store_of(site.runtime), name, {"city": "Bern", "user:language": "de", "markup": _MARKUP}, ())
        await change_state(store_of(site.runtime), name, {"city": "Graz"}, ())
        await site.runtime.sessions.fork("s", at=4, new_id="fork", title="Another way")
        site.script.add([TextDelta("No problem."), UsageDelta(2390, 3), Finish("stop", model=MODEL)])
        await site.runtime.run("fork", "Thanks a lot")
        yield site


async def open_details(page: Page, site: Site, session: str, tab: str) -> None:
    await page.goto(f"{site.url}/#/s/{session}")
    await expect(page.get_by_role("article", name="Answer").last).to_be_visible()
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name=tab).click()


async def test_a_step_opens_to_its_request_and_its_event(page: Page, site: Site) -> None:
    await page.goto(f"{site.url}/#/s/s")
    await page.get_by_role("button", name="Trace of this answer").first.click()
    panel = page.get_by_role("tabpanel", name="Trace")
    steps = panel.get_by_role("list", name="Steps of turn 1")
    await expect(steps.get_by_role("button")).to_have_text(
        [
            re.compile(text)
            for text in (
                "Agent.*lango",
                "Model call.*1,200 \\(800 cached\\) in",
                "Tool.*read_file",
                "Tool.*read_file.*failed",
                "Model call",
            )
        ]
    )
    await steps.get_by_role("button", name=re.compile("Model call")).first.click()
    await panel.get_by_text("What was sent, what came back").click()
    await expect(panel.get_by_role("list", name="Messages").get_by_role("listitem")).to_contain_text("in the files?")
    await expect(panel.get_by_label("Calls read_file").first).to_contain_text('"path": "long"')
    await panel.get_by_text("2 tools: read_result, read_file").click()
    await expect(panel.get_by_label("Parameters").last).to_contain_text('"required"')
    await panel.get_by_text("Request as JSON").click()
    await expect(panel.get_by_label("Request as JSON", exact=True)).to_contain_text(
        '"content": "What is in the files?"'
    )
    await steps.get_by_role("button", name=re.compile("Model call")).first.click()
    await steps.get_by_role("button", name=re.compile("Model call")).last.click()
    await panel.get_by_text("What was sent, what came back").click()
    await expect(panel.get_by_text("Since the request before: 2 new messages")).to_be_visible()
    await expect(panel.get_by_role("list", name="New messages").get_by_role("listitem")).to_have_count(2)
    await expect(panel.get_by_label("Answer", exact=True)).to_contain_text("It is long. <img")
    await check_accessibility(page, "light", "dark")
    await steps.get_by_role("button", name=re.compile("Model call")).last.click()
    await steps.get_by_role("button", name=re.compile("Model call")).first.click()
    await panel.get_by_text("Message 2 as stored").click()
    await expect(panel.get_by_label("Message 2 as stored", exact=True)).to_contain_text('"prompt_token_count": 1200')
    await steps.get_by_role("button", name=re.compile("Tool")).first.click()
    await panel.get_by_text("Message 3, with the result, as stored").click()
    await panel.get_by_role("button", name=re.compile("Show all")).click()
    await expect(panel.get_by_label("Message 3, with the result, as stored", exact=True)).to_contain_text(
        "no such file <img"
    )
    await check_accessibility(page)


async def test_a_running_turn_is_shown_live(page: Page, site: Site) -> None:
    site.script.add([ToolCall("c9", "read_file", {"path": "a"})], f"half{PAUSE} and the rest")
    turn = await site.runtime.submit("live", "go")
    await expect(page.locator("body")).to_be_attached()
    await open_details(page, site, "live", "Trace")
    steps = page.get_by_role("list", name="Steps of turn 1")
    running = steps.locator('li[data-status="running"]').filter(has_text="Model call")
    await expect(running).to_have_count(1)
    site.provider.resume.set()
    async for _ in turn.follow():
        pass
    await expect(running).to_have_count(0)
    await expect(steps.get_by_role("button")).to_have_count(4)


async def test_the_state_is_shown_at_any_message_and_set(page: Page, site: Site) -> None:
    await open_details(page, site, "s", "State")
    panel = page.get_by_role("tabpanel", name="State")
    await expect(panel.get_by_label("city", exact=True)).to_have_text('"Graz"')
    await expect(panel.get_by_label("markup", exact=True)).to_have_text(f'"{_MARKUP}"')
    await expect(panel.get_by_role("listitem").first).to_contain_text('city "Bern" → "Graz"')
    await panel.get_by_label("Name", exact=True).fill("size")
    await panel.get_by_label("Value, as JSON or text").fill("[1, 2]")
    await panel.get_by_role("button", name="Set", exact=True).click()
    await expect(panel.get_by_role("listitem").first).to_contain_text("size [1,2]")
    await panel.get_by_role("button", name="after message 6").first.click()
    await expect(panel.get_by_text("The state at message 6.")).to_be_visible()
    await check_accessibility(page)


async def test_a_fork_is_compared_with_its_original(open_page: OpenPage, site: Site) -> None:
    page = await open_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    await page.goto(f"{site.url}/#/s/fork")
    await expect(page.get_by_text("No problem.")).to_be_visible()
    await page.get_by_role("button", name="Actions for this conversation").click()
    await page.get_by_role("menuitem", name="Compare with the original").click()
    rows = page.get_by_role("dialog", name="Compare runs").locator("tbody tr")
    await expect(rows).to_have_count(10)
    texts = [await row.locator("td").all_inner_texts() for row in await rows.all()]
    assert texts[0] == [f"Thank you {_MARKUP}", "Thanks a lot"]
    assert texts[1] == [MODEL, MODEL]
    assert all(text.startswith("You are a helpful assistant.") for text in texts[2])
    assert texts[4] == ["You are welcome.", "No problem."]
    await check_accessibility(page)
