"""The page: what the browser's main thread does for each key that is typed, by the length of the conversation."""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Page, async_playwright, expect

from benchmarks.table import bar, print_line, quick, table
from tests.browser.chromium import FLAGS, find_or_install
from tests.browser.site import Site, serving_script

MESSAGES = 300
KEYS, ROUNDS = 60, 9
FRAME_MS = 16.0
ANSWER = """Lists take a **moment** to draw:

1. one with `code`,
2. one with [a link](https://example.org).

```python
def add(a: int, b: int) -> int:
    return a + b
```

| name | value |
| --- | --- |
| one | 1 |
"""


@asynccontextmanager
async def opened(browser: Browser, site: Site, address: str) -> AsyncIterator[tuple[Page, CDPSession]]:
    """Open a page of the site, with the CPU time of its main thread."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(site.url + address)
    thread = await context.new_cdp_session(page)
    await thread.send("Performance.enable", {"timeDomain": "threadTicks"})
    yield page, thread
    await context.close()


async def show_all(page: Page, count: int) -> None:
    """Scroll up until all messages of the conversation are shown, then down again."""
    shown = page.locator("#log > article")
    await expect(shown.first).to_be_visible()
    while await shown.count() < count:
        before = await shown.count()
        await page.locator("#log > article").first.scroll_into_view_if_needed()
        await page.mouse.move(600, 300)
        await page.mouse.wheel(0, -100_000)
        await expect(shown).not_to_have_count(before)
    await page.mouse.wheel(0, 10_000_000)


async def busy_ms(thread: CDPSession) -> float:
    """Return the CPU time of the page's main thread so far."""
    found = await thread.send("Performance.getMetrics")
    return next(one["value"] for one in found["metrics"] if one["name"] == "TaskDuration") * 1000


async def per_key_ms(page: Page, thread: CDPSession) -> float:
    """Type a line and return the time of the main thread for each key; then remove the line."""
    box = page.get_by_role("textbox", name="Message")
    await box.focus()
    before = await busy_ms(thread)
    await page.keyboard.type("the quick brown fox jumps over " * (KEYS // 31 + 1))
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    spent = await busy_ms(thread) - before
    typed = len(await box.input_value())
    await box.fill("")
    return spent / typed


async def measure() -> None:
    """Measure an empty conversation and a long one in turns."""
    rounds = 3 if quick() else ROUNDS
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
        async with (
            serving_script(Path(folder), [ANSWER] * (MESSAGES // 2)) as site,
            async_playwright() as driver,
        ):
            for number in range(MESSAGES // 2):
                await site.runtime.run("long", f"Question {number}: what about lists?")
            path = await asyncio.to_thread(find_or_install)
            browser = await driver.chromium.launch(executable_path=path, args=FLAGS)
            async with opened(browser, site, "/") as empty, opened(browser, site, "/#/s/long") as long:
                await show_all(long[0], MESSAGES)
                times: tuple[list[float], list[float]] = [], []
                for _ in range(rounds + 1):
                    for kept, (page, thread) in zip(times, (empty, long), strict=True):
                        await page.bring_to_front()
                        kept.append(await per_key_ms(page, thread))
            await browser.close()
    none, many = (kept[1:] for kept in times)  # the first round compiles
    rows = [(count, statistics.median(kept), max(kept)) for count, kept in ((0, none), (MESSAGES, many))]
    ratio = statistics.median(two / one for one, two in zip(none, many, strict=True))
    table(
        "main-thread time per key, in ms",
        ["messages", "median", "slowest round"],
        rows,
        bar(f"per key at {MESSAGES} messages, in ms", statistics.median(many), at_most=FRAME_MS),
    )
    print_line(f"  {MESSAGES} messages relative to none: {ratio:.2f}")


def main() -> None:
    """Run all measurements."""
    asyncio.run(measure())


if __name__ == "__main__":
    main()
