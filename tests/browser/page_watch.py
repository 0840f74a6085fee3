"""What no page of ours does: complain in the console, ask another host, or shut somebody out."""

import re
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebError

_OURS = ("127.0.0.1", "localhost", "::1")
_AT_REST = """Promise.all(document.getAnimations()
    .filter((one) => one.effect && one.effect.getComputedTiming().endTime !== Infinity)
    .map((one) => one.finished.catch(() => null))).then(() => null)"""
_AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()


class Watch:
    """The complaints of some pages."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._expected: list[str] = []

    def over(self, context: BrowserContext) -> None:
        """Watch all pages of a context."""
        context.on("console", self._console)
        context.on("weberror", self._raised)
        context.on("request", self._request)

    def expect(self, pattern: str) -> None:
        """Let complaints that match a pattern be: a test that breaks something hears of it."""
        self._expected.append(pattern)

    def check(self) -> None:
        """Raise if there was a complaint that was not expected."""
        left = [said for said in self.complaints if not any(re.search(one, said) for one in self._expected)]
        assert not left, "the page complained:\n" + "\n".join(left)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where = message.location
            self.complaints.append(f"console {message.type}: {message.text} ({where['url']}:{where['lineNumber']})")

    def _raised(self, error: WebError) -> None:
        self.complaints.append(f"uncaught: {error.error}")

    def _request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "about") and address.hostname not in _OURS:
            self.complaints.append(f"request to another host: {request.method} {request.url}")


async def check_accessibility(page: Page) -> None:
    """Raise what axe finds wrong with the page, once nothing on it is on its way any more."""
    await page.evaluate(_AT_REST)
    await page.evaluate(_AXE)
    found: dict[str, Any] = await page.evaluate("axe.run({resultTypes: ['violations']})")
    wrong = [
        f"{one['id']} ({one['impact']}): {one['help']}\n    {node['html'][:300]}\n    {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
    assert not wrong, f"axe found {len(wrong)} faults:\n" + "\n".join(wrong)
