"""Credentials on the page: the address to allow an access, and forms for keys, tokens and passwords."""

import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Request, expect

from lango.config import AgentSettings, ServerSettings
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import Site, serving_script
from tests.support.servers import credential_agent
from tests.support.servers.oauth_server import OAuthServer, oauth_server

KEY = "the-key-0123456789"


@pytest.fixture(scope="module")
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory, oauth: OAuthServer) -> AsyncIterator[Site]:
    with socket.socket() as free, pytest.MonkeyPatch.context() as patch:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        callback = f"http://127.0.0.1:{port}/v1/oauth/callback"
        for name, value in credential_agent.environment(oauth, callback).items():
            patch.setenv(name, value)
        free.close()
        agent = AgentSettings(module=str(credential_agent.FILE))
        server = ServerSettings(port=port, drain_s=0.1)
        async with serving_script(tmp_path_factory.mktemp("site"), agent=agent, server=server) as site:
            yield site


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def no_credentials(site: Site) -> None:
    """Let every test begin with a user who has given none, and with an empty inbox."""
    await site.runtime.credentials.delete_all()
    for item in await site.runtime.inbox.list():
        await site.runtime.cancel(item.wait.session_id)


def form(page: Page, name: str = "the weather service") -> Locator:
    return page.get_by_role("group", name=name)


async def ask(page: Page, site: Site, text: str) -> None:
    await page.goto(site.url)
    await send(page, text)
    await wait_until_finished(page)


async def kept_by(page: Page) -> str:
    """Return what the page keeps: its document, and its storage."""
    script = (
        "document.documentElement.outerHTML + JSON.stringify({...localStorage}) + JSON.stringify({...sessionStorage})"
    )
    values = "[...document.querySelectorAll('input, textarea')].map((input) => input.value).join()"
    return f"{await page.evaluate(script)}{await page.evaluate(values)}{page.url}"


async def test_a_user_confirms_an_access_whose_server_does_not_redirect(page: Page, site: Site) -> None:
    await ask(page, site, "vault")
    await check_accessibility(page)
    link = answer(page).get_by_role("link", name="Allow the access at vault.example")
    await expect(link).to_have_attribute("href", "https://vault.example/allow")
    await answer(page).get_by_role("button", name="I have allowed it").click()
    await expect(answer(page)).to_contain_text("it got a key of 5 from the vault")


async def test_the_turn_goes_on_after_the_callback_in_another_tab(page: Page, site: Site, oauth: OAuthServer) -> None:
    await ask(page, site, "account")
    await check_accessibility(page)
    link = answer(page).get_by_role("link", name="Allow the access at ")
    await expect(answer(page)).to_contain_text("read, write")
    async with page.context.expect_page() as opened:
        await link.click()
    tab = await opened.value
    await expect(tab.get_by_role("heading")).to_have_text("Access granted")
    await expect(answer(page)).to_contain_text("it got alice")
    await wait_until_finished(page)
    await expect(link).to_have_count(0)
    card = page.locator(".wait-card[data-kind=credential]")
    await expect(card).to_contain_text("Given.")
    await expect(page.locator(".tool")).to_have_count(1)
    kept = await kept_by(page)
    await page.reload()
    await expect(answer(page)).to_contain_text("it got alice")
    await expect(card).to_contain_text("Given.")
    await expect(page.locator(".tool")).to_have_count(1)
    kept += await kept_by(page)
    assert not [secret for secret in oauth.secrets if secret in kept]


async def test_an_access_that_is_not_allowed_closes_the_request(page: Page, site: Site, oauth: OAuthServer) -> None:
    await ask(page, site, "account")
    oauth.denies = True
    try:
        async with page.context.expect_page() as opened:
            await answer(page).get_by_role("link", name="Allow the access at ").click()
        await expect((await opened.value).get_by_role("heading")).to_have_text("Access denied")
    finally:
        oauth.denies = False
    await page.reload()
    await expect(page.locator(".wait-card[data-kind=credential]")).to_contain_text("No credential")
    await expect(page.get_by_role("link", name="Allow the access at ")).to_have_count(0)


async def test_a_key_is_typed_into_a_form_that_does_not_show_or_keep_it(page: Page, site: Site) -> None:
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if KEY in (request.post_data or request.url) else None)
    await ask(page, site, "key")
    await page.reload()
    field = form(page).get_by_label("Key")
    await expect(field).to_have_attribute("type", "password")
    await check_accessibility(page)
    await form(page).get_by_role("button", name="Give").click()
    await expect(form(page).locator(".wait-problem")).to_have_text("A value is missing.")
    await field.fill(KEY)
    await form(page).get_by_role("button", name="Give").click()
    await expect(answer(page)).to_contain_text(f"it got a key of {len(KEY)}")
    await wait_until_finished(page)
    await expect(form(page)).to_have_count(0)
    kept = await kept_by(page)
    await page.reload()
    await expect(answer(page)).to_contain_text("it got a key")
    assert KEY not in kept + await kept_by(page)
    assert [request.method for request in sent] == ["POST"]
    assert KEY not in sent[0].url


@pytest.mark.parametrize("name", ["password", "token"])
async def test_a_name_and_password_or_a_token(page: Page, site: Site, name: str) -> None:
    service = "the basic service" if name == "password" else "the bearer service"
    await ask(page, site, name)
    if name == "password":
        await form(page, service).get_by_label("Name").fill("ann")
        secret = form(page, service).get_by_label("Password")
    else:
        secret = form(page, service).get_by_label("Token")
    await expect(secret).to_have_attribute("type", "password")
    await secret.fill(KEY)
    await page.keyboard.press("Enter")
    got = f"basic ann and {len(KEY)}" if name == "password" else f"bearer {len(KEY)}"
    await expect(answer(page)).to_contain_text(f"it got {got}")
    await wait_until_finished(page)
    assert KEY not in await kept_by(page)


async def test_a_request_is_skipped(page: Page, site: Site) -> None:
    await ask(page, site, "key")
    await form(page).get_by_role("button", name="Skip").click()
    await expect(form(page)).to_have_count(0)
    await expect(answer(page)).to_contain_text("No credential")
    await send(page, "hello")
    await expect(answer(page)).to_contain_text("hello")
    await wait_until_finished(page)


async def test_a_refused_value_leaves_the_form(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("422")
    await ask(page, site, "key")
    field = form(page).get_by_label("Key")
    await field.fill("x" * 20_000)
    await page.keyboard.press("Enter")
    await expect(form(page).locator(".wait-problem")).to_contain_text("characters")
    await expect(field).to_have_value("")
    await field.fill(KEY)
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_contain_text("it got a key")
    await wait_until_finished(page)


async def test_the_inbox_has_the_address_and_the_form(page: Page, site: Site) -> None:
    for name in ("account", "key"):
        async for _ in site.runtime.stream(f"inbox-{name}", name):
            pass
    await page.goto(site.url)
    await page.get_by_role("button", name="Inbox: 2 waiting").click()
    inbox = page.get_by_role("dialog", name="Inbox")
    items = inbox.get_by_role("listitem")
    await expect(items).to_have_count(2)
    await check_accessibility(page)
    await inbox.get_by_label("Key").fill(KEY)
    await inbox.get_by_role("button", name="Give").click()
    await expect(items).to_have_count(1)
    assert KEY not in await kept_by(page)
    async with page.context.expect_page() as opened:
        await inbox.get_by_role("link", name="Allow the access at ").click()
    await expect((await opened.value).get_by_role("heading")).to_have_text("Access granted")
    await expect(inbox).to_contain_text("Nothing is waiting for you.")
    await page.goto(f"{site.url}/#/s/inbox-account")
    await expect(answer(page)).to_contain_text("it got alice")
