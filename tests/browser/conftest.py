"""A real Chromium, one for each worker, and pages that are watched."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.chromium import FLAGS, bring
from tests.browser.page_watch import Watch

_PATIENCE_MS = 60_000  # a busy machine is slow
expect.set_options(timeout=_PATIENCE_MS)

# Playwright belongs to the loop that it was started in: these tests share one
_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(_ONE_LOOP, append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=bring(), args=FLAGS, timeout=2 * _PATIENCE_MS)
        yield browser
        await browser.close()


@pytest.fixture
def watch() -> Watch:
    """What the test's pages did that no page of ours should do; it is looked at when the test is over."""
    return Watch()


OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, watch: Watch) -> AsyncIterator[OpenPage]:
    """Make a page with options of its own (`viewport`, `color_scheme`, ...), with cookies and storage of its own."""
    contexts: list[Any] = []

    async def opened(**options: Any) -> Page:
        context = await browser.new_context(**options)
        context.set_default_timeout(_PATIENCE_MS)
        contexts.append(context)
        watch.over(context)
        return await context.new_page()

    yield opened
    for context in contexts:
        await context.close()
    watch.check()


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: OpenPage) -> Page:
    """A page whose console errors, and whose requests to another host, fail the test."""
    return await open_page()
