"""The page hears of everything: messages that wait their turn, turns that others begin, and changes of the list."""

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
from tests.browser.lossy_proxy import lossy
from tests.browser.page_actions import answer, ask, finished, say, session_of
from tests.browser.page_watch import Watch, check_accessibility
from tests.browser.site import PATIENCE_S, PAUSE, Site, serving_script

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


async def looked(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"seen": arguments["path"]}


LOOK = Tool("look", "Look.", SCHEMA, looked)
WIPE = Tool("wipe", "Wipe.", SCHEMA, looked, level="dangerous")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), tools=[LOOK, WIPE]) as site:
        yield site


def held(words: str = "It begins") -> list[TextDelta | Finish]:
    """An answer that stops until the test lets it go on."""
    return [TextDelta(f"{words}{PAUSE}, it ends."), Finish("stop")]


def queue(page: Page) -> Locator:
    return page.get_by_role("region", name="Queued messages").get_by_role("listitem")


async def then(page: Page, words: str) -> None:
    """Write a message while an answer runs."""
    count = await queue(page).count()
    await page.get_by_role("textbox", name="Message").fill(words)
    await page.keyboard.press("Enter")
    await expect(queue(page)).to_have_count(count + 1)
    await expect(queue(page).last).to_contain_text(words)


async def numbered(page: Page, seq: int) -> None:
    """Wait until the page knows the number of the user's newest message: it learns it after the answer."""
    await expect(page.get_by_role("article", name="You").last).to_have_attribute("data-seq", str(seq))


async def told(page: Page) -> list[str]:
    """All that was said on the page, in order."""
    return await page.evaluate(
        "[...document.querySelectorAll('#log .bubble, #log .answer-body')].map((one) => one.innerText.trim())"
    )


# -- messages that wait ------------------------------------------------------------------------------------------------


async def test_a_message_written_while_an_answer_runs_waits_and_is_answered_after_it(page: Page, site: Site) -> None:
    site.script.add(held(), "Second answer.", "Third answer.")
    await page.goto(site.url)
    await say(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await then(page, "second")
    await then(page, "third")
    await expect(page.locator("#announcements")).to_contain_text("Your message is queued until the answer is complete.")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await check_accessibility(page)
    assert await told(page) == ["first", "It begins"]
    site.provider.go_on.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await finished(page)
    await expect(queue(page)).to_have_count(0)
    shown = ["first", "It begins, it ends.", "second", "Second answer.", "third", "Third answer."]
    assert await told(page) == shown
    await page.reload()
    await expect(answer(page)).to_contain_text("Third answer.")
    assert await told(page) == shown


async def test_a_message_that_waits_is_taken_back_by_the_keyboard(page: Page, site: Site) -> None:
    site.script.add(held(), "Third answer.")
    await page.goto(site.url)
    await say(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    for words in ("second", "third", "fourth"):
        await then(page, words)
    box = page.get_by_role("textbox", name="Message")
    await page.get_by_role("button", name="Withdraw: second").press("Enter")
    await expect(queue(page)).to_have_count(2)
    await expect(box).to_be_focused()
    await expect(box).to_have_value("second")
    await box.fill("")
    await box.press("ArrowUp")
    await expect(queue(page)).to_have_count(1)
    await expect(box).to_have_value("fourth")
    site.provider.go_on.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await finished(page)
    assert await told(page) == ["first", "It begins, it ends.", "third", "Third answer."]
    await expect(box).to_have_value("fourth")
    assert "second" not in [one.content for one in site.provider.requests[-1].messages]


async def test_an_answer_that_is_older_than_the_list_does_not_change_it(page: Page, site: Site) -> None:
    site.script.add(held(), "Second answer.", "Third answer.")
    asked = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
    may_answer = asyncio.Event()

    async def late(route: Route) -> None:
        """Hold the first answer until there is a newer one."""
        number = sum(one.is_set() for one in asked)
        answered = await route.fetch()
        asked[min(number, 2)].set()
        if number == 0:
            await may_answer.wait()
        await route.fulfill(response=answered)

    await page.goto(site.url)
    await say(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await page.route("**/waiting", late)
    async with asyncio.timeout(PATIENCE_S):
        await then(page, "second")
        await asked[0].wait()
        await then(page, "third")
        await asked[1].wait()
        may_answer.set()
        await asked[2].wait()
    await expect(queue(page)).to_have_count(2)
    await page.unroute_all(behavior="wait")
    site.provider.go_on.set()
    await expect(answer(page)).to_contain_text("Third answer.")
    await finished(page)
    assert await told(page) == ["first", "It begins, it ends.", "second", "Second answer.", "third", "Third answer."]


async def test_a_message_that_waits_is_there_after_a_reload_and_in_another_tab(page: Page, site: Site) -> None:
    site.script.add(held(), "Second answer.")
    await page.goto(site.url)
    await say(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("It begins")
    await then(page, "second")
    await then(page, "third")
    await expect(queue(other)).to_have_count(2)
    await page.reload()
    await expect(queue(page)).to_have_count(2)
    await expect(answer(page)).to_contain_text("It begins")
    await page.get_by_role("button", name="Withdraw: third").click()
    await expect(queue(other)).to_have_count(1)
    site.provider.go_on.set()
    for one in (page, other):
        await expect(answer(one)).to_contain_text("Second answer.")
        await finished(one)
        assert await told(one) == ["first", "It begins, it ends.", "second", "Second answer."]
        await expect(queue(one)).to_have_count(0)


async def test_stop_stops_the_running_answer_only(page: Page, site: Site) -> None:
    site.script.add(held(), held("Second begins"))
    await page.goto(site.url)
    await say(page, "first")
    await expect(answer(page)).to_contain_text("It begins")
    await then(page, "second")
    await page.keyboard.press("Escape")
    await expect(answer(page)).to_contain_text("Second begins")
    await expect(queue(page)).to_have_count(0)
    await page.get_by_role("button", name="Stop the answer").click()
    await expect(answer(page)).to_contain_text("Stopped.")
    await finished(page)
    assert await told(page) == ["first", "It begins\n\nStopped.", "second", "Second begins\n\nStopped."]


async def test_where_the_server_refuses_a_second_message_its_words_come_back(
    open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory, watch: Watch
) -> None:
    watch.expect("409")
    folder = tmp_path_factory.mktemp("refusing")
    async with serving_script(folder, [held()], agent=AgentSettings(when_busy="refuse")) as site:
        page = await open_page()
        await page.goto(site.url)
        await say(page, "first")
        await expect(answer(page)).to_contain_text("It begins")
        await page.get_by_role("textbox", name="Message").fill("second")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("is busy with another message")
        await expect(page.get_by_role("textbox", name="Message")).to_have_value("second")
        await expect(queue(page)).to_have_count(0)
        site.provider.go_on.set()
        await finished(page)
        await page.goto("about:blank")


# -- turns that others begin -------------------------------------------------------------------------------------------


async def test_what_another_tab_says_appears_as_it_comes(page: Page, site: Site) -> None:
    site.script.add("One.", ["I look.", ToolCall("c1", "look", {"path": "a"})], held("Two"), "Three.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("One.")
    await say(page, "second")
    for one in (page, other):
        await expect(answer(one)).to_contain_text("Two")
        await expect(one.get_by_role("button", name="Stop the answer")).to_be_visible()
    site.provider.go_on.set()
    await finished(other)
    await ask(other, "third", "Three.")
    await expect(answer(page)).to_contain_text("Three.")
    for one in (page, other):
        await finished(one)
        await expect(one.locator(".tool-card")).to_have_count(1)
        await expect(one.locator("#log .text")).to_have_text(["One.", "I look.", "Two, it ends.", "Three."])
        await expect(one.get_by_role("article", name="You")).to_have_count(3)


async def test_an_approval_that_somebody_else_gave_is_seen(page: Page, site: Site) -> None:
    site.script.add(ToolCall("c1", "wipe", {"path": "a"}), "Wiped.")
    await page.goto(site.url)
    await say(page, "wipe")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await finished(page)
    other = await page.context.new_page()
    await other.goto(page.url)
    await other.get_by_role("button", name="Approve").click()
    for one in (other, page):
        await expect(answer(one)).to_contain_text("Wiped.")
        await finished(one)
        await expect(one.get_by_role("button", name="Approve")).to_have_count(0)
        await expect(one.locator(".tool-card")).to_have_attribute("data-status", "done")


async def test_what_an_openai_client_says_in_the_session_appears(page: Page, site: Site) -> None:
    site.script.add("One.", "Two.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    async with httpx.AsyncClient(base_url=site.url) as client:
        body = {"model": "lango", "messages": [{"role": "user", "content": "from a program"}]}
        headers = {"X-Session-Id": session_of(page)}
        answered = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert answered.status_code == 200, answered.text
    await expect(answer(page)).to_contain_text("Two.")
    await finished(page)
    assert await told(page) == ["first", "One.", "from a program", "Two."]


async def test_a_call_that_waits_for_its_client_is_not_shown_as_running(page: Page, site: Site) -> None:
    tool = {"name": "pick", "description": "Let the user pick.", "parameters": SCHEMA}
    site.script.add(
        "One.", ToolCall("p1", "pick", {"path": "a"}), "Red it is.", ToolCall("p2", "pick", {}), "Never mind."
    )
    await page.goto(site.url)
    await ask(page, "first", "One.")

    async def run(*messages: dict[str, Any]) -> None:
        async with httpx.AsyncClient(base_url=site.url) as client:
            body: dict[str, Any] = {"threadId": session_of(page), "runId": uuid.uuid4().hex, "messages": messages}
            body |= {"tools": [tool], "state": {}, "context": [], "forwardedProps": {}}
            answered = await client.post("/agui", json=body)
            assert answered.status_code == 200, answered.text

    cards = page.locator(".tool-card")
    await run({"id": "m1", "role": "user", "content": "Which colour?"})
    for _ in range(2):
        await finished(page)
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


async def test_what_the_terminal_says_in_the_session_appears_while_it_runs(page: Page, site: Site) -> None:
    site.script.add("One.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    # as `lango chat` does: a process of its own on the same store, which tells no server
    store = StoreSettings(url=site.store_url)
    gate = asyncio.Event()

    async def slow(arguments: dict[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return arguments

    provider = ScriptedProvider([ToolCall("t1", "slow", {"path": "b"}), "Two."])
    slow_tool = Tool("slow", "Slow.", SCHEMA, slow)
    async with open_runtime(Settings(store=store), tools=[slow_tool], provider=provider) as terminal:
        running = asyncio.create_task(terminal.run(session_of(page), "by hand"))
        await expect(page.get_by_role("article", name="You").last).to_contain_text("by hand")
        await expect(page.get_by_role("button", name="Stop the answer")).to_be_visible()
        await expect(page.locator(".tool-card")).to_be_visible()
        gate.set()
        assert await running == "Two."
        await expect(answer(page)).to_contain_text("Two.")
        await finished(page)
    await expect(page.locator("#log .text")).to_have_text(["One.", "Two."])
    await expect(page.locator(".tool-card")).to_have_count(1)


async def test_nothing_is_lost_or_told_twice_when_the_connection_breaks_between_turns(
    page: Page, site: Site, watch: Watch
) -> None:
    watch.expect("net::ERR_")
    site.script.add("One.", "Two.", "Three.")
    async with lossy(site.url) as way:
        await page.goto(way.url)
        await ask(page, "first", "One.")
        way.cut()
        await site.runtime.run(session_of(page), "second")
        await way.refused.wait()
        way.mend()
        await expect(answer(page)).to_contain_text("Two.")
        await expect(page.get_by_text("Connection lost")).to_be_hidden()
        await finished(page)
        await ask(page, "third", "Three.")
        assert await told(page) == ["first", "One.", "second", "Two.", "third", "Three."]
        await page.goto("about:blank")


async def test_a_tab_that_nobody_looks_at_lets_go_and_catches_up(page: Page, site: Site) -> None:
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
        await client.post(f"/v1/sessions/{session_of(page)}/messages", json={"text": "second"})
    assert await told(page) == ["first", "One."]
    await page.evaluate(hide, False)
    await expect(answer(page)).to_contain_text("Two.")
    assert await told(page) == ["first", "One.", "second", "Two."]


async def test_what_somebody_else_takes_back_leaves_the_page(page: Page, site: Site) -> None:
    site.script.add("One.", "Two.", "A better two.", "Three.")
    await page.goto(site.url)
    await ask(page, "first", "One.")
    await ask(page, "second", "Two.")
    await numbered(page, 3)
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(answer(other)).to_contain_text("Two.")
    await other.get_by_role("button", name="Try again").click()
    for one in (other, page):
        await expect(answer(one)).to_contain_text("A better two.")
        await finished(one)
        await expect(one.locator("#log .text")).to_have_text(["One.", "A better two."])
        await expect(one.get_by_role("article", name="You")).to_have_count(2)
    *_, newest, _ = await site.runtime.sessions.messages(session_of(page))
    for one in (other, page):
        await numbered(one, newest.seq)
    await site.runtime.sessions.rewind(session_of(page), before=newest.seq)
    for one in (other, page):
        await expect(one.locator("#log .text")).to_have_text(["One."])
    await ask(page, "third", "Three.")
    for one in (other, page):
        await expect(one.locator("#log .text")).to_have_text(["One.", "Three."])


async def test_what_was_taken_back_while_the_connection_was_lost_leaves_the_page(
    page: Page, site: Site, watch: Watch
) -> None:
    watch.expect("net::ERR_")
    site.script.add("One.", "Two.")
    async with lossy(site.url) as way:
        await page.goto(way.url)
        await ask(page, "first", "One.")
        await ask(page, "second", "Two.")
        await numbered(page, 3)
        way.cut()
        await site.runtime.sessions.rewind(session_of(page), before=3)
        await way.refused.wait()
        way.mend()
        await expect(page.locator("#log .text")).to_have_text(["One."])
        await page.goto("about:blank")


# -- the list ----------------------------------------------------------------------------------------------------------


async def test_the_list_shows_sessions_that_others_make_rename_and_delete(page: Page, site: Site) -> None:
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
