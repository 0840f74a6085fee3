"""ADK's dev UI on our server, in a real browser."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest_asyncio
from playwright.async_api import Page, expect

from lango.config import ServerSettings
from lango.store.sessions.sessions import list_sessions
from lango.store.sessions.window import read_message_page
from tests.browser.site import Site, serving_script
from tests.support.runtimes import store_of


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with serving_script(tmp_path, ["hello from the agent"], server=ServerSettings(port=0, adk_ui=True)) as site:
        yield site


async def test_the_dev_ui_answers_and_requests_no_other_host(site: Site, page: Page) -> None:
    failed: list[str] = []
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    await page.goto(f"{site.url}/dev-ui/?app={site.runtime.app_name}")
    box = page.locator("textarea").first
    await expect(box).to_be_visible()
    await box.fill("hello")
    await box.press("Enter")
    await expect(page.get_by_text("hello from the agent").first).to_be_visible()
    await expect(page.locator("svg g.node").first).to_be_visible()  # the agent graph
    (session,) = await store_of(site.runtime).read(list_sessions, site.runtime.app_name, "user")
    stored = await store_of(site.runtime).read(read_message_page, session)
    assert [event.message.content for event in stored if event.message] == ["hello", "hello from the agent"]
    assert not failed


async def test_the_dev_ui_serves_only_its_files_and_reports_missing_features(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.url) as client:
        index = await client.get("/dev-ui/")
        assert "http" not in index.headers["content-security-policy"]
        assert not [line for line in index.text.splitlines() if "<link" in line and "https://" in line]
        for path in ("..%2fapi_server.py", "%2e%2e/api_server.py", "/etc/passwd", "nothing.js"):
            assert (await client.get(f"/dev-ui/{path}")).status_code == 404, path
        app = f"/dev/apps/{site.runtime.app_name}"
        assert (await client.get(f"{app}/eval-sets")).json() == {"evalSetIds": []}
        assert (await client.get(f"{app}/debug/trace/session/s")).json() == []
        assert (await client.get(f"{app}/debug/trace/e")).status_code == 404
        assert (await client.get("/dev/apps/another/eval-sets")).status_code == 404
        changed = await client.post(f"{app}/builder/save", json={})
        assert (changed.status_code, changed.json()["error"]["type"]) == (501, "NotImplemented")
        foreign = await client.post("/run_sse", json={}, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403


async def test_the_dev_ui_is_an_option(tmp_path: Path) -> None:
    async with serving_script(tmp_path) as site, httpx.AsyncClient(base_url=site.url) as client:
        assert (await client.get("/dev-ui/")).status_code == 404
        assert (await client.get(f"/dev/apps/{site.runtime.app_name}/eval-sets")).status_code == 404
