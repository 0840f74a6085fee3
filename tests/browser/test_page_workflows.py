"""Workflows on the page: the progress of their nodes, and the forms for a person's input."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from lango.config import AgentSettings
from tests.browser.page_actions import answer, send, wait_until_finished
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import Site, serving_script

FREE_NODES = ["preparedonefree", "ask_freelydonetea", 'orderdone{"ordered":"tea"}']
AGENT = Path(__file__).parents[1] / "support" / "servers" / "workflow_agent.py"
# holds back the events of a session: all until `live`, and the end of a turn until `ended` is called
HOLD_EVENTS = """
    const gate = (name) => new Promise((open) => (window[name] = open));
    const live = gate("live"), ended = gate("ended"), { fetch } = window;
    window.fetch = async (path, options) => {
        const response = await fetch(path, options);
        if (!path.startsWith("/v1/live?session=")) return response;
        let text = "";
        const held = new TransformStream({
            async transform(piece, stream) {
                text += piece;
                for (let end; (end = text.indexOf("\\n\\n") + 2) > 1; text = text.slice(end)) {
                    const frame = text.slice(0, end);
                    await (frame.includes('"type":"done"') ? ended : live);
                    stream.enqueue(frame);
                }
            },
        });
        const body = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(held);
        return new Response(body.pipeThrough(new TextEncoderStream()), response);
    };
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serving_script(tmp_path_factory.mktemp("site"), agent=AgentSettings(module=str(AGENT))) as site:
        yield site


def form(page: Page) -> Locator:
    return page.get_by_role("group", name="How large, and which color?")


async def test_a_form_asks_for_the_fields_of_the_schema(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "go")
    await wait_until_finished(page)
    nodes = answer(page).get_by_role("list", name="Steps of the workflow").get_by_role("listitem")
    await expect(nodes).to_have_text(["preparedonego", "ask_sizewaiting"])
    await expect(page.get_by_role("alert").first).to_contain_text("The workflow waits for your input")
    await expect(answer(page).get_by_label("Details")).to_contain_text("Bern")
    await check_accessibility(page)
    await form(page).get_by_role("button", name="Answer").click()
    await expect(form(page).locator(".wait-problem")).to_have_text("size: a value is missing")
    await form(page).get_by_label("size").fill("3")
    await form(page).get_by_label("color").select_option("red")
    await form(page).get_by_role("button", name="Answer").click()
    await expect(answer(page)).to_contain_text('{"ordered":{"size":3,"color":"red"}}')
    await wait_until_finished(page)
    await expect(form(page)).to_have_count(0)
    await expect(page.locator(".wait-answer")).to_have_text('{"size":3,"color":"red"}')
    ended = ["preparedonego", 'ask_sizedone{"size":3,"color":"red"}', 'orderdone{"ordered":{"size":3,"color":"red"}}']
    await expect(nodes).to_have_text(ended)
    await page.reload()
    await expect(page.locator(".wait-answer")).to_have_text('{"size":3,"color":"red"}')
    await expect(answer(page)).to_contain_text('{"ordered":{"size":3,"color":"red"}}')
    await expect(nodes).to_have_text(ended)


async def test_a_request_is_there_after_a_reload_and_a_message_answers_it(
    page: Page, site: Site, monitor: PageMonitor
) -> None:
    monitor.expect("422")
    await page.goto(site.url)
    await send(page, "go")
    await wait_until_finished(page)
    await page.reload()
    await expect(form(page)).to_be_visible()
    box = page.get_by_role("textbox", name="Message")
    await box.fill("large")
    await page.keyboard.press("Enter")
    await expect(form(page).locator(".wait-problem")).to_contain_text("does not fit")
    await expect(box).to_have_value("large")
    await box.fill('{"size": 4}')
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_contain_text('{"ordered":{"size":4,"color":null}}')
    await wait_until_finished(page)
    await expect(form(page)).to_have_count(0)


async def test_a_free_question_takes_a_text_and_can_be_skipped(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "free")
    free = page.get_by_role("group", name="What else?")
    await free.get_by_role("textbox").fill("nothing <b>else</b>")
    await free.get_by_role("button", name="Answer").click()
    await expect(answer(page)).to_contain_text('{"ordered":"nothing <b>else</b>"}')
    await wait_until_finished(page)
    await send(page, "free")
    await wait_until_finished(page)
    await free.get_by_role("button", name="Skip").click()
    await expect(free).to_have_count(0)
    await expect(answer(page)).to_contain_text("the user stopped the turn")
    await send(page, "free")
    await expect(free).to_be_visible()
    await wait_until_finished(page)


async def test_an_answer_in_another_tab_closes_the_form(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "free")
    await wait_until_finished(page)
    other = await page.context.new_page()
    await other.goto(page.url)
    free = other.get_by_role("group", name="What else?")
    await free.get_by_role("textbox").fill("tea")
    await free.get_by_role("button", name="Answer").click()
    for tab in (other, page):
        await expect(answer(tab)).to_contain_text('{"ordered":"tea"}')
        await wait_until_finished(tab)
        await expect(tab.get_by_role("group", name="What else?")).to_have_count(0)
        await expect(tab.locator(".wait-answer")).to_have_text("tea")
        nodes = answer(tab).get_by_role("list", name="Steps of the workflow").get_by_role("listitem")
        await expect(nodes).to_have_text(FREE_NODES)


async def test_a_redraw_keeps_what_was_typed(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "go")
    await wait_until_finished(page)
    other = await page.context.new_page()
    await other.add_init_script(HOLD_EVENTS)
    await other.goto(page.url)
    await form(other).get_by_label("color").select_option("blue")
    await form(other).get_by_label("size").fill("7")
    await form(other).evaluate("form => form.dataset.first = 1")
    await other.evaluate("live()")  # the events of the turn come with a pause: they replace what is shown
    drawn = other.locator(".wait-form:not([data-first])")
    await expect(drawn).to_be_visible()
    await expect(drawn.get_by_label("size")).to_have_value("7")
    await expect(drawn.get_by_label("size")).to_be_focused()
    await other.evaluate("ended()")
    await wait_until_finished(other)
    await drawn.get_by_role("button", name="Answer").click()
    for tab in (other, page):
        await expect(answer(tab)).to_contain_text('{"ordered":{"size":7,"color":"blue"}}')


async def test_what_was_typed_is_there_until_the_request_is_answered(page: Page, site: Site) -> None:
    await page.goto(site.url)
    await send(page, "free")
    await wait_until_finished(page)
    free = page.get_by_role("group", name="What else?")
    await free.get_by_role("textbox").fill("tea")
    await page.get_by_role("button", name="New conversation").first.click()
    await expect(free).to_have_count(0)
    await page.go_back()
    await expect(free.get_by_role("textbox")).to_have_value("tea")
    await free.get_by_role("button", name="Answer").click()
    await expect(answer(page)).to_contain_text('{"ordered":"tea"}')
    await wait_until_finished(page)
    await send(page, "free")
    await expect(free.get_by_role("textbox")).to_have_value("")
    await free.get_by_role("button", name="Skip").click()
