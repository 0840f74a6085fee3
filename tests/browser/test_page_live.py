"""Live updates of the page: queued messages, turns of other clients, and changes of the session list."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Route, expect

from lango import Tool, open_runtime
from lango.config import AgentSettings, Settings, StoreSettings
from lango.messages import ToolCall
from lango.providers import Finish, TextDelta
from lango.testing import ScriptedProvider
from tests.browser.conftest import OpenPage
from tests.browser.lossy_proxy import lossy_proxy
from tests.browser.page_actions import answer, ask, send, session_id, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import PAUSE, TIMEOUT_S, Site, serving_script

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


async def look(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"seen": arguments["path"]}


LOOK = Tool("look", "Look.", SCHEMA, look)
WIPE = Tool("wipe", "Wipe.", SCHEMA, look, level="dangerous")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), tools=[LOOK, WIPE]) as site:
        yield site


def paused_answer(text: str = "It begins") -> list[TextDelta | Finish]:
    """Return an answer that pauses until the test resumes it."""
    return [TextDelta(f"{text}{PAUSE}, it ends."), Finish("stop")]


def queued(page: Page) -> Locator:
    return page.get_by_role("region", name="Queued messages").get_by_role("listitem")


async def send_queued(page: Page, text: str) -> None:
    """Send a message while an answer runs."""
    count = await queued(page).count()
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")
    await expect(queued(page)).to_have_count(count + 1)
    await expect(queued(page).last).to_contain_text(text)


async def wait_for_seq(page: Page, seq: int) -> None:
    """Wait until the page has the sequence number of the user's newest message, which it reads after the answer."""
    await expect(page.get_by_role("article", name="You").last).to_have_attribute("data-seq", str(seq))


async def shown_texts(page: Page) -> list[str]:
    """Return all messages and answers on the page, in order."""
    return await page.evaluate(
        "[...document.querySelectorAll('#log .bubble, #log .answer-body')].map((element) => element.innerText.trim())"
    )


# -- queued messages ---------------------------------------------------------------------------------------------------


async def test_a_message_sent_during_an_answer_is_queued_and_answered_after_it(page: Page, site: Site) -> None:
    site.script.add(paused_answer(), "Second answer.", "Third answer.")
    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await send_queued(page, "second")
    await send_queued(page, "third")
    await expect(page.locator("#announcements")).to_contain_text("Your message is queued until the answer is complete.")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await check_accessibility(page)
    assert await shown_texts(page) == ["first", "It begins"]
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await wait_until_finished(page)
    await expect(queued(page)).to_have_count(0)
    shown = ["first", "It begins, it ends.", "second", "Second answer.", "third", "Third answer."]
    assert await shown_texts(page) == shown
    await page.reload()
    await expect(answer(page)).to_contain_text("Third answer.")
    assert await shown_texts(page) == shown


async def test_a_queued_message_is_withdrawn_by_keyboard(page: Page, site: Site) -> None:
    site.script.add(paused_answer(), "Third answer.")
    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    for text in ("second", "third", "fourth"):
        await send_queued(page, text)
    box = page.get_by_role("textbox", name="Message")
    await page.get_by_role("button", name="Withdraw: second").press("Enter")
    await expect(queued(page)).to_have_count(2)
    await expect(box).to_be_focused()
    await expect(box).to_have_value("second")
    await box.fill("")
    await box.press("ArrowUp")
    await expect(queued(page)).to_have_count(1)
    await expect(box).to_have_value("fourth")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await wait_until_finished(page)
    assert await shown_texts(page) == ["first", "It begins, it ends.", "third", "Third answer."]
    await expect(box).to_have_value("fourth")
    assert "second" not in [message.content for message in site.provider.requests[-1].messages]


async def test_a_stale_queue_response_is_ignored(page: Page, site: Site) -> None:
    site.script.add(paused_answer(), "Second answer.", "Third answer.")
    requested = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
    may_respond = asyncio.Event()

    async def delay(route: Route) -> None:
        """Delay the first response until there is a newer response."""
        number = sum(event.is_set() for event in requested)
        response = await route.fetch()
        requested[min(number, 2)].set()
        if number == 0:
            await may_respond.wait()
        await route.fulfill(response=response)

    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await page.route("**/waiting", delay)
    async with asyncio.timeout(TIMEOUT_S):
        await send_queued(page, "second")
        await requested[0].wait()
        await send_queued(page, "third")
        await requested[1].wait()
        may_respond.set()
        await requested[2].wait()
    await expect(queued(page)).to_have_count(2)
    await page.unroute_all(behavior="wait")
    site.provider.resume.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await wait_until_finished(page)
    assert await shown_texts(page) == [
        "first",
        "It begins, it ends.",
        "second",
        "Second answer.",
        "third",
        "Third answer.",
    ]


async def test_a_queued_message_is_shown_after_a_reload_and_in_another_tab(page: Page, site: Site) -> None:
    site.script.add(paused_answer(), "Second answer.")
    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("It begins")
    await send_queued(page, "second")
    await send_queued(page, "third")
    await expect(queued(other)).to_have_count(2)
    await page.reload()
    await expect(queued(page)).to_have_count(2)
    await expect(answer(page)).to_contain_text("It begins")
    await page.get_by_role("button", name="Withdraw: third").click()
    await expect(queued(other)).to_have_count(1)
    site.provider.resume.set()
    for tab in (page, other):
        await expect(answer(tab)).to_contain_text("Second answer.")
        await wait_until_finished(tab)
        assert await shown_texts(tab) == ["first", "It begins, it ends.", "second", "Second answer."]
        await expect(queued(tab)).to_have_count(0)


async def test_stop_ends_the_running_answer_only(page: Page, site: Site) -> None:
    site.script.add(paused_answer(), paused_answer("Second begins"))
    await page.goto(site.url)
    await send(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await send_queued(page, "second")
    await page.keyboard.press("Escape")
    await expect(answer(page)).to_contain_text("Second begins")
    await expect(queued(page)).to_have_count(0)
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(answer(page)).to_contain_text("Stopped.")
    await wait_until_finished(page)
    assert await shown_texts(page) == ["first", "It begins\n\nStopped.", "second", "Second begins\n\nStopped."]


async def test_a_second_message_that_the_server_refuses_becomes_the_draft_again(
    open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory, monitor: PageMonitor
) -> None:
    monitor.expect("409")
    folder = tmp_path_factory.mktemp("refusing")
    async with serving_script(folder, [paused_answer()], agent=AgentSettings(when_busy="refuse")) as site:
        page = await open_page()
        await page.goto(site.url)
        await send(page, "first")
        await expect(answer(page)).to_contain_text("It begins")
        await page.get_by_role("textbox", name="Message").fill("second")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("is busy with another message")
        await expect(page.get_by_role("textbox", name="Message")).to_have_value("second")
        await expect(queued(page)).to_have_count(0)
        site.provider.resume.set()
        await wait_until_finished(page)
        await page.goto("about:blank")


# -- turns of other clients --------------------------------------------------------------------------------------------


async def test_messages_of_another_tab_appear_as_they_arrive(page: Page, site: Site) -> None:
    site.script.add("One.", ["I look.", ToolCall("c1", "look", {"path": "a"})], paused_answer("Two"), "Three.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("One.")
    await send(page, "second")
    for tab in (page, other):
        await expect(answer(tab)).to_contain_text("Two")
        await expect(tab.get_by_role("button", name="Stop the answer")).to_be_visible()
    site.provider.resume.set()
    await wait_until_finished(other)
    await ask(other, "third", "Three.")
    await expect(answer(page)).to_contain_text("Three.")
    for tab in (page, other):
        await wait_until_finished(tab)
        await expect(tab.locator(".tool-card")).to_have_count(1)
        await expect(tab.locator("#log .text")).to_have_text(["One.", "I look.", "Two, it ends.", "Three."])
        await expect(tab.get_by_role("article", name="You")).to_have_count(3)


async def test_an_approval_in_another_tab_is_shown(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "wipe", {"path": "a"}), "Wiped.")
    await page.goto(site.url)
    await send(page, "wipe")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await wait_until_finished(page)
    other = await page.context.new_page()
    await other.goto(page.url)
    await other.get_by_role("button", name="Approve").click()
    for tab in (other, page):
        await expect(answer(tab)).to_contain_text("Wiped.")
        await wait_until_finished(tab)
        await expect(tab.get_by_role("button", name="Approve")).to_have_count(0)
        await expect(tab.locator(".tool-card")).to_have_attribute("data-status", "done")


async def test_messages_of_an_openai_client_appear(page: Page, site: Site) -> None:
    site.script.add("One.", "Two.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    async with httpx.AsyncClient(base_url=site.url) as client:
        body = {"model": "lango", "messages": [{"role": "user", "content": "from a program"}]}
        headers = {"X-Session-Id": session_id(page)}
        response = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200, response.text
    await expect(answer(page)).to_contain_text("Two.")
    await wait_until_finished(page)
    assert await shown_texts(page) == ["first", "One.", "from a program", "Two."]


async def test_a_call_that_awaits_its_client_is_not_shown_as_running(page: Page, site: Site) -> None:
    tool = {"name": "pick", "description": "Let the user pick.", "parameters": SCHEMA}
    site.script.add(
        "One.", ToolCall("p1", "pick", {"path": "a"}), "Red it is.", ToolCall("p2", "pick", {}), "Never mind."
    )
    await page.goto(site.url)
    await ask(page, "first", "One.")

    async def run(*messages: dict[str, Any]) -> None:
        async with httpx.AsyncClient(base_url=site.url) as client:
            body: dict[str, Any] = {"threadId": session_id(page), "runId": uuid.uuid4().hex, "messages": messages}
            body |= {"tools": [tool], "state": {}, "context": [], "forwardedProps": {}}
            response = await client.post("/agui", json=body)
            assert response.status_code == 200, response.text

    cards = page.locator(".tool-card")
    await run({"id": "m1", "role": "user", "content": "Which colour?"})
    for _ in range(2):
        await wait_until_finished(page)
        await expect(cards.last).to_have_attribute("data-status", "awaiting_client")
        await expect(cards.last).to_contain_text("waits for the client")
        await page.reload()
    await expect(cards.last).to_have_attribute("data-status", "awaiting_client")
    await run({"id": "m2", "role": "tool", "toolCallId": "p1", "content": '{"colour": "red"}'})
    await expect(answer(page)).to_contain_text("Red it is.")
    await expect(cards.last).to_have_attribute("data-status", "done")
    await run({"id": "m3", "role": "user", "content": "And now?"})
    await expect(cards).to_have_count(2)
    await expect(cards.last).to_have_attribute("data-status", "awaiting_client")
    await ask(page, "leave it", "Never mind.")
    await expect(cards.last).to_have_attribute("data-status", "failed")
    await expect(cards.first).to_have_attribute("data-status", "done")


async def test_a_turn_of_the_terminal_appears_while_it_runs(page: Page, site: Site) -> None:
    site.script.add("One.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    # like `lango chat`: another process on the same store, which publishes no events to the server
    store = StoreSettings(url=site.store_url)
    gate = asyncio.Event()

    async def slow(arguments: dict[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return arguments

    provider = ScriptedProvider([ToolCall("t1", "slow", {"path": "b"}), "Two."])
    slow_tool = Tool("slow", "Slow.", SCHEMA, slow)
    async with open_runtime(Settings(store=store), tools=[slow_tool], provider=provider) as terminal:
        running = asyncio.create_task(terminal.run(session_id(page), "by give_file"))
        await expect(page.get_by_role("article", name="You").last).to_contain_text("by give_file")
        await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()
        await expect(page.locator(".tool-card")).to_be_visible()
        gate.set()
        assert await running == "Two."
        await expect(answer(page)).to_contain_text("Two.")
        await wait_until_finished(page)
    await expect(page.locator("#log .text")).to_have_text(["One.", "Two."])
    await expect(page.locator(".tool-card")).to_have_count(1)


async def test_no_event_is_lost_or_repeated_when_the_connection_breaks_between_turns(
    page: Page, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("net::ERR_")
    site.script.add("One.", "Two.", "Three.")
    async with lossy_proxy(site.url) as proxy:
        await page.goto(proxy.url)
        await ask(page, "first", "One.")
        proxy.disconnect()
        await site.runtime.run(session_id(page), "second")
        await proxy.refused.wait()
        proxy.reconnect()
        await expect(answer(page)).to_contain_text("Two.")
        await expect(page.get_by_text("Connection lost")).to_be_hidden()
        await wait_until_finished(page)
        await ask(page, "third", "Three.")
        assert await shown_texts(page) == ["first", "One.", "second", "Two.", "third", "Three."]
        await page.goto("about:blank")


async def test_a_hidden_tab_disconnects_and_catches_up(open_page: OpenPage, site: Site) -> None:
    page = await open_page()
    site.script.add("One.", "Two.")
    await page.clock.install()
    await page.goto(site.url)
    await ask(page, "first", "One.")
    hide = "(is) => { Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    async with page.expect_event("requestfailed", lambda request: "/v1/live" in request.url):
        await page.evaluate(hide, True)
        await page.clock.run_for(11_000)
    async with httpx.AsyncClient(base_url=site.url) as client:
        await client.post(f"/v1/sessions/{session_id(page)}/messages", json={"text": "second"})
    assert await shown_texts(page) == ["first", "One."]
    await page.evaluate(hide, False)
    await expect(answer(page)).to_contain_text("Two.")
    assert await shown_texts(page) == ["first", "One.", "second", "Two."]


async def test_messages_rewound_in_another_tab_disappear(page: Page, site: Site) -> None:
    site.script.add("One.", "Two.", "A better two.", "Three.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    await ask(page, "second", "Two.")
    await wait_for_seq(page, 3)
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("Two.")
    await other.get_by_role("button", name="Try again").click()
    for tab in (other, page):
        await expect(answer(tab)).to_contain_text("A better two.")
        await wait_until_finished(tab)
        await expect(tab.locator("#log .text")).to_have_text(["One.", "A better two."])
        await expect(tab.get_by_role("article", name="You")).to_have_count(2)
    *_, newest, _ = await site.runtime.sessions.messages(session_id(page))
    for tab in (other, page):
        await wait_for_seq(tab, newest.seq)
    await site.runtime.sessions.rewind(session_id(page), before=newest.seq)
    for tab in (other, page):
        await expect(tab.locator("#log .text")).to_have_text(["One."])
    await ask(page, "third", "Three.")
    for tab in (other, page):
        await expect(tab.locator("#log .text")).to_have_text(["One.", "Three."])


async def test_messages_rewound_while_disconnected_disappear(page: Page, site: Site, monitor: PageMonitor) -> None:
    monitor.expect("net::ERR_")
    site.script.add("One.", "Two.")
    async with lossy_proxy(site.url) as proxy:
        await page.goto(proxy.url)
        await ask(page, "first", "One.")
        await ask(page, "second", "Two.")
        await wait_for_seq(page, 3)
        proxy.disconnect()
        await site.runtime.sessions.rewind(session_id(page), before=3)
        await proxy.refused.wait()
        proxy.reconnect()
        await expect(page.locator("#log .text")).to_have_text(["One."])
        await page.goto("about:blank")


# -- session list ------------------------------------------------------------------------------------------------------


async def test_the_list_follows_sessions_that_other_clients_create_rename_and_delete(
    page: Page, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("404.*/v1/sessions/elsewhere/")  # what the page reads while the session is deleted
    site.script.add("Made elsewhere.")
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await site.runtime.run("elsewhere", "A question from elsewhere")
    await expect(page.get_by_role("link", name="A question from elsewhere")).to_be_visible()
    await site.runtime.sessions.rename("elsewhere", "A better name")
    await expect(page.get_by_role("link", name="A better name")).to_be_visible()
    await page.get_by_role("link", name="A better name").click()
    await expect(answer(page)).to_contain_text("Made elsewhere.")
    await site.runtime.sessions.rename("elsewhere", "The best name")
    await expect(page.get_by_role("heading", name="The best name")).to_be_visible()
    async with httpx.AsyncClient(base_url=site.url) as client:
        await client.delete("/v1/sessions/elsewhere")
    await expect(answer(page)).to_contain_text("This conversation was deleted.")
    await expect(page.get_by_role("link", name="The best name")).to_have_count(0)
