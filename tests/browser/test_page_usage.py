"""The usage view: plots of real turns, the same numbers as a table, and the window."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lango import Tool
from lango.config import HistorySettings
from lango.messages import ToolCall
from lango.providers import Finish, TextDelta, UsageDelta
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import Site, serving_script

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TURNS = 12
MODEL = "gpt-4o-mini"  # a model with a known price


async def read(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["path"] == "7":
        raise FileNotFoundError("there is no such file")
    return {"content": "line " * 20 * int(arguments["path"])}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A session that exceeds its budget, with tools, costs, and a rewound turn."""
    history = HistorySettings(max_message_token_budget=1_500)
    tools = [Tool("read_file", "Read a file.", SCHEMA, read)]
    async with serving_script(tmp_path_factory.mktemp("usage"), tools=tools, history=history) as site:
        for turn in range(1, TURNS + 1):
            call = ToolCall(f"c{turn}", "read_file", {"path": str(turn)})
            text = TextDelta(f"It has {turn} lines. " * turn)
            site.script.add(
                [call, UsageDelta(200 + 90 * turn, 30), Finish("tool_calls", model=MODEL)],
                [text, UsageDelta(300 + 90 * turn, 20 * turn), Finish("stop", model=MODEL)],
            )
            await site.runtime.run("long", f"What is in file {turn}?")
        site.script.add("hello")
        await site.runtime.run("short", "hi")
        await site.runtime.sessions.rewind("long", before=4 * (TURNS - 1) + 1)
        yield site


async def open_usage(page: Page, site: Site, session: str) -> None:
    await page.goto(f"{site.url}/#/s/{session}")
    await expect(page.get_by_role("article", name="Answer").last).to_be_visible()
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Usage").click()


async def test_the_usage_view_is_accessible_and_shows_tokens_window_cost_and_times(page: Page, site: Site) -> None:
    await open_usage(page, site, "long")
    panel = page.get_by_role("tabpanel", name="Usage")
    for title in ("Tokens per turn", "Cumulative cost", "Time per turn"):
        plot = panel.get_by_role("img", name=re.compile(title))
        await expect(plot.locator("canvas")).to_be_visible()
        await wait_until_painted(page, title)
    usage = await site.runtime.sessions.usage("long")
    window = usage.window
    assert window.left_out_messages
    await expect(panel.get_by_text(re.compile("The next request keeps"))).to_contain_text(
        f"keeps {window.messages} messages ({window.tokens:,} tokens) and leaves out "
        f"{window.left_out_messages} messages ({window.left_out_tokens:,} tokens). Budget: 1,500 tokens"
    )
    table = panel.get_by_role("table", name="Turns, newest first")
    await expect(table.locator("tbody tr")).to_have_count(TURNS)
    rows = await table.locator("tbody tr").all_inner_texts()
    newest, third = usage.turns[-1], usage.turns[2]
    assert rows[0].split("\t")[1:5] == ["rewound", *(f"{n:,}" for n in (newest.tokens, 2660, 270))]
    assert rows[-3].split("\t")[1:5] == ["done", *(f"{n:,}" for n in (third.tokens, 1040, 90))]
    assert third.usage.cost_usd
    assert f"${third.usage.cost_usd:.4f}" in rows[-3]
    await check_accessibility(page, "light", "dark")
    await wait_until_painted(page, "Tokens per turn")  # in the colours of the other scheme


PAINTED = """(title) => {
  const plot = [...document.querySelectorAll(".plot")].find((element) => element.ariaLabel.startsWith(title));
  const canvas = plot.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const accent = getComputedStyle(plot).getPropertyValue("--accent");
  const color = accent.match(/[0-9a-f]{2}/g).map((hex) => parseInt(hex, 16));
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (color.every((value, n) => data[at + n] === value) && data[at + 3] === 255) found += 1;
  }
  return found;
}"""


INSIDE = """() => {
  const canvas = [...document.querySelectorAll(".plot")]
    .find((element) => element.ariaLabel.startsWith("Tokens per turn")).querySelector("canvas");
  const box = canvas.getBoundingClientRect();
  const frame = canvas.closest("[role=tabpanel]").getBoundingClientRect();
  return frame.left <= box.left && box.right <= frame.right && frame.right <= 361;
}"""


async def wait_until_painted(page: Page, title: str) -> None:
    """Wait until a plot has bars or lines in the current accent colour; axes are grey."""
    await page.wait_for_function(f"(title) => ({PAINTED})(title) > 50", arg=title, polling=100)


async def test_a_turn_lists_its_model_and_tool_calls(page: Page, site: Site) -> None:
    await open_usage(page, site, "long")
    panel = page.get_by_role("tabpanel", name="Usage")
    await panel.get_by_role("button", name="Turn 7: show its calls").click()
    calls = panel.get_by_role("table", name="Calls of turn 7").locator("tbody tr")
    await expect(calls).to_have_count(3)
    rows = await calls.all_inner_texts()
    assert [row.split()[0] for row in rows] == ["model", "tool", "model"]
    assert "read_file" in rows[1]
    assert "failed" in rows[1]
    assert "gpt-4o-mini" in rows[2]
    assert re.search(r"\d (ms|s)\b", rows[2])


async def test_the_plots_follow_the_theme_and_the_width(page: Page, site: Site) -> None:
    await open_usage(page, site, "long")
    canvas = page.get_by_role("img", name=re.compile("Tokens per turn")).locator("canvas")
    await expect(canvas).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Theme")).click()
    await page.get_by_role("button", name=re.compile("^Theme")).click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await wait_until_painted(page, "Tokens per turn")
    await page.set_viewport_size({"width": 360, "height": 740})
    await expect(canvas).to_be_visible()
    await page.wait_for_function(INSIDE)  # the plot follows the new width


async def test_a_session_without_prices_is_reported(page: Page, site: Site) -> None:
    await open_usage(page, site, "short")
    panel = page.get_by_role("tabpanel", name="Usage")
    await expect(panel.get_by_text("No price is known for this model.")).to_be_visible()
    await expect(panel.get_by_text("Nothing is left out.")).to_be_visible()
