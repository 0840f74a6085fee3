"""Screenshots for the docs: `make pictures` takes them; else their content and size are checked."""

import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, ViewportSize, expect

from lango import Tool
from lango.config import AgentSettings, HistorySettings
from lango.history import count_tokens
from lango.messages import ToolCall
from lango.providers import Finish, Request, TextDelta, UsageDelta
from lango.testing import Answer, Entry
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import ask, send, session_id, wait_until_finished
from tests.browser.site import Site, serving_script

IMAGES = Path(__file__).parents[2] / "docs" / "images"
RECORDING = bool(os.environ.get("LANGO_PICTURES"))
VIEW = ViewportSize(width=1200, height=800)
SCALE = 1.5
MODEL = "gpt-4o-mini"  # a model with a known price

OTHER_SESSIONS = {
    "trip": ("Three days in Lisbon with a toddler", "A plan with short walks and long lunches."),
    "names": ("Names for a sourdough starter", "Clint Yeastwood."),
    "contract": ("What does clause 7 of the lease mean?", "You may sublet with consent."),
}
LOG = {
    "log": "checkout 1840 ms, search 310 ms, login 95 ms",
    "lines": 48211,
}
ANSWER = """**Checkout** was the slowest by far. The 95th percentile of yesterday, from 48,211 requests:

| Service | p95 | Day before |
| --- | ---: | ---: |
| checkout | 1,840 ms | 420 ms |
| search | 310 ms | 305 ms |
| login | 95 ms | 97 ms |

It went up at 14:05, with the deploy. One query has no index any more:

```sql
CREATE INDEX CONCURRENTLY orders_customer ON orders (customer_id, created_at DESC);
```
"""
WEEK = (
    "Orders went up by four per cent, most of them from returning customers.",
    "Two outages, of six and of eleven minutes; both began with a full disk on the build machine.",
    "The new checkout is with a tenth of all visitors since Tuesday, and loses fewer of them on the last step.",
    "Support answered within three hours at the median, and the backlog is the smallest since March.",
    "Open: the contract with the second carrier, and who is on call over the holidays.",
    "Next week: move search to the new cluster, and read the numbers again on Thursday.",
)
QUESTION = "Which service was slowest yesterday, and what would you try first?"
REPORT_TURNS = [
    (f"What stands in the report of week {number}?", f"**Week {number}.** {' '.join(WEEK[: 2 + number % 5])}")
    for number in range(37, 47)
]
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


async def read(_: dict[str, Any]) -> dict[str, Any]:
    return LOG


TOOLS = [
    Tool("read_file", "Read a file.", PATH, read),
    Tool("search_files", "Search files.", PATH, read),
    Tool("shell", "Run a command.", COMMAND, read, level="dangerous"),
]


def model_call(*pieces: TextDelta | ToolCall) -> Entry:
    """Answer with the given pieces and report the tokens of a model with a known price."""
    called = any(isinstance(piece, ToolCall) for piece in pieces)
    written = count_tokens("".join(piece.text for piece in pieces if isinstance(piece, TextDelta))) + 40 * called

    def answer(request: Request) -> Answer:
        used = UsageDelta(count_tokens(request.messages) + 120, written)
        return [*pieces, used, Finish("tool_calls" if called else "stop", model=MODEL)]

    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    agent, history = AgentSettings(model=f"openai/{MODEL}"), HistorySettings(max_message_token_budget=1_200)
    folder = tmp_path_factory.mktemp("screenshots")
    async with serving_script(folder, tools=TOOLS, agent=agent, history=history) as site:
        for session, (question, reply) in OTHER_SESSIONS.items():
            site.script.add(reply)
            await site.runtime.run(session, question)
        yield site


def script_conversation(site: Site) -> None:
    """Script the conversation that the screenshots show."""
    log, query = {"path": "logs/2026-11-14/latency.json"}, {"path": "src/orders/*.sql"}
    site.script.add(
        model_call(ToolCall("c1", "read_file", log), ToolCall("c2", "search_files", query)),
        model_call(TextDelta(ANSWER)),
        model_call(
            TextDelta("Then I would build it on the replica first, and look at the plan of the query."),
            ToolCall("c3", "shell", {"command": "psql replica -f add_orders_customer.sql"}),
        ),
    )


async def take_screenshot(page: Page, name: str) -> None:
    """Take the screenshot when recording; else check that it exists in the right size."""
    file = IMAGES / f"{name}.png"
    if RECORDING:
        await page.mouse.move(2, 2)
        file.parent.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=file, animations="disabled", caret="hide")
    assert file.is_file(), f"{file} is missing: make pictures"
    assert png_size(file) == (VIEW["width"] * SCALE, VIEW["height"] * SCALE)


def png_size(file: Path) -> tuple[int, int]:
    head = file.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_screenshots_show_a_conversation_with_tools(open_page: OpenPage, site: Site, scheme: str) -> None:
    page = await open_page(color_scheme=scheme, viewport=VIEW, device_scale_factor=SCALE)
    await page.goto(site.url)
    script_conversation(site)
    await ask(page, QUESTION, "no index any more")
    newest = page.get_by_role("article", name="Answer").last
    await expect(newest.get_by_role("table")).to_contain_text("1,840 ms")
    await expect(newest.locator("pre").last).to_contain_text("CREATE INDEX CONCURRENTLY")
    await expect(page.get_by_text("read_file", exact=True)).to_be_visible()
    for question, _ in OTHER_SESSIONS.values():
        await expect(page.get_by_role("link", name=question)).to_be_visible()
    await expect(newest.locator(".hljs-keyword").first).to_have_text("CREATE")
    await take_screenshot(page, f"page-{scheme}")
    await send(page, "Go ahead.")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await expect(page.get_by_text("psql replica -f add_orders_customer.sql").last).to_be_visible()
    session = session_id(page)
    await page.goto("about:blank")
    await site.runtime.sessions.delete(session)  # the next screenshot lists it too


async def test_the_screenshot_of_the_usage_view(open_page: OpenPage, site: Site) -> None:
    page = await open_page(color_scheme="light", viewport=VIEW, device_scale_factor=SCALE)
    for number, (question, reply) in enumerate(REPORT_TURNS, 1):
        call = ToolCall(f"p{number}", "search_files", {"path": f"reports/week-{number + 36}.md"})
        site.script.add(model_call(call), model_call(TextDelta(reply)))
        await site.runtime.run("report", question)
    await page.goto(f"{site.url}/#/s/report")
    await wait_until_finished(page)
    await page.get_by_role("button", name="Details of this conversation").click()
    await page.get_by_role("tab", name="Usage").click()
    await expect(page.get_by_role("table", name="Turns, newest first")).to_be_visible()
    await expect(page.locator(".plot canvas")).to_have_count(3)
    await take_screenshot(page, "usage")
