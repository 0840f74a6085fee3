"""A Chromium for each worker, and pages whose errors fail the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from tests.browser.chromium import FLAGS, find_or_install
from tests.browser.page_monitor import PageMonitor
from tests.browser.site import Site, serving_script

_TIMEOUT_MS = 120_000  # generous: the machine may be busy
_VIEWPORT = ViewportSize(width=1280, height=720)  # Playwright's own
expect.set_options(timeout=_TIMEOUT_MS)

# Playwright is bound to the event loop that started it: these tests share one
_SHARED_LOOP = pytest.mark.asyncio(loop_scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(_SHARED_LOOP, append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        path = await asyncio.to_thread(find_or_install)
        browser = await driver.chromium.launch(executable_path=path, args=FLAGS, timeout=_TIMEOUT_MS)
        yield browser
        await browser.close()


@pytest.fixture
def monitor() -> PageMonitor:
    """Errors of the test's pages, checked at the end of the test."""
    return PageMonitor()


OpenPage = Callable[..., Awaitable[Page]]


async def _new_page(browser: Browser, **options: Any) -> Page:
    options.setdefault("reduced_motion", "reduce")  # what moves is drawn again and again
    context = await browser.new_context(**options)
    context.set_default_timeout(_TIMEOUT_MS)
    return await context.new_page()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, monitor: PageMonitor) -> AsyncIterator[OpenPage]:
    """Open a page in a context of its own, with options such as `viewport` and `color_scheme`."""
    contexts: list[Any] = []

    async def open_in_new_context(**options: Any) -> Page:
        page = await _new_page(browser, **options)
        contexts.append(page.context)
        monitor.observe(page.context)
        return page

    yield open_in_new_context
    for context in contexts:
        await context.close()
    monitor.check()


class SharedTab:
    """A tab that one test after another uses: a new one takes twice the CPU time of loading the page again."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None

    async def take(self) -> Page:
        """Return the tab, which is as a new one is."""
        if self._page is None or self._page.is_closed():
            self._page = await _new_page(self._browser)
        return self._page

    async def reset(self) -> None:
        """Leave nothing of a test but listeners. Init scripts and a clock stay, too: `open_page` is for their tests."""
        page = self._page
        if page is None or page.is_closed():
            return
        context = page.context
        for other in context.pages:
            if other is not page:
                await other.close()
        await page.unroute_all(behavior="ignoreErrors")
        await context.set_offline(False)
        if page.url.startswith("http"):
            await page.evaluate("localStorage.clear(); sessionStorage.clear()")
        await page.goto("about:blank")
        await context.clear_cookies()
        await context.clear_permissions()
        await page.emulate_media(color_scheme="light", reduced_motion="reduce")
        await page.set_viewport_size(_VIEWPORT)
        await page.mouse.move(0, 0)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_tab(browser: Browser) -> SharedTab:
    return SharedTab(browser)


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared_tab: SharedTab, monitor: PageMonitor) -> AsyncIterator[Page]:
    """A page whose console errors, and whose requests to another host, fail the test."""
    page = await shared_tab.take()
    context = page.context
    monitor.observe(context)
    yield page
    monitor.leave(context)
    await shared_tab.reset()
    monitor.check()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server without tools, shared by the tests of a module."""
    async with serving_script(tmp_path_factory.mktemp("site")) as site:
        yield site
