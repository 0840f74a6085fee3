"""Check that a page logs no errors, sends no request to another host, and is accessible."""

import re
from importlib import resources
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebError

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_ANIMATIONS_FINISHED = """Promise.all(document.getAnimations()
    .filter((animation) => animation.effect && animation.effect.getComputedTiming().endTime !== Infinity)
    .map((animation) => animation.finished.catch(() => null))).then(() => null)"""
_AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
# without what takes long: the rest of the report, and the style sheets and media that no enabled rule of ours needs
_QUICKLY: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
_COLOURS: dict[str, Any] = {"runOnly": ["color-contrast", "link-in-text-block"]}


class PageMonitor:
    """Collect console errors, uncaught errors and requests to other hosts."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._expected_patterns: list[str] = []

    def observe(self, context: BrowserContext) -> None:
        """Collect the errors of all pages of a context."""
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("request", self._on_request)

    def leave(self, context: BrowserContext) -> None:
        """Collect nothing more of a context."""
        context.remove_listener("console", self._on_console)
        context.remove_listener("weberror", self._on_error)
        context.remove_listener("request", self._on_request)

    def expect(self, pattern: str) -> None:
        """Ignore errors that match a pattern: the test causes them."""
        self._expected_patterns.append(pattern)

    def check(self) -> None:
        """Raise if there was an error that was not expected."""
        patterns = self._expected_patterns
        unexpected = [error for error in self.errors if not any(re.search(pattern, error) for pattern in patterns)]
        assert not unexpected, "errors of the page:\n" + "\n".join(unexpected)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            location = message.location
            self.errors.append(f"console {message.type}: {message.text} ({location['url']}:{location['lineNumber']})")

    def _on_error(self, error: WebError) -> None:
        self.errors.append(f"uncaught: {error.error}")

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "about") and address.hostname not in _LOCAL_HOSTS:
            self.errors.append(f"request to another host: {request.method} {request.url}")


async def check_accessibility(page: Page, *schemes: Literal["light", "dark"]) -> None:
    """Raise the violations that axe finds, in the page's colours or in each scheme, after animations have finished.

    Schemes differ in their colours only, so after the first one the rules about colours are checked.
    """
    if not schemes:
        await _check_with_axe(page, _QUICKLY)
    for number, scheme in enumerate(schemes):
        await page.emulate_media(color_scheme=scheme)
        await _check_with_axe(page, _QUICKLY | _COLOURS if number else _QUICKLY)


async def _check_with_axe(page: Page, options: dict[str, Any]) -> None:
    await page.evaluate(_ANIMATIONS_FINISHED)
    if await page.evaluate("typeof axe === 'undefined'"):  # half a megabyte, once for each document
        await page.evaluate(_AXE)
    found: list[dict[str, Any]] = await page.evaluate(
        "(options) => axe.run(options).then((report) => report.violations)", options
    )
    violations = [
        f"{rule['id']} ({rule['impact']}): {rule['help']}\n    {node['html'][:300]}\n    {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]
    assert not violations, f"axe found {len(violations)} violations:\n" + "\n".join(violations)
